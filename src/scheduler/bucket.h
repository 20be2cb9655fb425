/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler keeps of a parameter and of a bucket, and which goes into which. */
#ifndef WRI_SCHEDULER_BUCKET_H
#define WRI_SCHEDULER_BUCKET_H

#include "scheduler/strided.h"

struct wri_parameter {
    char *name;
    wring_tensor *tensor;
    const wring_codec *codec;
    wring_dtype dtype;
    size_t count;
    void *grad;                  /* the caller's, or of STRIDED packed */
    struct wri_strided *strided; /* where the caller's is, if not in one piece; owned */
    void *accumulator; /* count elements of the accumulator type; NULL: GRAD is sent as it is */
    double unit;       /* what is summed, in units of this weight; 0: nothing in this step yet */
    size_t bucket;
    bool settled; /* ready, or known to be absent, in this micro-step */
};

struct wri_bucket {
    const wring_segment *segments;
    size_t nsegments;
    size_t first;    /* its parameters: first, first - 1, ... */
    size_t nsettled; /* in this micro-step */
    wring_dtype dtype;
    wring_request *request; /* NULL: not started, or waited for */
};

/* Set params[0..nparams).bucket and return the number of buckets; bucket 0 leaves first. */
size_t wri_bucket_assign(struct wri_parameter *params, size_t nparams, size_t limit_nbytes,
                         size_t first_limit_nbytes);

/* Fill the buckets that wri_bucket_assign counted, and their SEGMENTS (one for each parameter). */
void wri_bucket_fill(const struct wri_parameter *params, size_t nparams, wring_segment *segments,
                     struct wri_bucket *buckets);

#endif
