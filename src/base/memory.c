/* SPDX-License-Identifier: Apache-2.0 */
/* Every block of the library comes from here: zeroed, aligned for any SIMD level, its size checked,
 * and able to fail on demand. */
#include "base/memory.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static _Atomic uint64_t allocations;
static _Atomic uint64_t fail_at; /* the number of the allocation that fails; 0: none */

void wri_alloc_fail_at(uint64_t n)
{
    atomic_store(&fail_at, n ? atomic_load(&allocations) + n : 0);
}

uint64_t wri_alloc_count(void)
{
    return atomic_load(&allocations);
}

/* count * nbytes rounded up to WRI_ALIGN, at most PTRDIFF_MAX. */
static bool block_size(size_t count, size_t nbytes, size_t *size_out)
{
    size_t size;
    if (!wri_size_mul(count, nbytes, &size) || size > PTRDIFF_MAX - WRI_ALIGN)
        return false;
    *size_out = wri_round_up(size, WRI_ALIGN);
    return true;
}

wring_status wri_alloc(size_t count, size_t nbytes, void **out)
{
    size_t size;
    if (!block_size(count, nbytes, &size))
        return wri_fail(WRING_E_MEMORY, "%zu x %zu bytes exceed the address space", count, nbytes);
    if (size == 0)
        size = WRI_ALIGN;
    uint64_t number = atomic_fetch_add(&allocations, 1) + 1;
    void *block = number == atomic_load(&fail_at) ? NULL : aligned_alloc(WRI_ALIGN, size);
    if (!block)
        return wri_fail(WRING_E_MEMORY, "cannot allocate %zu bytes", size);
    *out = memset(block, 0, size);
    return WRING_OK;
}

void wri_free(void *block)
{
    free(block);
}

wring_status wri_strdup(const char *text, char **out)
{
    size_t nbytes = strlen(text) + 1;
    void *copy;
    WRI_TRY(wri_alloc(1, nbytes, &copy));
    *out = memcpy(copy, text, nbytes);
    return WRING_OK;
}

void *wri_arena_take(struct wri_arena *arena, size_t count, size_t nbytes)
{
    size_t size, end;
    if (!block_size(count, nbytes, &size) || !wri_size_add(arena->used, size, &end)) {
        arena->overflow = true;
        return NULL;
    }
    assert(!arena->base || end <= arena->capacity);
    void *part = arena->base ? arena->base + arena->used : NULL;
    arena->used = end;
    return part;
}

wring_status wri_arena_open(struct wri_arena *arena)
{
    if (arena->overflow)
        return wri_fail(WRING_E_MEMORY, "what is asked for exceeds the address space");
    void *base;
    WRI_TRY(wri_alloc(1, arena->used, &base));
    arena->base = base;
    arena->capacity = arena->used;
    arena->used = 0;
    return WRING_OK;
}

void wri_arena_close(struct wri_arena *arena)
{
    wri_free(arena->base);
    *arena = (struct wri_arena){0};
}
