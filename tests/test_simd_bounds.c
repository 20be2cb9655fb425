/* SPDX-License-Identifier: Apache-2.0 */
/* No kernel touches a byte outside its arrays: each array ends where an inaccessible page begins,
 * and then begins where one ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "simd/kernels.h"

enum { SRC, RESIDUAL, DST, SCALES, CODES, ARRAYS };
#define PAGES 4

static unsigned char *region[ARRAYS];
static size_t page;

static int map_regions(void **state)
{
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    for (int a = 0; a < ARRAYS; a++) {
        region[a] = mmap(NULL, (PAGES + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(region[a] != MAP_FAILED);
        assert_int_equal(mprotect(region[a] + page, PAGES * page, PROT_READ | PROT_WRITE), 0);
    }
    return 0;
}

static int unmap_regions(void **state)
{
    (void)state;
    for (int a = 0; a < ARRAYS; a++)
        munmap(region[a], (PAGES + 2) * page);
    return 0;
}

/* The last (or the first) NBYTES of an array's region. */
static void *array(int a, size_t nbytes, bool at_end)
{
    return at_end ? region[a] + (PAGES + 1) * page - nbytes : region[a] + page;
}

static void run_blocks(const struct wri_kernels *k, size_t count, unsigned bits, bool end)
{
    bool (*quantise)(const struct wri_blocks *, void *, void *) = bits == 8   ? k->quantise8
                                                                  : bits == 4 ? k->quantise4
                                                                              : k->quantise1;
    void (*dequantise)(float *, size_t, size_t, const void *, const void *, bool) =
        bits == 8   ? k->dequantise8
        : bits == 4 ? k->dequantise4
                    : k->dequantise1;
    float *residual = array(RESIDUAL, count * 4, end), *dst = array(DST, count * 4, end);
    void *scales = array(SCALES, (count + 127) / 128 * 4, end);
    void *codes = array(CODES, (count * bits + 7) / 8, end);
    struct wri_blocks in = {.source = {.src = array(SRC, count * 4, end),
                                       .residual_in = residual,
                                       .residual_out = residual,
                                       .beta = 1,
                                       .count = count},
                            .block = 128};
    quantise(&in, scales, codes);
    dequantise(dst, count, 128, scales, codes, true);
    dequantise(dst, count, 128, scales, codes, false);
}

static void run_cast(const struct wri_kernels *k, size_t count, int which, bool end)
{
    bool (*const store[])(const struct wri_source *, void *) = {k->store_f32, k->store_bf16,
                                                                k->store_fp16};
    void (*const load[])(float *, size_t, const void *, bool) = {k->load_f32, k->load_bf16,
                                                                 k->load_fp16};
    float *residual = array(RESIDUAL, count * 4, end), *dst = array(DST, count * 4, end);
    void *codes = array(CODES, count * (which == 0 ? 4 : 2), end);
    struct wri_source in = {.src = array(SRC, count * 4, end),
                            .residual_in = residual,
                            .residual_out = residual,
                            .beta = 1,
                            .count = count};
    store[which](&in, codes);
    load[which](dst, count, codes, true);
    load[which](dst, count, codes, false);
}

static void kernels_stay_inside(void **state)
{
    (void)state;
    for (int level = WRI_SIMD_SCALAR; level < WRI_SIMD_LEVEL_COUNT; level++) {
        const struct wri_kernels *k = wri_kernels_at(level);
        for (size_t count = 0; k && count <= 300; count++)
            for (int end = 0; end < 2; end++) {
                run_blocks(k, count, 8, end);
                run_blocks(k, count, 4, end);
                run_blocks(k, count, 1, end);
                for (int which = 0; which < 3; which++)
                    run_cast(k, count, which, end);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kernels_stay_inside, map_regions, unmap_regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
