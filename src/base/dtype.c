/* SPDX-License-Identifier: Apache-2.0 */
/* What an element type is called and how wide it is. */
#include <wring/wring.h>

static const struct {
    size_t nbytes;
    const char *name;
} dtypes[WRING_DTYPE_COUNT] = {
    [WRING_FLOAT32] = {4, "float32"},   [WRING_FLOAT16] = {2, "float16"},
    [WRING_BFLOAT16] = {2, "bfloat16"}, [WRING_FLOAT64] = {8, "float64"},
    [WRING_INT8] = {1, "int8"},         [WRING_UINT8] = {1, "uint8"},
    [WRING_INT32] = {4, "int32"},       [WRING_INT64] = {8, "int64"},
};

size_t wring_dtype_size(wring_dtype dtype)
{
    return (unsigned)dtype < WRING_DTYPE_COUNT ? dtypes[dtype].nbytes : 0;
}

const char *wring_dtype_name(wring_dtype dtype)
{
    return (unsigned)dtype < WRING_DTYPE_COUNT ? dtypes[dtype].name : "?";
}
