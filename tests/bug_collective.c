/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What broke other libraries' collectives, as inputs to ours. Each case is named by its number in
 * the list of such reports and runs over the registries of algorithms and codecs.
 *
 * Elsewhere: B46 bug_scheduler.c; B54 test_exec.c; B60 test_strangers.c; B62 test_failure.c and
 * faults/kill.py; B41 within a group of calls test_group.c; settings under a locale with a comma
 * test_config.c and test_spec.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "self_ranks.h"

#define RANKS_MAX 8

static wring_context *context;
static wring_comm *comm[RANKS_MAX];
static int nranks;

static void group_open(int n, bool threaded)
{
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    options.transport = "self";
    options.caller_progress = !threaded;
    require(wring_context_create(&options, &context));
    require(wring_comm_create_local(context, n, NULL, comm));
    nranks = n;
}

static void group_close(void)
{
    self_close(context, nranks, comm);
}

static const char *algorithm_at(size_t i)
{
    wring_info info;
    return wring_info_get(WRING_INFO_ALGORITHM, i, &info) ? info.name : NULL;
}

/* The I-th stage of the registry that is a codec by itself; NULL past the last. */
static wring_codec *codec_at(size_t i)
{
    wring_info info;
    wring_codec *codec = NULL;
    for (size_t at = 0, found = 0; wring_info_get(WRING_INFO_CODEC, at, &info); at++)
        if (wring_codec_create(info.name, &codec) == WRING_OK) {
            if (found++ == i)
                return codec;
            wring_codec_destroy(codec);
        }
    return NULL;
}

/* Segment Q on rank Q, all of one call; what each rank's wait returned. */
static void run(const wring_call *model, const wring_segment *segment, wring_status *status_out)
{
    wring_request *request[RANKS_MAX] = {NULL};
    for (int q = 0; q < nranks; q++) {
        wring_call call = *model;
        call.segments = &segment[q];
        call.nsegments = 1;
        status_out[q] = wring_comm_start(comm[q], &call, &request[q]);
    }
    for (int q = 0; q < nranks; q++)
        if (request[q] != NULL)
            status_out[q] = wring_request_wait(request[q], NULL);
}

static void run_well(const wring_call *call, const wring_segment *segment)
{
    wring_status status[RANKS_MAX];
    run(call, segment, status);
    for (int q = 0; q < nranks; q++)
        assert_int_equal(status[q], WRING_OK);
}

static wring_call call_of(wring_kind kind, wring_dtype dtype, wring_op op, const char *algorithm)
{
    wring_call call = WRING_CALL_INIT;
    call.kind = kind;
    call.dtype = dtype;
    call.op = op;
    call.algorithm = algorithm;
    return call;
}

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* B40, B41: nothing to move, with and without buffers, is success, and order is kept. */
static void case_b40_b41_nothing_at_all(void **state)
{
    (void)state;
    group_open(3, false);
    for (int kind = 0; kind < WRING_KIND_COUNT; kind++)
        for (int dtype = 0; dtype < WRING_DTYPE_COUNT; dtype++) {
            float cell[3] = {1, 2, 4}, sum[3] = {0};
            wring_segment none[3] = {{0}}, one[3];
            if (dtype % 2)
                none[1].send = none[1].recv = cell; /* a buffer, but nothing in it */
            for (int q = 0; q < 3; q++)
                one[q] = (wring_segment){.send = &cell[q], .recv = &sum[q], .count = 1};
            wring_call call = call_of((wring_kind)kind, (wring_dtype)dtype, WRING_SUM, NULL);
            wring_call after = call_of(WRING_ALLREDUCE, WRING_FLOAT32, WRING_SUM, NULL);
            run_well(&call, none);
            run_well(&after, one);
            assert_true(sum[0] == 7 && sum[1] == 7 && sum[2] == 7);
        }
    group_close();
}

/* B42: fewer elements than ranks, as many, one more. */
static void case_b42_fewer_elements_than_ranks(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 8};
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        const char *algorithm;
        group_open(sizes[k], false);
        for (size_t a = 0; (algorithm = algorithm_at(a)) != NULL; a++)
            for (size_t count = 1; count <= (size_t)nranks + 1; count++) {
                float send[RANKS_MAX][RANKS_MAX + 1], recv[RANKS_MAX][RANKS_MAX + 1];
                wring_segment segment[RANKS_MAX];
                for (int q = 0; q < nranks; q++) {
                    for (size_t i = 0; i < count; i++)
                        send[q][i] = (float)(((size_t)q + 1) * (i + 1));
                    segment[q] = (wring_segment){.send = send[q], .recv = recv[q], .count = count};
                }
                wring_call call = call_of(WRING_ALLREDUCE, WRING_FLOAT32, WRING_SUM, algorithm);
                run_well(&call, segment);
                for (int q = 0; q < nranks; q++)
                    for (size_t i = 0; i < count; i++)
                        assert_true(recv[q][i] ==
                                    (float)((size_t)(nranks * (nranks + 1) / 2) * (i + 1)));
            }
        group_close();
    }
}

/* B44: one rank, average, out of place: every element is written. */
static void case_b44_one_rank_every_count(void **state)
{
    (void)state;
    enum { MOST = 4096 };
    static uint16_t send[MOST], recv[MOST];
    for (int forced = 0; forced < 2; forced++) {
        setenv("WRING_FORCE", forced ? "1" : "0", 1);
        group_open(1, false);
        for (size_t i = 0; i < MOST; i++)
            send[i] = (uint16_t)(0x3f80 + i % 64);
        for (size_t count = 1; count <= MOST; count++) {
            memset(recv, 0xff, sizeof(recv)); /* NaN */
            require(wring_allreduce(comm[0], send, recv, count, WRING_BFLOAT16, WRING_AVG));
            assert_memory_equal(send, recv, count * sizeof(send[0]));
            assert_true(count == MOST || recv[count] == 0xffff);
        }
        group_close();
    }
    unsetenv("WRING_FORCE");
}

/* B45: in place, average, again and again. */
static void case_b45_in_place_average(void **state)
{
    (void)state;
    enum { COUNT = 1000000 };
    const char *algorithm;
    float *data[2] = {malloc(COUNT * sizeof(float)), malloc(COUNT * sizeof(float))};
    group_open(2, false);
    for (size_t a = 0; (algorithm = algorithm_at(a)) != NULL; a++)
        for (int turn = 0; turn < 10; turn++) {
            wring_segment segment[2];
            for (int q = 0; q < 2; q++) {
                for (size_t i = 0; i < COUNT; i++)
                    data[q][i] = (float)(i % 1000) + (float)(2 * q + turn);
                segment[q] = (wring_segment){.send = data[q], .recv = data[q], .count = COUNT};
            }
            wring_call call = call_of(WRING_ALLREDUCE, WRING_FLOAT32, WRING_AVG, algorithm);
            run_well(&call, segment);
            for (size_t i = 0; i < COUNT; i++)
                if (data[0][i] != (float)(i % 1000) + (float)(1 + turn) || data[0][i] != data[1][i])
                    fail_msg("element %zu: %g and %g", i, data[0][i], data[1][i]);
        }
    group_close();
    free(data[0]);
    free(data[1]);
}

/* NBYTES of address space over and over the same WINDOW bytes. */
static char *repeated(size_t nbytes, size_t window)
{
    int fd = memfd_create("repeated", MFD_CLOEXEC);
    char *start = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)window) == 0 && start != MAP_FAILED);
    for (size_t at = 0; at < nbytes; at += window) {
        size_t part = nbytes - at < window ? nbytes - at : window;
        assert_true(mmap(start + at, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
                    MAP_FAILED);
    }
    close(fd);
    return start;
}

/* B53: more elements than 2^31, more bytes than 2^32; and what no memory can hold. */
static void case_b53_counts_past_31_bits(void **state)
{
    (void)state;
    enum { WINDOW = 1 << 22 };
    static const struct {
        size_t count;
        wring_dtype dtype;
    } cases[] = {{(1ull << 31) + 1, WRING_INT8}, {(1ull << 30) + 1, WRING_FLOAT32}};
    float cell = 0;
    group_open(2, false);
    for (size_t k = 0; k < 2 && getenv("WRING_TEST_SMALL") == NULL; k++) {
        size_t nbytes = cases[k].count * wring_dtype_size(cases[k].dtype);
        char *send = repeated(nbytes, WINDOW), *recv = repeated(nbytes, WINDOW);
        for (size_t i = 0; i < WINDOW; i += wring_dtype_size(cases[k].dtype))
            if (cases[k].dtype == WRING_INT8)
                send[i] = (char)(i % 50);
            else
                *(float *)(void *)(send + i) = (float)(i % 1000);
        wring_segment segment[2] = {{.send = send, .recv = recv, .count = cases[k].count},
                                    {.send = send, .recv = recv, .count = cases[k].count}};
        wring_call call = call_of(WRING_BROADCAST, cases[k].dtype, WRING_SUM, NULL);
        run_well(&call, segment);
        for (size_t i = 0; i < WINDOW; i += wring_dtype_size(cases[k].dtype))
            if (cases[k].dtype == WRING_INT8)
                assert_int_equal(recv[i], i % 50);
            else
                assert_true(*(float *)(void *)(recv + i) == (float)(i % 1000));
        munmap(send, nbytes);
        munmap(recv, nbytes);
    }
    for (size_t shift = 58; shift < 64; shift++)
        assert_int_not_equal(
            wring_allreduce(comm[0], &cell, &cell, (size_t)1 << shift, WRING_FLOAT64, WRING_SUM),
            WRING_OK);
    group_close();
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* B48: a thousand operations, every codec: all ranks have the same bits. */
static void case_b48_same_bits_on_all_ranks(void **state)
{
    (void)state;
    enum { N = 8, COUNT = 700, OPERATIONS = 1000 };
    static uint16_t send[N][COUNT], recv[N][COUNT];
    wring_codec *codec;
    size_t ncodecs = 0;
    group_open(N, false);
    while ((codec = codec_at(ncodecs)) != NULL) {
        wring_codec_destroy(codec);
        ncodecs++;
    }
    assert_true(ncodecs > 1);
    for (unsigned k = 0; k < OPERATIONS; k++) {
        wring_segment segment[N];
        codec = codec_at(k % ncodecs);
        for (int q = 0; q < N; q++) {
            for (size_t i = 0; i < COUNT; i++) /* halves of magnitude 2^-8 to 2 */
                send[q][i] = (uint16_t)(0x1c00 + mixed(k * 100003u + i * N + (size_t)q) % 0x2400) |
                             (uint16_t)(mixed(i + k) % 2 << 15);
            segment[q] = (wring_segment){.send = send[q], .recv = recv[q], .count = COUNT};
        }
        wring_call call = call_of(WRING_ALLREDUCE, WRING_FLOAT16, WRING_SUM, NULL);
        call.codec = codec;
        run_well(&call, segment);
        for (int q = 1; q < N; q++)
            assert_memory_equal(recv[0], recv[q], sizeof(recv[0]));
        wring_codec_destroy(codec);
    }
    group_close();
}

/* B50: 1e8, 1, -1e8, 1 on four ranks in every order, true sum 2. Partial sums are float32: each of
 * three additions rounds by half a unit of 1e8 at most, that is by 4. */
static void case_b50_order_of_the_terms(void **state)
{
    (void)state;
    static const float term[4] = {1e8f, 1, -1e8f, 1};
    const char *algorithm;
    for (size_t a = 0; (algorithm = algorithm_at(a)) != NULL; a++)
        for (int order = 0; order < 256; order++) {
            int place[4] = {order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6 & 3};
            if ((1 << place[0] | 1 << place[1] | 1 << place[2] | 1 << place[3]) != 15)
                continue;
            float first = 0;
            for (int seed = 0; seed < 3; seed++) { /* of the order in which messages arrive */
                char text[12];
                float recv[4];
                wring_segment segment[4];
                snprintf(text, sizeof(text), "%d", seed);
                setenv("WRING_SEED", text, 1);
                group_open(4, false);
                for (int q = 0; q < 4; q++)
                    segment[q] =
                        (wring_segment){.send = &term[place[q]], .recv = &recv[q], .count = 1};
                wring_call call = call_of(WRING_ALLREDUCE, WRING_FLOAT32, WRING_SUM, algorithm);
                run_well(&call, segment);
                group_close();
                first = seed == 0 ? recv[0] : first;
                assert_true(fabsf(recv[0] - 2) <= 12);
                for (int q = 0; q < 4; q++)
                    assert_memory_equal(&recv[q], &first, sizeof(first));
            }
        }
    unsetenv("WRING_SEED");
}

/* B56: buffers that are aligned to their elements and no better. */
static void case_b56_pointers_not_aligned(void **state)
{
    (void)state;
    enum { COUNT = 4096 };
    static _Alignas(64) unsigned char send[2][4 * COUNT + 64], recv[2][4 * COUNT + 64];
    static unsigned char aligned[4 * COUNT];
    static const wring_dtype dtypes[] = {WRING_BFLOAT16, WRING_FLOAT32};
    wring_codec *codec;
    group_open(2, false);
    for (size_t c = 0; (codec = codec_at(c)) != NULL; c++) {
        for (int d = 0; d < 2; d++)
            for (size_t offset = 0; offset <= 16; offset += wring_dtype_size(dtypes[d])) {
                size_t nbytes = COUNT * wring_dtype_size(dtypes[d]);
                wring_segment segment[2];
                for (int q = 0; q < 2; q++) {
                    for (size_t i = 0; i < nbytes; i++) /* the high byte: not Inf, not NaN */
                        send[q][offset + i] = (unsigned char)(mixed(i * 2 + (size_t)q) & 0x3f);
                    memset(recv[q], 0x5a, sizeof(recv[q]));
                    segment[q] = (wring_segment){
                        .send = send[q] + offset, .recv = recv[q] + offset, .count = COUNT};
                }
                wring_call call = call_of(WRING_ALLREDUCE, dtypes[d], WRING_SUM, NULL);
                call.codec = codec;
                run_well(&call, segment);
                if (offset == 0)
                    memcpy(aligned, recv[0], nbytes);
                for (int q = 0; q < 2; q++) {
                    assert_memory_equal(recv[q] + offset, aligned, nbytes);
                    assert_int_equal(recv[q][offset + nbytes], 0x5a);
                    assert_true(offset == 0 || recv[q][offset - 1] == 0x5a);
                }
            }
        wring_codec_destroy(codec);
    }
    group_close();
}

/* B57: every count, so every remainder of a vector and every odd number of blocks. */
static void case_b57_every_count(void **state)
{
    (void)state;
    enum { MOST = 1025 };
    wring_codec *codec;
    float *send[2] = {malloc(MOST * sizeof(float)), malloc(MOST * sizeof(float))};
    for (size_t i = 0; i < 2 * MOST; i++) /* within a factor of two: what int4 keeps roughly */
        send[i / MOST][i % MOST] = 1 + (float)(mixed(i) % 1024) / 1024;
    group_open(2, false);
    for (size_t c = 0; (codec = codec_at(c)) != NULL; c++) {
        bool exact = strcmp(wring_codec_spec(codec), "none") == 0;
        for (size_t count = 1; count <= MOST; count++) {
            wring_segment segment[2];
            for (int q = 0; q < 2; q++) /* ends where the allocation ends: sanitizers look on */
                segment[q] = (wring_segment){.send = send[q] + MOST - count,
                                             .recv = malloc(count * sizeof(float)),
                                             .count = count};
            wring_call call = call_of(WRING_ALLREDUCE, WRING_FLOAT32, WRING_SUM, NULL);
            call.codec = codec;
            run_well(&call, segment);
            assert_memory_equal(segment[0].recv, segment[1].recv, count * sizeof(float));
            for (size_t i = 0; i < count; i++) {
                float sum = send[0][MOST - count + i] + send[1][MOST - count + i];
                float got = ((float *)segment[0].recv)[i];
                assert_true(exact ? got == sum : got >= 0 && got <= 8);
            }
            free(segment[0].recv);
            free(segment[1].recv);
        }
        wring_codec_destroy(codec);
    }
    group_close();
    free(send[0]);
    free(send[1]);
}

/* ---- disagreement and failure ---------------------------------------------------------------- */

/* Rank 1 does another call than rank 0: both must say so, and name both sides. */
static void disagree(const wring_call *call, const size_t *count, const char *const *words)
{
    static float data[4][2000];
    wring_request *request[2];
    group_open(2, false);
    for (int q = 0; q < 2; q++) {
        wring_segment segment = {.send = data[q], .recv = data[2 + q], .count = count[q]};
        wring_call own = call[q];
        own.segments = &segment;
        own.nsegments = 1;
        require(wring_comm_start(comm[q], &own, &request[q]));
    }
    for (int q = 0; q < 2; q++) {
        assert_int_equal(wring_request_wait(request[q], NULL), WRING_E_MISMATCH);
        assert_non_null(strstr(wring_error_message(), words[0]));
        assert_non_null(strstr(wring_error_message(), words[1]));
    }
    group_close();
}

/* B51: other counts, one more and twice as many. B52: other types. */
static void case_b51_b52_ranks_disagree(void **state)
{
    (void)state;
    static const size_t counts[][2] = {{1000, 1001}, {1000, 2000}, {1, 1}};
    static const char *const words[][2] = {{"1000 float32", "1001 float32"},
                                           {"1000 float32", "2000 float32"},
                                           {"float32", "bfloat16"}};
    const char *algorithm;
    for (size_t a = 0; (algorithm = algorithm_at(a)) != NULL; a++)
        for (int k = 0; k < 3; k++) {
            wring_call call[2] = {call_of(WRING_ALLREDUCE, WRING_FLOAT32, WRING_SUM, algorithm),
                                  call_of(WRING_ALLREDUCE, k < 2 ? WRING_FLOAT32 : WRING_BFLOAT16,
                                          WRING_SUM, algorithm)};
            disagree(call, counts[k], words[k]);
        }
}

/* B63: after a failure, ten calls give ten errors and touch nothing. */
static void case_b63_calls_after_a_failure(void **state)
{
    (void)state;
    float send[2][4] = {{1, 2, 3, 4}, {1, 2, 3, 4}}, recv[2][4];
    wring_segment segment[2] = {{.send = send[0], .recv = recv[0], .count = 3},
                                {.send = send[1], .recv = recv[1], .count = 4}};
    wring_call call = call_of(WRING_ALLREDUCE, WRING_FLOAT32, WRING_SUM, NULL);
    wring_status status[2];
    group_open(2, false);
    run(&call, segment, status);
    assert_int_equal(status[0], WRING_E_MISMATCH);
    memset(recv, 0x77, sizeof(recv));
    for (int turn = 0; turn < 10; turn++)
        for (int q = 0; q < 2; q++) {
            assert_int_equal(
                wring_allreduce(comm[q], send[q], recv[q], 4, WRING_FLOAT32, WRING_SUM),
                WRING_E_MISMATCH);
            assert_true(strlen(wring_error_message()) > 0);
        }
    for (size_t i = 0; i < sizeof(recv); i++)
        assert_int_equal(((unsigned char *)recv)[i], 0x77);
    for (int q = 0; q < 2; q++)
        assert_true(send[q][0] == 1 && send[q][3] == 4);
    group_close();
}

/* ---- what nobody reported -------------------------------------------------------------------- */

static void *wait_for(void *request)
{
    return (void *)(uintptr_t)wring_request_wait(request, NULL);
}

/* Three steps of a tensor by N ranks; the sums, and rank 0's residual at the end. */
static void three_steps(wring_comm **group, wring_tensor **tensor, int n, size_t count, float *out)
{
    float *data = malloc(2 * (size_t)n * count * sizeof(float));
    for (int step = 0; step < 3; step++) {
        wring_request *request[RANKS_MAX];
        for (int q = 0; q < n; q++) {
            float *send = data + (size_t)q * count, *recv = send + (size_t)n * count;
            for (size_t i = 0; i < count; i++)
                send[i] = (float)(mixed(i * 64 + (size_t)(q * 8 + step)) % 2001) - 1000;
            wring_segment segment = {
                .tensor = tensor[q], .send = send, .recv = recv, .count = count};
            wring_call call = WRING_CALL_INIT;
            call.segments = &segment;
            call.nsegments = 1;
            require(wring_comm_start(group[q], &call, &request[q]));
        }
        for (int q = 0; q < n; q++)
            require(wring_request_wait(request[q], NULL));
        memcpy(out + (size_t)step * count, data + (size_t)n * count, count * sizeof(float));
    }
    require(wring_tensor_residual(tensor[0], out + 3 * count, count));
    free(data);
}

/* Two communicators of different size on one context share a tensor's name: each has its own
 * state, the same as if it were alone. */
static void case_two_groups_share_a_name(void **state)
{
    (void)state;
    enum { COUNT = 5000, SMALL = 2, LARGE = 3 };
    float *out[2][2];
    wring_codec *codec;
    require(wring_codec_create("ef+topk:0.05", &codec));
    for (int both = 0; both < 2; both++) {
        wring_comm *group[2][RANKS_MAX];
        wring_tensor *tensor[2][RANKS_MAX];
        wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
        static const size_t shape[] = {COUNT};
        options.transport = "self";
        options.caller_progress = true;
        for (int g = 0; g < 2; g++)
            out[both][g] = malloc(4 * COUNT * sizeof(float));
        for (int g = 0; g < 2; g++) {
            wring_tensor_options of_tensor = WRING_TENSOR_OPTIONS_INIT;
            of_tensor.codec = codec;
            if (g == 0 || !both)
                require(wring_context_create(&options, &context));
            require(wring_comm_create_local(context, SMALL + g, NULL, group[g]));
            for (int q = 0; q < SMALL + g; q++)
                require(wring_tensor_create(group[g][q], "shared", WRING_FLOAT32, 1, shape,
                                            &of_tensor, &tensor[g][q]));
            three_steps(group[g], tensor[g], SMALL + g, COUNT, out[both][g]);
            for (int last = both ? 0 : g; last <= g && (g == 1 || !both); last++)
                for (int q = 0; q < SMALL + last; q++) {
                    wring_tensor_destroy(tensor[last][q]);
                    wring_comm_destroy(group[last][q]);
                }
            if (g == 1 || !both)
                wring_context_destroy(context);
        }
    }
    for (int g = 0; g < 2; g++) {
        assert_memory_equal(out[0][g], out[1][g], 4 * COUNT * sizeof(float));
        free(out[0][g]);
        free(out[1][g]);
    }
    wring_codec_destroy(codec);
}

/* pytorch 55031: another stream rewrote gradients while they were sent. Not allowed; a mode finds
 * it, whatever the algorithm and whichever element, and finds nothing in a call in place that is
 * left alone. */
static void case_b91_input_written_during_the_call(void **state)
{
    (void)state;
    enum { COUNT = 4000, RANKS = 3 };
    static float data[RANKS][COUNT];
    static const size_t shape[] = {COUNT};
    setenv("WRING_CHECK_INPUT", "1", 1);
    setenv("WRING_PIECE", "512", 1);
    for (size_t a = 0; algorithm_at(a) != NULL; a++)
        for (int culprit = -1; culprit < RANKS; culprit++) {
            wring_tensor *tensor[RANKS];
            wring_request *request[RANKS];
            group_open(RANKS, false);
            wring_call call = call_of(WRING_ALLREDUCE, WRING_FLOAT32, WRING_AVG, algorithm_at(a));
            for (int q = 0; q < RANKS; q++) {
                require(wring_tensor_create(comm[q], "weight", WRING_FLOAT32, 1, shape, NULL,
                                            &tensor[q]));
                wring_segment segment = {tensor[q], 0, data[q], data[q], COUNT};
                for (size_t i = 0; i < COUNT; i++)
                    data[q][i] = (float)(i % 9 + 1);
                call.segments = &segment;
                call.nsegments = 1;
                require(wring_comm_start(comm[q], &call, &request[q]));
            }
            if (culprit >= 0) {
                data[culprit][culprit * (COUNT - 1) / (RANKS - 1)] += 0.5f;
                assert_int_equal(wring_request_wait(request[culprit], NULL), WRING_E_STATE);
                assert_says("tensor 'weight'");
            }
            for (int q = 0; q < RANKS; q++) {
                if (culprit >= 0)
                    require(wring_comm_abort(comm[q])); /* ranks over `self` tell nobody */
                if (q != culprit)
                    assert_int_equal(wring_request_wait(request[q], NULL) == WRING_OK, culprit < 0);
                wring_tensor_destroy(tensor[q]);
            }
            group_close();
        }
    unsetenv("WRING_CHECK_INPUT");
    unsetenv("WRING_PIECE");
}

/* Allreduces by three ranks on a context with a progress thread, each waited for by a thread. */
static void reduce_on_threads(int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        float send[3] = {1, 2, 4}, recv[3] = {0};
        pthread_t thread[3];
        void *status;
        for (int q = 0; q < 3; q++) {
            wring_segment segment = {.send = &send[q], .recv = &recv[q], .count = 1};
            wring_call call = WRING_CALL_INIT;
            wring_request *request;
            call.segments = &segment;
            call.nsegments = 1;
            require(wring_comm_start(comm[q], &call, &request));
            assert_int_equal(pthread_create(&thread[q], NULL, wait_for, request), 0);
        }
        for (int q = 0; q < 3; q++) {
            pthread_join(thread[q], &status);
            assert_int_equal((uintptr_t)status, WRING_OK);
            assert_true(recv[q] == 7);
        }
    }
}

/* A child that does not touch what it inherited ends as any program does; the parent goes on. */
static void case_fork_after_init(void **state)
{
    (void)state;
    group_open(3, true);
    reduce_on_threads(2);
    for (int turn = 0; turn < 5; turn++) {
        int status;
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(20);
            exit(42);
        }
        reduce_on_threads(5);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    }
    group_close();
}

static atomic_int signals;

static void on_signal(int number)
{
    (void)number;
    signals++;
}

static void *send_signals(void *stop)
{
    while (!*(atomic_bool *)stop) {
        kill(getpid(), SIGUSR1);
        usleep(200);
    }
    return NULL;
}

/* Signals without SA_RESTART go to whichever thread has not blocked them: the progress thread. */
static void case_signals_to_the_progress_thread(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_signal}, before;
    atomic_bool stop = false;
    pthread_t sender;
    sigset_t set;
    sigaction(SIGUSR1, &action, &before);
    group_open(3, true); /* its thread inherits a mask without the signal */
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    assert_int_equal(pthread_create(&sender, NULL, send_signals, &stop), 0);
    reduce_on_threads(300);
    stop = true;
    pthread_join(sender, NULL);
    assert_true(signals > 0);
    group_close();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    sigaction(SIGUSR1, &before, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: later on, ThreadSanitizer has mapped more than the system lets a fork copy. */
        cmocka_unit_test(case_fork_after_init),
        cmocka_unit_test(case_b91_input_written_during_the_call),
        cmocka_unit_test(case_b40_b41_nothing_at_all),
        cmocka_unit_test(case_b42_fewer_elements_than_ranks),
        cmocka_unit_test(case_b44_one_rank_every_count),
        cmocka_unit_test(case_b45_in_place_average),
        cmocka_unit_test(case_b48_same_bits_on_all_ranks),
        cmocka_unit_test(case_b50_order_of_the_terms),
        cmocka_unit_test(case_b51_b52_ranks_disagree),
        cmocka_unit_test(case_b56_pointers_not_aligned),
        cmocka_unit_test(case_b57_every_count),
        cmocka_unit_test(case_b63_calls_after_a_failure),
        cmocka_unit_test(case_two_groups_share_a_name),
        cmocka_unit_test(case_signals_to_the_progress_thread),
        cmocka_unit_test(case_b53_counts_past_31_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
