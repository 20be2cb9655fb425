/* SPDX-License-Identifier: Apache-2.0 */
/* What a status is called, and what the thread's last failure was. The message lives in a fixed
 * buffer per thread, so that running out of memory can be reported too. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define MESSAGE_MAX 1024

static _Thread_local char last_message[MESSAGE_MAX];

const char *wring_status_name(wring_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case name:                                                                                     \
        return #name;
        WRING_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "WRING_E_UNKNOWN";
}

const char *wring_status_text(wring_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case name:                                                                                     \
        return text;
        WRING_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

const char *wring_error_message(void)
{
    return last_message;
}

int wring_version(void)
{
    return WRING_VERSION_MAJOR * 10000 + WRING_VERSION_MINOR * 100 + WRING_VERSION_PATCH;
}

/* The arguments may point into the old message, so the new one is built beside it. */
wring_status(wri_fail)(wring_status status, const char *format, ...)
{
    char message[MESSAGE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    memcpy(last_message, message, sizeof(message));
    wri_log(WRING_LOG_DEBUG, "%s: %s", wring_status_name(status), message);
    return status;
}

wring_status wri_fail_context(wring_status status, const char *format, ...)
{
    char prefix[MESSAGE_MAX / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof(prefix), format, arguments);
    va_end(arguments);
    size_t start = strlen(prefix) + 2;
    size_t kept = strnlen(last_message, MESSAGE_MAX - 1 - start);
    memmove(last_message + start, last_message, kept);
    last_message[start + kept] = '\0';
    memcpy(last_message, prefix, start - 2);
    memcpy(last_message + start - 2, ": ", 2);
    return status;
}
