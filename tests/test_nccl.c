/* SPDX-License-Identifier: Apache-2.0 */
/* Transport nccl, and ucx with device memory, each rank a process of its own: the same bits as over
 * transport `self` in host memory, for every algorithm, codec and type; a communicator of the
 * caller's. Over the mock of NCCL and an emulated device. */
#include "device_ranks.h"

/* ---- the same bits --------------------------------------------------------------------------- */

struct scenes {
    struct scene *scene;
    struct outcome *outcome;
    size_t count, capacity;
};

static struct scenes all;

static void note(const struct scene *s)
{
    if (all.count == all.capacity) {
        all.capacity = all.capacity ? 2 * all.capacity : 64;
        all.scene = realloc(all.scene, all.capacity * sizeof(*all.scene));
        all.outcome = realloc(all.outcome, all.capacity * sizeof(*all.outcome));
    }
    all.scene[all.count] = *s;
    play_here(s, &all.outcome[all.count++]);
}

/* Compare what this rank gets with what it should. */
static int play_scene(wring_comm *comm, const struct scene *s, const struct outcome *expected)
{
    struct actor actor;
    char name[128];
    size_t nbytes;
    int rank = wring_comm_rank(comm);
    scene_name(s, name);
    actor_open(&actor, s, comm);
    for (int call = 0; call < CALLS; call++) {
        actor_start(&actor, call);
        actor_wait(&actor);
    }
    unsigned char *bytes = actor_outcome(&actor, &nbytes);
    bool same = nbytes == expected->nbytes[rank] && !memcmp(bytes, expected->bytes[rank], nbytes);
    if (!same)
        printf("rank %d: %s: other bits than over transport self\n", rank, name);
    free(bytes);
    actor_close(&actor);
    return !same;
}

static int play_all(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    int failed = 0;
    for (size_t i = 0; i < all.count && !failed; i++) {
        setenv("WRING_PIECE", all.scene[i].piece, 1);
        wring_context *context = open_context();
        wring_comm *comm;
        ok(wring_comm_create(context, NULL, &comm));
        /* As many as share a piece size, so that their tensors meet on one communicator. */
        for (; i < all.count && !failed; i++) {
            failed = play_scene(comm, &all.scene[i], &all.outcome[i]);
            if (i + 1 < all.count && strcmp(all.scene[i].piece, all.scene[i + 1].piece) != 0)
                break;
        }
        wring_comm_destroy(comm);
        wring_context_destroy(context);
    }
    return failed;
}

static int by_piece(const void *a, const void *b)
{
    return strcmp(((const struct scene *)a)->piece, ((const struct scene *)b)->piece);
}

static void same_bits(int nranks)
{
    if (getenv("WRING_TEST_SMALL") != NULL && nranks != 3)
        skip(); /* sanitizers: what they look for does not depend on the number of ranks */
    all = (struct scenes){0};
    there = NULL;
    there_stream = NULL;
    for_each_scene(nranks, note);
    /* Outcomes in the order of the scenes, sorted by piece size. */
    struct scene *sorted = malloc(all.count * sizeof(*sorted));
    memcpy(sorted, all.scene, all.count * sizeof(*sorted));
    qsort(sorted, all.count, sizeof(*sorted), by_piece);
    size_t count = all.count;
    for (size_t i = 0; i < count; i++)
        outcome_close(&all.outcome[i]);
    all.count = 0;
    for (size_t i = 0; i < count; i++)
        note(&sorted[i]);
    free(sorted);
    run_ranks(nranks, play_all, NULL, NULL);
    for (size_t i = 0; i < all.count; i++)
        outcome_close(&all.outcome[i]);
    free(all.scene);
    free(all.outcome);
}

/* The same scenes where encoded bytes are staged through pinned memory. */
static void same_bits_over_ucx(void **state)
{
    (void)state;
    transport = "ucx";
    same_bits(3);
    transport = "nccl";
}

static void same_bits_2(void **state)
{
    (void)state;
    same_bits(2);
}
static void same_bits_3(void **state)
{
    (void)state;
    same_bits(3);
}
static void same_bits_8(void **state)
{
    (void)state;
    same_bits(8);
}

/* ---- in the order of streams ----------------------------------------------------------------- */

static struct outcome chained_outcome;

/* Calls one behind the other on the same tensors, the host waiting for none: state and results are
 * where the stream says. */
static int without_waiting(int rank, void *arg)
{
    (void)arg;
    wring_context *context = open_context();
    wring_comm *comm;
    wring_request *request[CALLS];
    struct actor actor;
    size_t nbytes;
    ok(wring_comm_create(context, NULL, &comm));
    actor_open(&actor, &chained, comm);
    for (int call = 0; call < CALLS; call++) {
        actor_start(&actor, call); /* its copies wait for the stream, not for the request */
        request[call] = actor.request;
    }
    unsigned char *bytes = actor_outcome(&actor, &nbytes);
    bool same = nbytes == chained_outcome.nbytes[rank] &&
                memcmp(bytes, chained_outcome.bytes[rank], nbytes) == 0;
    for (int call = 0; call < CALLS; call++)
        ok(wring_request_wait(request[call], NULL));
    free(bytes);
    actor_close(&actor);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return !same;
}

static void calls_in_the_order_of_a_stream(void **state)
{
    (void)state;
    there = NULL;
    there_stream = NULL;
    play_here(&chained, &chained_outcome);
    run_ranks(2, without_waiting, NULL, NULL);
}

/* ---- a scheduler's weights ------------------------------------------------------------------- */

/* The total weight travels in device memory. (1 0 + 3 1) + (2 4 + 2 6), over 8; then nothing. */
static int weigh_micro_steps(int rank, void *arg)
{
    (void)arg;
    wring_context *context = open_context();
    wring_comm *comm;
    wring_scheduler *scheduler;
    size_t count = 1000;
    float host[1000];
    int param;
    bool right = true;
    ok(wring_comm_create(context, NULL, &comm));
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.accumulate = 2;
    options.weighted = true;
    options.stream = there_stream;
    ok(wring_scheduler_create(comm, &options, &scheduler));
    void *grad = block_open(sizeof(host));
    ok(wring_scheduler_add(scheduler, "w", WRING_FLOAT32, 1, &count, grad, &param));
    for (int micro = 0; micro < 4; micro++) {
        for (size_t i = 0; i < count; i++)
            host[i] = (float)(4 * rank + micro * (1 + rank));
        block_copy(grad, host, sizeof(host));
        ok(wring_scheduler_weigh(scheduler, micro < 2 ? micro ? 3 - rank : 1 + rank : 0));
        ok(wring_scheduler_ready(scheduler, param));
        ok(wring_scheduler_finish(scheduler, NULL));
        block_copy(host, grad, sizeof(host));
        for (size_t i = 0; micro % 2 && i < count; i++)
            right = right && host[i] == (micro == 1 ? 23.0f / 8 : 0.0f);
    }
    wring_scheduler_destroy(scheduler);
    block_close(grad);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return !right;
}

static void weights_of_micro_steps(void **state)
{
    (void)state;
    run_ranks(2, weigh_micro_steps, NULL, NULL);
}

/* ---- a communicator of the caller's ---------------------------------------------------------- */

static int on_the_callers(int rank, void *arg)
{
    struct callers nccl = callers_open(rank, arg);
    wring_context *context = open_context();
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    wring_comm *comm;
    options.external = nccl.comm;
    ok(wring_comm_create(context, &options, &comm));
    int failed = wring_comm_rank(comm) != rank || wring_comm_size(comm) != 2;
    failed |= play_scene(comm, &chained, &chained_outcome);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return failed || nccl.destroy(nccl.comm) != 0;
}

static void a_communicator_of_the_callers(void **state)
{
    (void)state;
    struct shared *shared = shared_open();
    run_ranks(2, on_the_callers, shared, NULL);
    munmap(shared, sizeof(*shared));
    outcome_close(&chained_outcome);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_over_ucx),
        cmocka_unit_test(same_bits_2),
        cmocka_unit_test(same_bits_3),
        cmocka_unit_test(same_bits_8),
        cmocka_unit_test(calls_in_the_order_of_a_stream),
        cmocka_unit_test(weights_of_micro_steps),
        cmocka_unit_test(a_communicator_of_the_callers),
    };
    if (!scene_emulated())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
