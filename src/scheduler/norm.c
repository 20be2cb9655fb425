/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to the gradients as a whole, once they are reduced. The norm is computed by each
 * rank for itself: the gradients are the same everywhere, and so is the order in which squares are
 * added (docs/arithmetic.md), so all ranks, hosts and devices alike, get the same bits.
 */
#include <math.h>

#include "base/status.h"
#include "collective/comm.h"
#include "scheduler/scheduler.h"
#include "simd/array.h"

/* Integers are no gradients. */
static bool has_norm(const struct wri_parameter *param)
{
    return param->count > 0 && wri_dtype_is_float(param->dtype);
}

size_t wri_norm_ngroups(const struct wri_parameter *param)
{
    return has_norm(param) ? wri_div_up(param->count, WRI_SQUARES_GROUP) : 0;
}

static double squares_here(wring_dtype dtype, const void *array, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i += WRI_SQUARES_GROUP)
        sum += wri_array_squares(dtype, (const char *)array + i * wring_dtype_size(dtype),
                                 wri_min(count - i, WRI_SQUARES_GROUP));
    return sum;
}

/* The groups' sums come to the host together. */
static wring_status squares_there(wring_scheduler *scheduler)
{
    const struct wri_site *site = &scheduler->site;
    size_t ngroups = 0;
    for (size_t i = 0; i < scheduler->nparams; i++) {
        const struct wri_parameter *param = &scheduler->params[i];
        if (has_norm(param))
            WRI_TRY(site->device->squares(param->dtype, param->grad, param->count,
                                          scheduler->squares_there + ngroups, site->stream));
        ngroups += wri_norm_ngroups(param);
    }
    WRI_TRY(site->device->copy(site->device, site->stream, scheduler->squares,
                               scheduler->squares_there, ngroups * sizeof(double)));
    return site->device->stream_wait(site->stream);
}

static wring_status check_reduced(const wring_scheduler *scheduler)
{
    if (!scheduler->reduced)
        WRI_FAIL(WRING_E_STATE, "no reduced gradients: this is for after the `finish` of a step's "
                                "last micro-step and before the next gradient");
    return WRING_OK;
}

wring_status wri_scheduler_norm(wring_scheduler *scheduler, double *norm_out)
{
    double sum = 0;
    const double *group = scheduler->squares;
    WRI_TRY(check_reduced(scheduler));
    if (scheduler->site.device)
        WRI_TRY(squares_there(scheduler));
    for (size_t i = 0; i < scheduler->nparams; i++) {
        const struct wri_parameter *param = &scheduler->params[i];
        double squares = 0;
        if (!scheduler->site.device && has_norm(param))
            squares = squares_here(param->dtype, param->grad, param->count);
        for (size_t g = 0; scheduler->site.device && g < wri_norm_ngroups(param); g++)
            squares += *group++;
        sum += squares;
    }
    for (size_t i = 0; i < scheduler->ntables; i++) {
        const struct wri_table *table = &scheduler->tables[i];
        sum += squares_here(table->dtype, table->reduced.row, table->reduced.count * table->width);
    }
    *norm_out = sqrt(sum);
    return WRING_OK;
}

wring_status wri_scheduler_scale(wring_scheduler *scheduler, double factor)
{
    WRI_TRY(check_reduced(scheduler));
    for (size_t i = 0; i < scheduler->nparams; i++) {
        const struct wri_parameter *param = &scheduler->params[i];
        if (has_norm(param))
            WRI_TRY(
                wri_site_scale(&scheduler->site, param->dtype, param->grad, factor, param->count));
    }
    for (size_t i = 0; i < scheduler->ntables; i++) {
        const struct wri_table *table = &scheduler->tables[i];
        wri_array_scale(table->dtype, table->reduced.row, factor,
                        table->reduced.count * table->width);
    }
    wri_scheduler_unpack(scheduler);
    return WRING_OK;
}
