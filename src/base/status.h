/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the function that decides about an error fails with WRI_FAIL, which stores the thread's
 * message and logs it once; callers that only pass it on use WRI_TRY and stay silent. */
#ifndef WRI_BASE_STATUS_H
#define WRI_BASE_STATUS_H

#include <wring/wring.h>

/* Store the thread's message, log it at debug level, return STATUS. */
wring_status wri_fail(wring_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Put "PREFIX: " before the thread's message and return STATUS: for a caller that knows more. */
wring_status wri_fail_context(wring_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same as an expression whose value the compiler can see: it then knows that a failing function
 * has set no output, and warns of none. */
#define wri_fail(status, ...)                                                                      \
    ({                                                                                             \
        wring_status wri_fail_status = (status);                                                   \
        wri_fail(wri_fail_status, __VA_ARGS__);                                                    \
        wri_fail_status;                                                                           \
    })

#define WRI_FAIL(...) return wri_fail(__VA_ARGS__)

#define WRI_TRY(expression)                                                                        \
    do {                                                                                           \
        wring_status wri_try_status = (expression);                                                \
        if (wri_try_status != WRING_OK)                                                            \
            return wri_try_status;                                                                 \
    } while (0)

#endif
