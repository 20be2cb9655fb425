/* SPDX-License-Identifier: Apache-2.0 */
/* Transport nccl, and ucx with device memory, each rank a process of its own: the same bits as over
 * transport `self` in host memory, for every algorithm, codec and type; a communicator of the
 * caller's; ranks that disagree, that are lost, that see NaN. Over the mock of NCCL and an emulated
 * device. */
#include "scene.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct wri_device *device; /* opened in children only: it has threads */
static const char *transport = "nccl";

/* ---- ranks as processes ---------------------------------------------------------------------- */

/* A port that was free a moment ago. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void become_rank(int rank, int nranks, int port)
{
    char text[64];
    snprintf(text, sizeof(text), "%d", rank);
    setenv("WRING_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", nranks);
    setenv("WRING_SIZE", text, 1);
    snprintf(text, sizeof(text), "127.0.0.1:%d", port);
    setenv("WRING_ROOT", text, 1);
    ok(wri_device_find("cuda", getenv("WRING_MODULES"), &device));
    ok(device->stream_open(&there_stream));
    there = device;
}

#define SOME_ERROR (-1)

/* Run ACT on NRANKS ranks; each must return its EXPECT (0 for all if NULL). */
static void run_ranks(int nranks, int (*act)(int rank, void *arg), void *arg, const int *expect)
{
    pid_t pid[RANKS_MAX];
    int port = free_port();
    fflush(NULL);
    for (int q = 0; q < nranks; q++) {
        pid[q] = fork();
        assert_true(pid[q] >= 0);
        if (pid[q] == 0) {
            become_rank(q, nranks, port);
            int result = act(q, arg);
            fflush(NULL);
            _exit(result);
        }
    }
    bool good = true;
    for (int q = 0; q < nranks; q++) {
        int status = 0;
        assert_int_equal(waitpid(pid[q], &status, 0), pid[q]);
        int result = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        int expected = expect ? expect[q] : 0;
        if (expected == SOME_ERROR ? result == 0 || result >= 50 : result != expected) {
            printf("rank %d of %d ended with %d\n", q, nranks, result);
            good = false;
        }
    }
    assert_true(good);
}

static wring_context *open_context(void)
{
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    wring_context *context;
    options.transport = transport;
    ok(wring_context_create(&options, &context));
    return context;
}

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

static const struct scene chained = {.nranks = 2,
                                     .kind = WRING_ALLREDUCE,
                                     .op = WRING_AVG,
                                     .spec = "ef+int4",
                                     .algorithm = "direct",
                                     .piece = "0",
                                     .count = {3000, 129}};
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

typedef struct {
    char internal[128];
} nccl_id;

/* What ranks of a test share. */
struct shared {
    nccl_id id;
    int ready;
};

static int on_the_callers(int rank, void *arg)
{
    struct shared *shared = arg;
    void *library = dlopen(getenv("WRING_NCCL"), RTLD_NOW), *nccl = NULL;
    int (*make_id)(nccl_id *) = dlsym(library, "ncclGetUniqueId");
    int (*init)(void **, int, nccl_id, int) = dlsym(library, "ncclCommInitRank");
    int (*destroy)(void *) = dlsym(library, "ncclCommDestroy");
    if (rank == 0 && make_id(&shared->id) == 0)
        __atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE))
        usleep(1000);
    if (init(&nccl, 2, shared->id, rank) != 0)
        return 70;
    wring_context *context = open_context();
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    wring_comm *comm;
    options.external = nccl;
    ok(wring_comm_create(context, &options, &comm));
    int failed = wring_comm_rank(comm) != rank || wring_comm_size(comm) != 2;
    failed |= play_scene(comm, &chained, &chained_outcome);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return failed || destroy(nccl) != 0;
}

static void a_communicator_of_the_callers(void **state)
{
    (void)state;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    run_ranks(2, on_the_callers, shared, NULL);
    munmap(shared, sizeof(*shared));
    outcome_close(&chained_outcome);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

enum { COUNT = 1000 };

/* One allreduce of COUNT elements by int8, VALUE on this rank; its status. */
static wring_status reduce(wring_comm *comm, size_t count, const char *spec, float value,
                           wring_result *result_out)
{
    float host[2 * COUNT];
    wring_codec *codec;
    wring_request *request;
    ok(wring_codec_create(spec, &codec));
    for (size_t i = 0; i < count; i++)
        host[i] = value;
    void *data = block_open(sizeof(host));
    block_copy(data, host, count * sizeof(float));
    wring_segment segment = {.send = data, .recv = data, .count = count};
    wring_call call = WRING_CALL_INIT;
    call.op = WRING_SUM;
    call.segments = &segment;
    call.nsegments = 1;
    call.codec = codec;
    call.stream = there_stream;
    wring_status status = wring_comm_start(comm, &call, &request);
    if (status == WRING_OK)
        status = wring_request_wait(request, result_out);
    if (status == WRING_OK) {
        block_copy(host, data, count * sizeof(float));
        if (result_out != NULL && result_out->nonfinite != (bool)isnan(host[count / 2]))
            status = WRING_E_INTERNAL;
    }
    block_close(data);
    wring_codec_destroy(codec);
    return status;
}

static int one_call(int rank, void *arg)
{
    const char *what = arg;
    wring_context *context = open_context();
    wring_comm *comm;
    wring_result result;
    ok(wring_comm_create(context, NULL, &comm));
    bool odd = rank == 1;
    wring_status status = reduce(comm, COUNT, "int8", 1, NULL); /* one that goes well */
    if (status == WRING_OK && strcmp(what, "count") == 0)
        status = reduce(comm, odd ? COUNT / 2 : COUNT / 3, "int8", 1, NULL);
    if (status == WRING_OK && strcmp(what, "known count") == 0)
        status = reduce(comm, odd ? COUNT / 2 : COUNT, "int8", 1, NULL);
    if (status == WRING_OK && strcmp(what, "codec") == 0)
        status = reduce(comm, COUNT / 4, odd ? "int4" : "int8", 1, NULL);
    if (status == WRING_OK && strcmp(what, "nan") == 0) {
        status = reduce(comm, COUNT, "int8", odd ? NAN : 1, &result);
        if (status == WRING_OK && !result.nonfinite)
            status = WRING_E_INTERNAL;
    }
    if (status == WRING_OK && strcmp(what, "lost") == 0) {
        if (odd)
            raise(SIGKILL);
        while (status == WRING_OK)
            status = reduce(comm, COUNT, "int8", 1, NULL);
    }
    wring_status again = status == WRING_OK ? WRING_OK : reduce(comm, COUNT, "none", 1, NULL);
    if (again != status)
        printf("rank %d: %s after %s\n", rank, wring_status_name(again), wring_status_name(status));
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return again == status ? (int)status : 99;
}

static void ranks_that_disagree_are_told(void **state)
{
    (void)state;
    const int mismatch[] = {WRING_E_MISMATCH, WRING_E_MISMATCH, WRING_E_MISMATCH};
    run_ranks(3, one_call, "count", mismatch);
    run_ranks(3, one_call, "codec", mismatch);
}

/* Where some ranks make a call that was agreed on before, only NCCL can notice: by sizes that do
 * not match (the mock, at once) or by waiting for ever (NCCL itself, until the time-out). */
static void a_mismatch_with_a_known_call_ends_too(void **state)
{
    (void)state;
    const int any[] = {SOME_ERROR, SOME_ERROR, SOME_ERROR};
    run_ranks(3, one_call, "known count", any);
}

static void nan_is_seen_by_all(void **state)
{
    (void)state;
    run_ranks(3, one_call, "nan", NULL);
}

static void a_lost_rank_is_an_error_on_all_others(void **state)
{
    (void)state;
    const int lost[] = {WRING_E_PEER_LOST, 1000 + SIGKILL, WRING_E_PEER_LOST};
    run_ranks(3, one_call, "lost", lost);
}

/* The first message, a barrier's, is damaged in the middle of its frame on its way to rank 1. */
static int damaged(int rank, void *arg)
{
    (void)arg;
    if (rank == 1)
        setenv("MOCKNCCL_CORRUPT", "1", 1);
    wring_context *context = open_context();
    wring_comm *comm = NULL;
    wring_status status = wring_comm_create(context, NULL, &comm);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return rank == 1 ? (int)status : 0;
}

static void a_damaged_frame_is_refused(void **state)
{
    (void)state;
    const int refused[] = {0, WRING_E_MISMATCH};
    run_ranks(2, damaged, NULL, refused);
}

/* NCCL reports an error of its own while a call is under way. */
static int fails_inside(int rank, void *arg)
{
    (void)arg;
    if (rank == 1)
        setenv("MOCKNCCL_ASYNC", "6:3", 1);
    wring_context *context = open_context();
    wring_comm *comm;
    ok(wring_comm_create(context, NULL, &comm));
    wring_status status = WRING_OK;
    for (int i = 0; i < 20 && status == WRING_OK; i++)
        status = reduce(comm, COUNT, "int8", 1, NULL);
    bool named = strstr(wring_error_message(), "NCCL") != NULL;
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return status != WRING_OK && named ? 0 : 1;
}

static void errors_of_nccl_come_with_its_words(void **state)
{
    (void)state;
    run_ranks(2, fails_inside, NULL, NULL);
}

/* Set-up that cannot work: a clear message, and nothing left behind. */
static int no_library(int rank, void *arg)
{
    const char *const *setting = arg;
    (void)rank;
    setenv(setting[0], setting[1], 1);
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    wring_context *context;
    options.transport = "nccl";
    wring_status status = wring_context_create(&options, &context);
    printf("%s\n", wring_error_message());
    return status == WRING_E_MODULE && strstr(wring_error_message(), setting[2]) ? 0 : 1;
}

static void nccl_missing_or_too_old(void **state)
{
    (void)state;
    const char *const missing[] = {"WRING_NCCL", "libno-such-nccl.so", "install NCCL"};
    const char *const old[] = {"MOCKNCCL_VERSION", "21000", "2.10.0, at least 2.14"};
    const char *const other[] = {"WRING_NCCL", "libm.so.6", "has no nccl"};
    run_ranks(1, no_library, (void *)missing, NULL);
    run_ranks(1, no_library, (void *)old, NULL);
    run_ranks(1, no_library, (void *)other, NULL);
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
        cmocka_unit_test(ranks_that_disagree_are_told),
        cmocka_unit_test(a_mismatch_with_a_known_call_ends_too),
        cmocka_unit_test(nan_is_seen_by_all),
        cmocka_unit_test(a_lost_rank_is_an_error_on_all_others),
        cmocka_unit_test(a_damaged_frame_is_refused),
        cmocka_unit_test(errors_of_nccl_come_with_its_words),
        cmocka_unit_test(nccl_missing_or_too_old),
    };
    if (!scene_emulated())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
