/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that are not in one piece, memory of the caller's, and a limit to it: what a scheduler
 * does with the memory of its parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/strided.h"
#include "self_ranks.h"

#define RANKS 3
#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* ---- packing --------------------------------------------------------------------------------- */

/* Views of 1000 elements: where element 0 is, and how far the others are. */
static const struct view {
    size_t first;
    int ndim;
    size_t shape[4];
    ptrdiff_t stride[4];
    bool plain;
} views[] = {
    {0, 1, {7}, {1}, true},
    {0, 3, {2, 3, 4}, {12, 4, 1}, true},
    {0, 3, {2, 1, 4}, {4, 99, 1}, true}, /* the stride of an extent of 1 says nothing */
    {0, 2, {0, 4}, {0, 0}, true},
    {5, 1, {7}, {3}, false},
    {9, 1, {10}, {-1}, false},               /* reversed */
    {0, 2, {5, 6}, {1, 5}, false},           /* transposed */
    {3, 2, {5, 6}, {10, 1}, false},          /* columns of a larger matrix */
    {0, 3, {4, 3, 5}, {1, 20, 4}, false},    /* axes moved */
    {99, 3, {2, 3, 4}, {-50, 2, -8}, false}, /* of everything something */
    {0, 4, {2, 2, 2, 2}, {8, 4, 2, 1}, true},
    {0, 4, {2, 2, 2, 2}, {1, 2, 4, 8}, false},
    {0, 2, {3, 0}, {1, 7}, true},
};

static size_t count_of(const struct view *v)
{
    size_t count = 1;
    for (int d = 0; d < v->ndim; d++)
        count *= v->shape[d];
    return count;
}

/* Where element K, counted in the order of indices, is. */
static size_t place_of(const struct view *v, size_t k)
{
    ptrdiff_t at = (ptrdiff_t)v->first;
    for (int d = v->ndim; d-- > 0; k /= v->shape[d])
        at += (ptrdiff_t)(k % v->shape[d]) * v->stride[d];
    return (size_t)at;
}

static void views_are_packed_and_unpacked(void **state)
{
    (void)state;
    static const wring_dtype dtypes[] = {WRING_INT8, WRING_FLOAT16, WRING_FLOAT32, WRING_FLOAT64};
    for (size_t i = 0; i < LENGTH(views); i++)
        for (size_t t = 0; t < LENGTH(dtypes); t++) {
            const struct view *v = &views[i];
            size_t size = wring_dtype_size(dtypes[t]), count = count_of(v);
            static unsigned char whole[1000 * 8], before[1000 * 8], packed[1000 * 8];
            for (size_t b = 0; b < sizeof whole; b++)
                whole[b] = before[b] = (unsigned char)(b * 31 + b / 251);
            struct wri_strided strided;
            assert_int_equal(wri_strided_is_plain(v->ndim, v->shape, v->stride), v->plain);
            if (count == 0)
                continue;
            require(wri_strided_init(&strided, "w", dtypes[t], v->ndim, v->shape, v->stride,
                                     whole + v->first * size));
            wri_strided_pack(&strided, packed);
            for (size_t k = 0; k < count; k++)
                assert_memory_equal(packed + k * size, before + place_of(v, k) * size, size);
            for (size_t k = 0; k < count; k++) {
                memset(packed + k * size, (int)(k + 1), size);
                memset(before + place_of(v, k) * size, (int)(k + 1), size);
            }
            wri_strided_unpack(&strided, packed);
            assert_memory_equal(whole, before, sizeof whole); /* and nothing beside */
        }
}

static void shared_places_are_refused(void **state)
{
    (void)state;
    static const struct view bad[] = {
        {0, 1, {2}, {0}, false},           {0, 2, {4, 4}, {2, 3}, false},
        {0, 2, {4, 4}, {1, 1}, false},     {0, 2, {4, 4}, {3, -1}, false},
        {0, 1, {3}, {PTRDIFF_MAX}, false}, {0, 1, {SIZE_MAX / 2}, {3}, false},
    };
    static const size_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 2};
    static const ptrdiff_t steps[9] = {1, 1, 1, 1, 1, 1, 1, 1, 2};
    struct wri_strided strided;
    for (size_t i = 0; i < LENGTH(bad); i++) {
        assert_int_equal(wri_strided_init(&strided, "w", WRING_FLOAT32, bad[i].ndim, bad[i].shape,
                                          bad[i].stride, NULL),
                         WRING_E_ARGUMENT);
        assert_says("'w'");
    }
    assert_int_equal(wri_strided_init(&strided, "w", WRING_FLOAT32, 9, nine, steps, NULL),
                     WRING_E_ARGUMENT);
}

/* ---- in a scheduler -------------------------------------------------------------------------- */

static wring_context *context;
static wring_comm *comm[RANKS];
static wring_scheduler *scheduler[RANKS];

static void group_open(int nranks, const char *codec, const wring_scheduler_options *options)
{
    wring_comm_options comm_options = WRING_COMM_OPTIONS_INIT;
    comm_options.codec = codec;
    context = self_open(nranks, &comm_options, comm);
    for (int r = 0; r < nranks; r++)
        require(wring_scheduler_create(comm[r], options, &scheduler[r]));
}

static void group_close(int nranks)
{
    for (int r = 0; r < nranks; r++)
        wring_scheduler_destroy(scheduler[r]);
    self_close(context, nranks, comm);
}

#define ROWS 30
#define COLUMNS 50

static float value_of(int rank, int micro, size_t row, size_t column)
{
    size_t x = (row * COLUMNS + column) * 2654435761u + (size_t)(rank * 977 + micro * 131);
    return (float)(x % 1999) / 7.0f - 140.0f;
}

/* Two steps of a matrix that stands in memory as it is, or transposed with a gap between columns;
 * what comes out, by rows, goes to OUT. */
static void reduce_matrix(bool strided, const char *codec, int accumulate, float *out)
{
    static float grad[RANKS][COLUMNS * (ROWS + 3)];
    static const size_t shape[2] = {ROWS, COLUMNS};
    const ptrdiff_t stride[2] = {strided ? 1 : COLUMNS, strided ? ROWS + 3 : 1};
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.accumulate = accumulate;
    group_open(RANKS, codec, &options);
    for (int r = 0; r < RANKS; r++) {
        int param;
        for (size_t i = 0; i < LENGTH(grad[r]); i++)
            grad[r][i] = -7;
        require(wring_scheduler_add_strided(scheduler[r], "m", WRING_FLOAT32, 2, shape, stride,
                                            grad[r], &param));
    }
    for (int micro = 0; micro < 2 * accumulate; micro++) {
        for (int r = 0; r < RANKS; r++) {
            for (size_t i = 0; i < ROWS; i++)
                for (size_t j = 0; j < COLUMNS; j++)
                    grad[r][i * (size_t)stride[0] + j * (size_t)stride[1]] =
                        value_of(r, micro, i, j);
            if (r == 1 && micro == 2)
                require(wring_scheduler_absent(scheduler[r], 0));
            else
                require(wring_scheduler_ready(scheduler[r], 0));
        }
        for (int r = 0; r < RANKS; r++)
            require(wring_scheduler_finish(scheduler[r], NULL));
    }
    double norm;
    require(wring_scheduler_norm(scheduler[2], &norm));
    require(wring_scheduler_scale(scheduler[2], 0.5));
    *out++ = (float)norm;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < COLUMNS; j++)
            *out++ = grad[2][i * (size_t)stride[0] + j * (size_t)stride[1]];
    for (size_t j = 0; strided && j < COLUMNS; j++) /* the gaps */
        assert_true(grad[0][j * (ROWS + 3) + ROWS + 1] == -7.0f);
    group_close(RANKS);
}

static void layout_in_memory_does_not_show(void **state)
{
    (void)state;
    static const char *const codecs[] = {"none", "ef+int8", "topk:0.1"};
    static float plain[1 + ROWS * COLUMNS], strided[1 + ROWS * COLUMNS];
    for (size_t c = 0; c < LENGTH(codecs); c++)
        for (int accumulate = 1; accumulate <= 2; accumulate++) {
            reduce_matrix(false, codecs[c], accumulate, plain);
            reduce_matrix(true, codecs[c], accumulate, strided);
            assert_memory_equal(plain, strided, sizeof plain);
        }
}

/* ---- a limit, and the caller's memory -------------------------------------------------------- */

static wring_status add(int i, size_t count, float *grad)
{
    char name[8];
    int param;
    snprintf(name, sizeof name, "p%d", i);
    return wring_scheduler_add(scheduler[0], name, WRING_FLOAT32, 1, &count, grad, &param);
}

/* 100 floats with error feedback and sums: 800 bytes of state and 400 of sums. */
static void memory_has_a_limit(void **state)
{
    (void)state;
    static float grad[3][100];
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.accumulate = 2;
    for (int by_setting = 0; by_setting < 2; by_setting++) {
        options.memory_limit = by_setting ? 0 : 2399;
        if (by_setting)
            setenv("WRING_MEMORY_LIMIT", "2399", 1);
        group_open(1, "ef+int8", &options);
        unsetenv("WRING_MEMORY_LIMIT");
        require(add(0, 100, grad[0]));
        assert_int_equal(add(1, 100, grad[1]), WRING_E_MEMORY);
        assert_says("'p1' needs 1200 bytes");
        assert_says("2400; WRING_MEMORY_LIMIT allows 2399");
        require(add(1, 99, grad[1])); /* it may be put right */
        for (int micro = 0; micro < 2; micro++) {
            require(wring_scheduler_ready(scheduler[0], 0));
            require(wring_scheduler_ready(scheduler[0], 1));
            require(wring_scheduler_finish(scheduler[0], NULL));
        }
        group_close(1);
    }
}

static struct {
    int allocated, freed;
    size_t nbytes;
    bool none, crooked;
} store;

static void *take(void *arg, size_t nbytes, void *stream)
{
    assert_ptr_equal(arg, &store);
    assert_null(stream);
    if (store.none)
        return NULL;
    store.allocated++;
    store.nbytes = nbytes;
    char *block = aligned_alloc(64, (nbytes + 127) / 64 * 64);
    memset(block, 0xA5, nbytes);
    return block + (store.crooked ? 16 : 0);
}

static void give_back(void *arg, void *block, size_t nbytes, void *stream)
{
    assert_ptr_equal(arg, &store);
    assert_null(stream);
    assert_int_equal(nbytes, store.nbytes);
    store.freed++;
    free((char *)block - (store.crooked ? 16 : 0));
}

static void memory_of_the_callers(void **state)
{
    (void)state;
    static float grad[1000];
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.accumulate = 2;
    options.alloc = take;
    options.free = give_back;
    options.alloc_arg = &store;
    group_open(1, "none", &options);
    require(add(0, 1000, grad));
    store.none = true;
    assert_int_equal(wring_scheduler_ready(scheduler[0], 0), WRING_E_MEMORY);
    assert_says("allocator");
    store.none = false;
    store.crooked = true;
    assert_int_equal(wring_scheduler_ready(scheduler[0], 0), WRING_E_ARGUMENT);
    assert_says("aligned");
    assert_int_equal(store.freed, 1);
    store.crooked = false;
    for (int micro = 0; micro < 4; micro++) {
        for (size_t i = 0; i < 1000; i++)
            grad[i] = (float)(micro + 1);
        require(wring_scheduler_ready(scheduler[0], 0));
        require(wring_scheduler_finish(scheduler[0], NULL));
    }
    assert_true(grad[999] == 3.5f);
    assert_int_equal(store.allocated, 2);
    assert_true(store.nbytes >= 4000);
    wring_scheduler *half;
    options.free = NULL;
    assert_int_equal(wring_scheduler_create(comm[0], &options, &half), WRING_E_ARGUMENT);
    group_close(1);
    assert_int_equal(store.freed, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_are_packed_and_unpacked),
        cmocka_unit_test(shared_places_are_refused),
        cmocka_unit_test(layout_in_memory_does_not_show),
        cmocka_unit_test(memory_has_a_limit),
        cmocka_unit_test(memory_of_the_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
