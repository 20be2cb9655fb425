/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that do not make the same call: every one of them gets an error that names both sides,
 * and none waits for ever. Ranks are processes over UCX; after each mismatch they make a new
 * communicator of themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ranks.h"

#define N 3
#define TRIES (getenv("WRING_TEST_LONG") ? 1000 : 150)
#define COUNT 6000
#define LATE_MS 1000

/* What a call may be like. */
struct shape {
    wring_kind kind;
    wring_op op;
    wring_dtype dtype;
    size_t count;
    const char *codec, *algorithm;
    int root;
};

static uint64_t draw(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t x = *state;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static struct shape draw_shape(uint64_t *state)
{
    static const size_t counts[] = {1, 2, 100, 1000, 2000};
    static const wring_kind kinds[] = {WRING_ALLREDUCE, WRING_ALLREDUCE, WRING_REDUCE_SCATTER,
                                       WRING_ALLGATHER, WRING_BROADCAST, WRING_BARRIER};
    static const char *const codecs[] = {"none", "int8", "int8:block=64", "topk:0.1+int8", "bf16"};
    static const wring_dtype dtypes[] = {WRING_FLOAT32, WRING_BFLOAT16, WRING_FLOAT16};
    struct shape shape = {.kind = kinds[draw(state) % 6],
                          .op = draw(state) % 2 ? WRING_SUM : WRING_AVG,
                          .dtype = dtypes[draw(state) % 3],
                          .count = counts[draw(state) % 5],
                          .codec = codecs[draw(state) % 5],
                          .root = (int)(draw(state) % N)};
    if (shape.kind == WRING_ALLREDUCE)
        shape.algorithm = draw(state) % 2 ? "direct" : "ring";
    return shape;
}

static bool same(const struct shape *a, const struct shape *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == WRING_BARRIER)
        return true;
    return a->op == b->op && a->dtype == b->dtype && a->count == b->count && a->codec == b->codec &&
           a->algorithm == b->algorithm && a->root == b->root;
}

/* A shape that differs from FIRST in one thing, or in all. */
static struct shape draw_other(uint64_t *state, const struct shape *first)
{
    struct shape other;
    do {
        struct shape new = draw_shape(state);
        other = *first;
        switch (draw(state) % 6) {
        case 0:
            other.count = new.count;
            break;
        case 1:
            other.dtype = new.dtype;
            break;
        case 2:
            other.codec = new.codec;
            break;
        case 3:
            other.op = new.op;
            break;
        case 4:
            other.root = first->kind == WRING_BROADCAST ? new.root : first->root;
            break;
        default:
            other = new;
        }
    } while (same(first, &other));
    return other;
}

static wring_status make_call(wring_comm *comm, const struct shape *shape)
{
    static float send[COUNT], recv[COUNT];
    wring_codec *codec;
    wring_request *request;
    wring_segment segment = {.send = send, .recv = recv, .count = shape->count};
    wring_call call = WRING_CALL_INIT;
    EXPECT(wring_codec_create(shape->codec, &codec) == WRING_OK);
    call.kind = shape->kind;
    call.op = shape->op;
    call.dtype = shape->dtype;
    call.segments = &segment;
    call.nsegments = shape->kind == WRING_BARRIER ? 0 : 1;
    call.codec = codec;
    call.algorithm = shape->algorithm;
    call.root = shape->root;
    wring_status status = wring_comm_start(comm, &call, &request);
    if (status == WRING_OK)
        status = wring_request_wait(request, NULL);
    wring_codec_destroy(codec);
    return status;
}

static void print_shape(const struct shape *shape)
{
    fprintf(stderr, "    kind %d op %d dtype %d count %zu codec %s algorithm %s root %d\n",
            shape->kind, shape->op, shape->dtype, shape->count, shape->codec,
            shape->algorithm ? shape->algorithm : "-", shape->root);
}

static void mismatch(wring_context *context, wring_comm *comm, int rank)
{
    uint64_t state = 7;
    wring_comm *next, *now = comm;
    (void)context;
    board->stage[rank] = 1; /* or a failure of who is there already ends another's joining */
    for (int q = 0; q < N; q++)
        while (board->stage[q] == 0)
            usleep(200);
    for (int i = 0; i < TRIES; i++) {
        struct shape first = draw_shape(&state), other = draw_other(&state, &first);
        int odd = (int)(draw(&state) % N);
        int before = (int)(draw(&state) % 3);
        wring_status status = WRING_OK;
        for (int k = 0; k < before && status == WRING_OK; k++)
            status = wring_barrier(now); /* the others may be through, and further */
        int64_t begin = wri_clock_ns();
        if (status == WRING_OK)
            status = make_call(now, rank == odd ? &other : &first);
        int64_t ms = 0; /* a call that had nothing to receive ends well, but not for long */
        for (; status == WRING_OK && ms <= LATE_MS; ms = (wri_clock_ns() - begin) / MS)
            status = wring_barrier(now);
        const char *message = wring_error_message();
        if (status != WRING_E_MISMATCH || !strstr(message, ", but ") || ms > LATE_MS) {
            fprintf(stderr, "try %d: rank %d, odd %d, after %lld ms: %s: %s\n", i, rank, odd,
                    (long long)ms, wring_status_name(status), message);
            print_shape(&first);
            print_shape(&other);
            _exit(DIES);
        }
        EXPECT(wring_comm_shrink(now, &next) == WRING_OK);
        EXPECT(wring_comm_size(next) == N);
        if (now != comm)
            wring_comm_destroy(now);
        now = next;
    }
    wring_comm_destroy(now);
    note_outcome(rank, WRING_OK);
}

static void test_random(void **state)
{
    pid_t pid[RANKS_MAX];
    (void)state;
    ranks_seconds = 300;
    ranks_start(N, mismatch, pid);
    ranks_end(N, pid, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, board_open, NULL);
}
