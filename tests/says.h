/* SPDX-License-Identifier: Apache-2.0 */
/* What a call said. Include after cmocka.h. */
#ifndef TESTS_SAYS_H
#define TESTS_SAYS_H

#include <string.h>

#include <wring/wring.h>

static inline void require(wring_status status)
{
    if (status != WRING_OK)
        fail_msg("%s: %s", wring_status_name(status), wring_error_message());
}

static inline void assert_text_says(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' does not say '%s'", text, part);
}

/* The thread's last error. */
static inline void assert_says(const char *part)
{
    assert_text_says(wring_error_message(), part);
}

#endif
