/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines for people: level from WRING_LOG, to standard error or the user's callback. */
#ifndef WRI_BASE_LOG_H
#define WRI_BASE_LOG_H

#include <wring/wring.h>

void wri_log(wring_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True if a line of LEVEL would be written: to skip costly formatting. */
bool wri_log_enabled(wring_log_level level);

#endif
