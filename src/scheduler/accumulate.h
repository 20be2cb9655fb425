/* SPDX-License-Identifier: Apache-2.0 */
/* Adding up the gradients of several micro-steps before they are sent once. */
#ifndef WRI_SCHEDULER_ACCUMULATE_H
#define WRI_SCHEDULER_ACCUMULATE_H

#include "base/device.h"

/* GRAD of micro-step MICRO (0..nmicro) joins ACCUMULATOR, which is of the accumulator type of DTYPE
 * and needs no initial value. On the last one the total (AVG: divided by NMICRO) is written to
 * GRAD. */
void wri_accumulate(wring_op op, wring_dtype dtype, void *accumulator, void *grad, size_t count,
                    int micro, int nmicro);

/* The same in device memory, enqueued on STREAM. */
wring_status wri_accumulate_device(const struct wri_device *device, void *stream, wring_op op,
                                   wring_dtype dtype, void *accumulator, void *grad, size_t count,
                                   int micro, int nmicro);

#endif
