/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a reduction yields: the rows folded in the order of their ranks, so that all ranks
 * get the same bits. */
#include "mocknccl.h"

#include <algorithm>
#include <type_traits>

size_t type_size(ncclDataType_t type)
{
    static const size_t sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (unsigned)type < ncclNumTypes ? sizes[type] : 0;
}

bool reduce_known(ncclDataType_t type, ncclRedOp_t op)
{
    bool known_type =
        type == ncclFloat32 || type == ncclFloat64 || type == ncclInt32 || type == ncclInt64;
    return known_type && (op == ncclSum || op == ncclMax || op == ncclMin || op == ncclAvg);
}

template <typename T> static T fold(T a, T b, ncclRedOp_t op)
{
    if (op == ncclMax || op == ncclMin)
        return op == ncclMax ? std::max(a, b) : std::min(a, b);
    if constexpr (std::is_integral_v<T>) /* which wrap, as on a device */
        return __builtin_add_overflow(a, b, &a), a;
    return a + b;
}

template <typename T>
static void reduce_as(T *out, const std::vector<const void *> &rows, size_t count, ncclRedOp_t op)
{
    for (size_t i = 0; i < count; i++) {
        T result = ((const T *)rows[0])[i];
        for (size_t row = 1; row < rows.size(); row++)
            result = fold(result, ((const T *)rows[row])[i], op);
        out[i] = op == ncclAvg ? (T)(result / (T)rows.size()) : result;
    }
}

void reduce(void *out, const std::vector<const void *> &rows, size_t count, ncclDataType_t type,
            ncclRedOp_t op)
{
    if (type == ncclFloat32)
        reduce_as((float *)out, rows, count, op);
    else if (type == ncclFloat64)
        reduce_as((double *)out, rows, count, op);
    else if (type == ncclInt32)
        reduce_as((int32_t *)out, rows, count, op);
    else
        reduce_as((int64_t *)out, rows, count, op);
}
