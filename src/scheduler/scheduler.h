/* SPDX-License-Identifier: Apache-2.0 */
/* When does which gradient leave? Contracts as of the wring_scheduler_ twins, arguments checked by
 * the API. A misused call (wrong order, unknown parameter) fails and changes nothing: the caller
 * may put it right and go on. A failed collective stops the scheduler for good, as it stops the
 * communicator: `ready` and `finish` return that first error from then on. */
#ifndef WRI_SCHEDULER_SCHEDULER_H
#define WRI_SCHEDULER_SCHEDULER_H

#include "base/memory.h"
#include "collective/transaction.h"
#include "scheduler/accumulate.h"
#include "scheduler/bucket.h"
#include "scheduler/rules.h"
#include "scheduler/table.h"
#include "scheduler/weights.h"

struct wring_scheduler {
    wring_comm *comm;
    wring_scheduler_options options;
    struct wri_rules rules;

    struct wri_parameter *params;
    size_t nparams, capacity;
    size_t held_nbytes; /* by them */
    struct wri_table *tables;
    size_t ntables, tables_capacity;

    struct wri_arena arena; /* buckets, segments, accumulators; open: parameters are sealed */
    struct wri_arena there; /* accumulators on a device */
    struct wri_site site;   /* where gradients are; set when sealed */
    struct wri_bucket *buckets;
    size_t nbuckets;

    int micro;       /* current micro-step, 0..accumulate-1 */
    int ncounted;    /* micro-steps that the mean is over, so far */
    bool flushed;    /* the step ends with the current micro-step */
    bool opened;     /* something came in the current micro-step */
    size_t nsettled; /* parameters settled in it */
    size_t nstarted; /* buckets started in this step */
    struct wri_weights weights;

    struct wri_step transaction; /* of the buckets' state */

    bool reduced; /* the gradients are a finished step's, and none of the next is ready */
    double *squares, *squares_there; /* of the norm's groups, for gradients on a device */

    wring_status failure; /* of the first failed collective */
    char message[512];
};

/* OPTIONS with every default filled in: sizes and `accumulate` positive, `op` SUM or AVG. */
wring_status wri_scheduler_create(wring_comm *comm, const wring_scheduler_options *options,
                                  wring_scheduler **scheduler_out);

/* Waits for buckets that were started and not finished. */
void wri_scheduler_destroy(wring_scheduler *scheduler);

/* Names must differ. WRING_E_UNSUPPORTED if the codec or the reduction does not take DTYPE.
 * STRIDES: NULL if elements follow each other. */
wring_status wri_scheduler_add(wring_scheduler *scheduler, const char *name, wring_dtype dtype,
                               int ndim, const size_t *shape, const ptrdiff_t *strides, void *grad,
                               int *param_out);

/* HEIGHT rows of WIDTH elements of a float type. */
wring_status wri_scheduler_add_table(wring_scheduler *scheduler, const char *name,
                                     wring_dtype dtype, size_t height, size_t width,
                                     int *table_out);

/* Lay out buckets and take all memory, once, before the first gradient. */
wring_status wri_scheduler_seal(wring_scheduler *scheduler);

/* WEIGHT is 0, or from 1e-9 to 1e15. */
wring_status wri_scheduler_weigh(wring_scheduler *scheduler, double weight);

/* STREAM: where the gradient was made; NULL: on the scheduler's. */
wring_status wri_scheduler_ready(wring_scheduler *scheduler, int param, void *stream);
wring_status wri_scheduler_ready_rows(wring_scheduler *scheduler, int table, const int64_t *ids,
                                      const void *rows, size_t nrows);
wring_status wri_scheduler_rows(wring_scheduler *scheduler, int table, const int64_t **ids_out,
                                void **rows_out, size_t *nrows_out);
wring_status wri_scheduler_absent(wring_scheduler *scheduler, int param);
wring_status wri_scheduler_flush(wring_scheduler *scheduler);
wring_status wri_scheduler_finish(wring_scheduler *scheduler, wring_result *result_out);
wring_status wri_scheduler_undo(wring_scheduler *scheduler);

/* Groups of elements that the norm adds up PARAM in. */
size_t wri_norm_ngroups(const struct wri_parameter *param);
wring_status wri_scheduler_norm(wring_scheduler *scheduler, double *norm_out);
wring_status wri_scheduler_scale(wring_scheduler *scheduler, double factor);

/* Put reduced gradients that are strided where the caller wants them. */
void wri_scheduler_unpack(wring_scheduler *scheduler);

/* Wait for whatever was started, also after a failure: the buffers are the caller's. */
wring_result wri_scheduler_drain(wring_scheduler *scheduler);

#endif
