/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parameters travel together: backward makes gradients roughly in reverse order of forward,
 * so buckets are filled in reverse order of registration. Neighbours of one type and codec share a
 * bucket up to a limit. The first bucket has a limit of its own, small, so that the wire is busy
 * early. The assignment depends on the registered table alone: it is the same on every rank.
 */
#include "scheduler/bucket.h"

static size_t param_nbytes(const struct wri_parameter *param)
{
    return param->count * wring_dtype_size(param->dtype);
}

static bool same_kind(const struct wri_parameter *a, const struct wri_parameter *b)
{
    return a->dtype == b->dtype && a->codec == b->codec;
}

/* A parameter larger than the limit opens a bucket and fills it: it stays alone. */
size_t wri_bucket_assign(struct wri_parameter *params, size_t nparams, size_t limit_nbytes,
                         size_t first_limit_nbytes)
{
    size_t bucket = 0, used = 0;
    for (size_t i = nparams; i-- > 0;) {
        size_t limit = bucket == 0 ? first_limit_nbytes : limit_nbytes;
        size_t nbytes = param_nbytes(&params[i]);
        bool first = i + 1 == nparams;
        bool fits = used <= limit && nbytes <= limit - used;
        if (!first && !(fits && same_kind(&params[i], &params[i + 1]))) {
            bucket++;
            used = 0;
        }
        params[i].bucket = bucket;
        used += nbytes;
    }
    return nparams == 0 ? 0 : bucket + 1;
}

void wri_bucket_fill(const struct wri_parameter *params, size_t nparams, wring_segment *segments,
                     struct wri_bucket *buckets)
{
    for (size_t i = nparams; i-- > 0; segments++) {
        const struct wri_parameter *param = &params[i];
        struct wri_bucket *bucket = &buckets[param->bucket];
        *segments = (wring_segment){.tensor = param->tensor,
                                    .send = param->grad,
                                    .recv = param->grad,
                                    .count = param->count};
        if (bucket->nsegments++ == 0)
            *bucket = (struct wri_bucket){
                .segments = segments, .nsegments = 1, .first = i, .dtype = param->dtype};
    }
}
