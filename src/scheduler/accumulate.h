/* SPDX-License-Identifier: Apache-2.0 */
/* Adding up the gradients of several micro-steps before they are sent once. */
#ifndef WRI_SCHEDULER_ACCUMULATE_H
#define WRI_SCHEDULER_ACCUMULATE_H

#include "base/device.h"
#include "scheduler/bucket.h"

/* Where it is done: DEVICE's table and stream, or NULL for the host. */
struct wri_site {
    const struct wri_device *device;
    void *stream;
};

/* array[i] = factor * array[i], of a float type. */
wring_status wri_site_scale(const struct wri_site *site, wring_dtype dtype, void *array,
                            double factor, size_t count);

/* WEIGHT times the gradient of PARAM, which has an accumulator, joins this step's sum. With weight
 * 0 the gradient is not read. */
wring_status wri_accumulate_add(const struct wri_site *site, struct wri_parameter *param,
                                double weight);

/* Write the step's sum, divided by DIVISOR (0: not), to the gradient of PARAM: zeros if nothing was
 * added. The next `add` begins a new sum. */
wring_status wri_accumulate_end(const struct wri_site *site, struct wri_parameter *param,
                                double divisor);

#endif
