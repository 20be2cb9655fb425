/* SPDX-License-Identifier: Apache-2.0 */
/* A step in which a rank is killed, tried again by those who are left: results and residuals have
 * the bits of a run in which that rank left before the step, and nobody had tried it; or, if all
 * survivors have committed it, after the step. Over UCX, each rank a process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/hash.h"
#include "ranks.h"

enum { N = 4, VICTIM = 1, COUNT = 300000, BEFORE = 2, AFTER = 2 };

static const char *spec;
static enum { NEVER_TRIED, KILLED_INSIDE, LEFT_AFTERWARDS } death;
static useconds_t delay_us;

static float sample(int rank, int step, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)step * 977u;
    x ^= x >> 15;
    x *= 0x85EBCA6Bu;
    return (float)(x >> 8) * 0x1p-23f - 1;
}

struct trainee {
    wring_context *context;
    wring_codec *codec;
    wring_tensor *tensor;
    float *grad, *sum;
    int rank; /* in the first group: whose gradients it has */
};

static void open_tensor(struct trainee *t, wring_comm *comm)
{
    const size_t shape = COUNT;
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    options.codec = t->codec;
    EXPECT(wring_tensor_create(comm, "weight", WRING_FLOAT32, 1, &shape, &options, &t->tensor) ==
           WRING_OK);
}

/* One step of training: true if it was committed. */
static bool step(struct trainee *t, wring_comm *comm, int number)
{
    bool committed = false;
    wring_request *request;
    for (size_t i = 0; i < COUNT; i++)
        t->grad[i] = sample(t->rank, number, i);
    wring_segment segment = {.tensor = t->tensor, .send = t->grad, .recv = t->sum, .count = COUNT};
    wring_call call = WRING_CALL_INIT;
    call.op = WRING_AVG;
    call.segments = &segment;
    call.nsegments = 1;
    call.algorithm = "direct";
    EXPECT(wring_step_begin(t->context) == WRING_OK);
    if (wring_comm_start(comm, &call, &request) == WRING_OK)
        wring_request_wait(request, NULL);
    EXPECT(wring_step_commit(t->context, &committed) == WRING_OK);
    return committed;
}

/* What was sent last has arrived everywhere. */
static void wait_for_all(int rank, int stage)
{
    board->stage[rank] = stage;
    for (int q = 0; q < N; q++)
        while (board->stage[q] < stage)
            usleep(200);
}

static void *strike_later(void *unused)
{
    (void)unused;
    usleep(delay_us);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* A call that could not start leaves the step without changes, so it may "commit": what counts is
 * whether the call ended well. */
static bool try_step(struct trainee *t, wring_comm *comm, int number)
{
    memset(t->sum, 0, COUNT * sizeof(float));
    bool committed = step(t, comm, number);
    for (size_t i = 0; committed && i < COUNT; i++)
        if (t->sum[i] != 0)
            return true;
    return false;
}

/* Those who are left, with the state that they agree on. */
static wring_comm *recover(struct trainee *t, wring_comm *comm, int *committed)
{
    wring_comm *rest;
    void *state;
    size_t nbytes;
    uint64_t least;
    EXPECT(wring_comm_agree(comm, (uint64_t)*committed, &least) == WRING_OK);
    if ((uint64_t)*committed > least) {
        EXPECT(wring_step_undo(t->context) == WRING_OK);
        board->outcome[t->rank].at_ns = 1;
        --*committed;
    }
    EXPECT((uint64_t)*committed == least);
    EXPECT(wring_state_save(comm, &state, &nbytes) == WRING_OK);
    EXPECT(wring_comm_shrink(comm, &rest) == WRING_OK);
    wring_tensor_destroy(t->tensor);
    open_tensor(t, rest);
    const void *states[] = {state};
    EXPECT(wring_state_load(rest, states, &nbytes, 1, NULL) == WRING_OK);
    free(state);
    return rest;
}

static void live(wring_context *context, wring_comm *comm, int rank)
{
    struct trainee t = {.context = context, .rank = rank};
    pthread_t thread;
    t.grad = malloc(COUNT * sizeof(float));
    t.sum = malloc(COUNT * sizeof(float));
    EXPECT(wring_codec_create(spec, &t.codec) == WRING_OK);
    open_tensor(&t, comm);
    int committed = 0;
    while (committed < BEFORE)
        EXPECT(try_step(&t, comm, committed++));
    wait_for_all(rank, 1);
    if (rank == VICTIM && death == NEVER_TRIED)
        strike(rank, SIGKILL);
    if (rank == VICTIM && death == KILLED_INSIDE)
        pthread_create(&thread, NULL, strike_later, NULL);
    if (death != NEVER_TRIED)
        committed += try_step(&t, comm, committed);
    if (death == LEFT_AFTERWARDS)
        wait_for_all(rank, 2);
    if (rank == VICTIM)
        death == KILLED_INSIDE ? (void)pause() : strike(rank, SIGKILL);
    wring_comm *rest = recover(&t, comm, &committed);
    board->outcome[rank].value[0] = committed;
    while (committed < BEFORE + AFTER)
        EXPECT(try_step(&t, rest, committed++));
    uint64_t hash = wri_hash(t.sum, COUNT * sizeof(float), 0);
    EXPECT(wring_tensor_residual(t.tensor, t.grad, COUNT) == WRING_OK);
    hash = wri_hash(t.grad, COUNT * sizeof(float), hash);
    board->outcome[rank].value[1] = (double)(hash >> 32);
    board->outcome[rank].value[2] = (double)(hash & 0xffffffff);
    board->outcome[rank].done = 1;
    wring_tensor_destroy(t.tensor);
    wring_comm_destroy(rest);
    wring_codec_destroy(t.codec);
    free(t.grad);
    free(t.sum);
}

/* The survivors' outcomes. */
static void run(struct outcome out[N])
{
    pid_t pid[RANKS_MAX];
    ranks_start(N, live, pid);
    ranks_end(N, pid, 1u << VICTIM);
    memcpy(out, board->outcome, N * sizeof(*out));
}

static void test_retry_has_the_same_bits(void **state)
{
    static const char *const specs[] = {"ef+int4", "ef+topk:0.01+int8"};
    static struct outcome never[N], afterwards[N], found[N];
    int tries = getenv("WRING_TEST_TRIES") ? atoi(getenv("WRING_TEST_TRIES")) : 8;
    int again = 0, whole = 0, undone = 0;
    (void)state;
    for (int s = 0; s < 2; s++) {
        spec = specs[s];
        death = NEVER_TRIED;
        run(never);
        death = LEFT_AFTERWARDS;
        run(afterwards);
        assert_memory_not_equal(never[0].value, afterwards[0].value, sizeof(never[0].value));
        death = KILLED_INSIDE;
        for (int try = 0; try < tries; try++) {
            delay_us = 3200u * (unsigned)try / (unsigned)tries;
            run(found);
            bool tried = found[0].value[0] == BEFORE + 1;
            const struct outcome *expected = tried ? afterwards : never;
            for (int q = 0; q < N; q++)
                if (q != VICTIM &&
                    memcmp(found[q].value, expected[q].value, sizeof(found[q].value)))
                    fail_msg("%s, killed after %u us: rank %d has other bits than if %s", spec,
                             delay_us, q, tried ? "it had left afterwards" : "it had left before");
            again += !tried;
            whole += tried;
            for (int q = 0; q < N; q++)
                undone += found[q].at_ns == 1;
        }
    }
    printf("%d steps were tried again, with %d commits undone; %d had been committed by all\n",
           again, undone, whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_retry_has_the_same_bits)};
    return cmocka_run_group_tests(tests, board_open, NULL);
}
