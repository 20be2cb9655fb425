/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: checked sizes, 64-byte aligned blocks, arenas that are sized first and carved after. */
#ifndef WRI_BASE_MEMORY_H
#define WRI_BASE_MEMORY_H

#include <wring/wring.h>

#define WRI_ALIGN 64

/* a * b and a + b; false on overflow. */
static inline bool wri_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool wri_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline size_t wri_round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}
static inline size_t wri_div_up(size_t n, size_t d)
{
    return n / d + (n % d != 0);
}
static inline size_t wri_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* COUNT * NBYTES zeroed bytes, aligned to WRI_ALIGN; at least one byte, so never NULL on success.
 * Every block is freed with wri_free, which accepts NULL. */
wring_status wri_alloc(size_t count, size_t nbytes, void **out);
void wri_free(void *block);
wring_status wri_strdup(const char *text, char **out);

/* Tests: the N-th allocation from now (1 = next) fails with WRING_E_MEMORY; 0 turns it off. Counts
 * allocations of all threads. wri_alloc_count: allocations since start. */
void wri_alloc_fail_at(uint64_t n);
uint64_t wri_alloc_count(void);

/* An arena is used in two passes with the same code: a first one with base == NULL only adds up
 * what is wanted, then wri_arena_open allocates it, and a second pass hands out the parts. */
struct wri_arena {
    unsigned char *base;
    size_t used, capacity;
    bool overflow; /* a size did not fit size_t; reported by wri_arena_open */
};
void *wri_arena_take(struct wri_arena *arena, size_t count, size_t nbytes);
wring_status wri_arena_open(struct wri_arena *arena);
void wri_arena_close(struct wri_arena *arena);

#endif
