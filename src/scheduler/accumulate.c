/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How micro-steps add up: in micro-step order, in the accumulator type (float32 for 16-bit floats),
 * rounded to the gradient's type once, at the end. So the bits depend on the gradients alone, and
 * many small fp16 contributions are not lost.
 */
#include "scheduler/accumulate.h"

#include "base/status.h"
#include "simd/array.h"

void wri_accumulate(wring_op op, wring_dtype dtype, void *accumulator, void *grad, size_t count,
                    int micro, int nmicro)
{
    wring_dtype acc_dtype = wri_dtype_accumulator(dtype);
    if (micro == 0)
        wri_array_convert(acc_dtype, accumulator, dtype, grad, count);
    else
        wri_array_reduce(op, acc_dtype, accumulator, dtype, grad, count);
    if (micro + 1 < nmicro)
        return;
    if (op == WRING_AVG)
        wri_array_divide(acc_dtype, accumulator, nmicro, count);
    wri_array_convert(dtype, grad, acc_dtype, accumulator, count);
}

wring_status wri_accumulate_device(const struct wri_device *device, void *stream, wring_op op,
                                   wring_dtype dtype, void *accumulator, void *grad, size_t count,
                                   int micro, int nmicro)
{
    wring_dtype acc_dtype = wri_dtype_accumulator(dtype);
    struct wri_device_convert convert = {.dst_dtype = acc_dtype,
                                         .src_dtype = dtype,
                                         .dst = accumulator,
                                         .src = grad,
                                         .count = count,
                                         .stream = stream};
    if (micro == 0)
        WRI_TRY(device->convert(&convert));
    else
        WRI_TRY(device->reduce(op, acc_dtype, accumulator, dtype, grad, count, stream));
    if (micro + 1 < nmicro)
        return WRING_OK;
    convert = (struct wri_device_convert){.dst_dtype = dtype,
                                          .src_dtype = acc_dtype,
                                          .dst = grad,
                                          .src = accumulator,
                                          .count = count,
                                          .divisor = op == WRING_AVG ? nmicro : 0,
                                          .stream = stream};
    return device->convert(&convert);
}
