/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time. */
#ifndef WRI_BASE_CLOCK_H
#define WRI_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_MS 1000000LL

int64_t wri_clock_ns(void);

#endif
