/* SPDX-License-Identifier: Apache-2.0 */
/* When does which gradient leave? Contracts as of the wring_scheduler_ twins, arguments checked by
 * the API. A misused call (wrong order, unknown parameter) fails and changes nothing: the caller
 * may put it right and go on. A failed collective stops the scheduler for good, as it stops the
 * communicator: `ready` and `finish` return that first error from then on. */
#ifndef WRI_SCHEDULER_SCHEDULER_H
#define WRI_SCHEDULER_SCHEDULER_H

#include <wring/wring.h>

/* OPTIONS with every default filled in: sizes and `accumulate` positive, `op` SUM or AVG. */
wring_status wri_scheduler_create(wring_comm *comm, const wring_scheduler_options *options,
                                  wring_scheduler **scheduler_out);

/* Waits for buckets that were started and not finished. */
void wri_scheduler_destroy(wring_scheduler *scheduler);

/* Names must differ. WRING_E_UNSUPPORTED if the codec or the reduction does not take DTYPE. */
wring_status wri_scheduler_add(wring_scheduler *scheduler, const char *name, wring_dtype dtype,
                               int ndim, const size_t *shape, void *grad, int *param_out);

wring_status wri_scheduler_ready(wring_scheduler *scheduler, int param);
wring_status wri_scheduler_finish(wring_scheduler *scheduler, wring_result *result_out);

#endif
