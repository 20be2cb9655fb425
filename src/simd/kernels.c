/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which SIMD level runs. Each level is a constant table made in its own file; this file
 * knows which of them the CPU can execute, and keeps the one global pointer to the table in use. */
#include "simd/kernels.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/config.h"
#include "base/status.h"
#include "simd/levels.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(const struct wri_kernels *) in_use;

const struct wri_kernels *wri_kernels_at(int level)
{
    const struct wri_kernels *avx2 = wri_kernels_avx2();
    switch (level) {
    case WRI_SIMD_AUTO:
        return avx2 ? avx2 : &wri_kernels_scalar;
    case WRI_SIMD_SCALAR:
        return &wri_kernels_scalar;
    case WRI_SIMD_AVX2:
        return avx2;
    default:
        return NULL;
    }
}

/* A program that makes no context must obey WRING_CPU too. A bad setting is reported where there is
 * somebody to report it to, by the context. */
static void choose(void)
{
    struct wri_config config;
    const struct wri_kernels *table = NULL;
    if (wri_config_load(&config) == WRING_OK)
        table = wri_kernels_at(config.cpu);
    atomic_store(&in_use, table ? table : wri_kernels_at(WRI_SIMD_AUTO));
}

const struct wri_kernels *wri_kernels(void)
{
    pthread_once(&once, choose);
    return atomic_load_explicit(&in_use, memory_order_relaxed);
}

wring_status wri_simd_select(int level)
{
    pthread_once(&once, choose);
    const struct wri_kernels *table = wri_kernels_at(level);
    if (!table)
        WRI_FAIL(WRING_E_CONFIG, "WRING_CPU: this CPU lacks SIMD level %d", level);
    atomic_store(&in_use, table);
    return WRING_OK;
}

bool wri_simd_info(size_t index, wring_info *info_out)
{
    static const char *const names[] = {"scalar", "avx2"}; /* as in config.def, after auto */
    if (index >= WRI_SIMD_LEVEL_COUNT - 1)
        return false;
    const struct wri_kernels *table = wri_kernels_at((int)index + 1);
    *info_out = (wring_info){names[index], table ? "available" : "this CPU lacks it", "",
                             table && table == wri_kernels() ? "selected" : ""};
    return true;
}
