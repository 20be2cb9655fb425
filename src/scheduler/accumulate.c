/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How micro-steps add up: in micro-step order, in the accumulator type (float32 for 16-bit floats),
 * rounded to the gradient's type once, at the end. So the bits depend on the gradients and weights
 * alone, and many small fp16 contributions are not lost.
 *
 * A sum is kept in units of its first weight for as long as no other weight comes: equal weights
 * cost no rounding and give the bits of a plain sum. From the first other weight on the unit is 1,
 * and a weight that is a small integer still rounds nothing but the product.
 */
#include "scheduler/accumulate.h"

#include <string.h>

#include "base/status.h"
#include "simd/array.h"

/* accumulator = scale * accumulator + weight * gradient. */
static wring_status weigh(const struct wri_site *site, const struct wri_parameter *param,
                          double scale, double weight)
{
    wring_dtype sum_dtype = wri_dtype_accumulator(param->dtype);
    if (site->device)
        return site->device->weigh(sum_dtype, param->accumulator, scale, param->dtype, param->grad,
                                   weight, param->count, site->stream);
    wri_array_weigh(sum_dtype, param->accumulator, scale, param->dtype, param->grad, weight,
                    param->count);
    return WRING_OK;
}

static wring_status convert(const struct wri_site *site, const struct wri_device_convert *c)
{
    if (site->device)
        return site->device->convert(c);
    wri_array_convert(c->dst_dtype, c->dst, c->src_dtype, c->src, c->count);
    return WRING_OK;
}

static wring_status begin(const struct wri_site *site, const struct wri_parameter *param)
{
    const struct wri_device_convert first = {.dst_dtype = wri_dtype_accumulator(param->dtype),
                                             .src_dtype = param->dtype,
                                             .dst = param->accumulator,
                                             .src = param->grad,
                                             .count = param->count,
                                             .stream = site->stream};
    return convert(site, &first);
}

static wring_status add(const struct wri_site *site, const struct wri_parameter *param)
{
    wring_dtype sum_dtype = wri_dtype_accumulator(param->dtype);
    if (site->device)
        return site->device->reduce(WRING_SUM, sum_dtype, param->accumulator, param->dtype,
                                    param->grad, param->count, site->stream);
    wri_array_reduce(WRING_SUM, sum_dtype, param->accumulator, param->dtype, param->grad,
                     param->count);
    return WRING_OK;
}

wring_status wri_site_scale(const struct wri_site *site, wring_dtype dtype, void *array,
                            double factor, size_t count)
{
    if (site->device)
        return site->device->scale(dtype, array, factor, count, site->stream);
    wri_array_scale(dtype, array, factor, count);
    return WRING_OK;
}

wring_status wri_accumulate_add(const struct wri_site *site, struct wri_parameter *param,
                                double weight)
{
    double unit = param->unit;
    if (weight == 0)
        return WRING_OK;
    param->unit = unit == 0 || unit == weight ? weight : 1;
    if (param->count == 0)
        return WRING_OK;
    if (unit == 0)
        return begin(site, param);
    return unit == weight ? add(site, param) : weigh(site, param, unit, weight);
}

static wring_status zero(const struct wri_site *site, const struct wri_parameter *param)
{
    size_t nbytes = param->count * wring_dtype_size(param->dtype);
    if (site->device)
        return site->device->zero(site->stream, param->grad, nbytes);
    memset(param->grad, 0, nbytes);
    return WRING_OK;
}

static wring_status write_sum(const struct wri_site *site, const struct wri_parameter *param,
                              double divisor)
{
    wring_dtype sum_dtype = wri_dtype_accumulator(param->dtype);
    const struct wri_device_convert last = {.dst_dtype = param->dtype,
                                            .src_dtype = sum_dtype,
                                            .dst = param->grad,
                                            .src = param->accumulator,
                                            .count = param->count,
                                            .divisor = divisor,
                                            .stream = site->stream};
    if (divisor != 0 && !site->device)
        wri_array_divide(sum_dtype, param->accumulator, divisor, param->count);
    return convert(site, &last);
}

wring_status wri_accumulate_end(const struct wri_site *site, struct wri_parameter *param,
                                double divisor)
{
    double unit = param->unit;
    param->unit = 0;
    if (param->count == 0)
        return WRING_OK;
    if (unit == 0)
        return zero(site, param);
    if (!param->accumulator)
        return WRING_OK;
    if (divisor == 0 && unit != 1)
        WRI_TRY(wri_site_scale(site, wri_dtype_accumulator(param->dtype), param->accumulator, unit,
                               param->count));
    return write_sum(site, param, divisor / unit);
}
