/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong over transport nccl: ranks that disagree, that are lost, that see NaN, NCCL's own
 * errors, communicators used in different order. Over the mock of NCCL and an emulated device. */
#include "device_ranks.h"

#include <math.h>

#include "base/clock.h"

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
    /* Refused, by what this rank heard first: maybe another rank's failure. */
    bool refused = status == WRING_OK || reduce(comm, COUNT, "none", 1, NULL) != WRING_OK;
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return refused ? (int)status : 99;
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

static wring_tensor *tensor_open(wring_comm *comm, const wring_codec *codec)
{
    wring_tensor *tensor;
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    options.codec = codec;
    options.device = true;
    ok(wring_tensor_create(comm, "t", WRING_FLOAT32, 1, &(size_t){COUNT}, &options, &tensor));
    return tensor;
}

/* A call that is stuck on the device: when rank 0 has started it, rank 1 is killed. */
static wring_request *stick(int rank, struct shared *shared, wring_comm *comm, wring_tensor *tensor,
                            void *data)
{
    wring_segment segment = {.tensor = tensor, .send = data, .recv = data, .count = COUNT};
    wring_call call = WRING_CALL_INIT;
    wring_request *request;
    while (rank == 1 && __atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < 2)
        usleep(1000);
    if (rank == 1)
        raise(SIGKILL);
    alarm(60);
    call.segments = &segment;
    call.nsegments = 1;
    call.stream = there_stream;
    ok(wring_comm_start(comm, &call, &request));
    __atomic_store_n(&shared->ready, 2, __ATOMIC_RELEASE);
    return request;
}

/* What is read from the device while a call is stuck there for a rank that is gone. */
static int reads_beside_a_stuck_call(int rank, void *arg)
{
    struct shared *shared = arg;
    float residual[COUNT];
    void *bytes;
    size_t nbytes;
    wring_codec *codec;
    wring_comm *comm;
    wring_context *context = open_context();
    ok(wring_comm_create(context, NULL, &comm));
    ok(wring_codec_create("ef+int8", &codec));
    wring_tensor *tensor = tensor_open(comm, codec);
    void *data = block_open(sizeof(residual));
    wring_request *request = stick(rank, shared, comm, tensor, data);
    wring_status read = wring_tensor_residual(tensor, residual, COUNT);
    wring_status status = wring_request_wait(request, NULL);
    bool saved = wring_state_save(comm, &bytes, &nbytes) == WRING_OK;
    free(saved ? bytes : NULL);
    block_close(data);
    wring_tensor_destroy(tensor);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    wring_codec_destroy(codec);
    return saved && read == WRING_OK ? (int)status : 99;
}

static void state_is_read_beside_a_stuck_call(void **state)
{
    (void)state;
    const int lost[] = {WRING_E_PEER_LOST, 1000 + SIGKILL};
    run_ranks(2, reads_beside_a_stuck_call, shared_open(), lost);
}

/* The same on an ncclComm_t of the caller's: nothing waits for ever, and once he has aborted it,
 * what the tensors hold can be saved, and who is left can go on. */
static int goes_on_after_the_callers_abort(int rank, void *arg)
{
    struct shared *shared = arg;
    struct callers nccl = callers_open(rank, shared);
    wring_context *context = open_context();
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    wring_comm *comm, *smaller;
    wring_codec *codec;
    void *bytes;
    size_t nbytes;
    options.external = nccl.comm;
    ok(wring_comm_create(context, &options, &comm));
    ok(wring_codec_create("ef+int8", &codec));
    wring_tensor *tensor = tensor_open(comm, codec);
    void *data = block_open(COUNT * sizeof(float));
    wring_request *request = stick(rank, shared, comm, tensor, data);
    wring_status status = wring_request_wait(request, NULL);
    int64_t start_ns = wri_clock_ns();
    wring_status saved = wring_state_save(comm, &bytes, &nbytes);
    bool stuck = saved == WRING_E_TIMEOUT && strstr(wring_error_message(), "ncclComm_t") != NULL &&
                 wri_clock_ns() - start_ns < 4000000000;
    nccl.abort(nccl.comm);
    saved = wring_state_save(comm, &bytes, &nbytes);
    free(saved == WRING_OK ? bytes : NULL);
    ok(wring_comm_shrink(comm, &smaller));
    bool goes_on = wring_comm_size(smaller) == 1 && reduce(smaller, COUNT, "int8", 1, NULL) == 0;
    block_close(data);
    wring_tensor_destroy(tensor);
    wring_comm_destroy(smaller);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    wring_codec_destroy(codec);
    return stuck && saved == WRING_OK && goes_on ? (int)status : 99;
}

static void one_goes_on_once_the_caller_has_aborted(void **state)
{
    (void)state;
    const int lost[] = {WRING_E_PEER_LOST, 1000 + SIGKILL};
    run_ranks(2, goes_on_after_the_callers_abort, shared_open(), lost);
}

/* Rank 1 is lost; the others make a smaller group, and go on in it. */
static int goes_on_without(int rank, void *arg)
{
    (void)arg;
    wring_context *context = open_context();
    wring_comm *comm, *smaller;
    wring_status status = WRING_OK;
    ok(wring_comm_create(context, NULL, &comm));
    alarm(60);
    for (int i = 0; status == WRING_OK; i++) {
        if (rank == 1 && i == 1) /* all have created it */
            raise(SIGKILL);
        status = reduce(comm, COUNT, "int8", 1, NULL);
    }
    ok(wring_comm_shrink(comm, &smaller));
    bool right = wring_comm_size(smaller) == 2;
    for (int i = 0; i < 10 && right; i++)
        right = reduce(smaller, COUNT, "int8", 1, NULL) == WRING_OK;
    wring_comm_destroy(smaller);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return right ? (int)status : 99;
}

static void those_that_are_left_go_on(void **state)
{
    (void)state;
    const int lost[] = {WRING_E_PEER_LOST, 1000 + SIGKILL, WRING_E_PEER_LOST};
    run_ranks(3, goes_on_without, NULL, lost);
}

/* Rank 1 alone cannot start what the others wait for. */
static int one_cannot_start(int rank, void *arg)
{
    (void)arg;
    wring_comm *comm;
    wring_scheduler *scheduler;
    int param;
    wring_context *context = open_context();
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.stream = there_stream;
    ok(wring_comm_create(context, NULL, &comm));
    ok(wring_scheduler_create(comm, &options, &scheduler));
    size_t count = 1 << 18; /* no buffers of an earlier call are large enough */
    void *grad = block_open(count * sizeof(float));
    ok(wring_scheduler_add(scheduler, "weight", WRING_FLOAT32, 1, &count, grad, &param));
    wring_barrier(comm); /* all have created it; some may hear of rank 1 already here */
    alarm(60);
    ok(wring_scheduler_flush(scheduler)); /* takes its own memory */
    if (rank == 1)
        setenv("EMU_MEMORY", "1", 1);
    wring_status status = wring_scheduler_ready(scheduler, param);
    wring_status finished = wring_scheduler_finish(scheduler, NULL); /* whatever `ready` said */
    bool told = strstr(wring_error_message(), "device memory") != NULL &&
                (status == WRING_OK || status == finished);
    wring_scheduler_destroy(scheduler);
    block_close(grad);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return told ? (int)finished : 99;
}

static void a_rank_that_cannot_start_tells_the_others(void **state)
{
    (void)state;
    const int failed[] = {SOME_ERROR, WRING_E_MEMORY, SOME_ERROR};
    run_ranks(3, one_cannot_start, NULL, failed);
}

/* One rank alone cannot join, for what VARIABLE makes of VALUE there. */
struct obstacle {
    int rank;
    const char *variable, *value, *words;
};

static int joins_in_vain(int rank, void *arg)
{
    const struct obstacle *obstacle = arg;
    char who[16];
    if (rank == obstacle->rank)
        setenv(obstacle->variable, obstacle->value, 1);
    snprintf(who, sizeof(who), "rank %d", obstacle->rank);
    wring_context *context = open_context();
    wring_comm *comm = NULL;
    alarm(30); /* the time to join is longer */
    wring_status status = wring_comm_create(context, NULL, &comm);
    const char *message = wring_error_message();
    bool told = strstr(message, obstacle->words) != NULL && strstr(message, who) != NULL;
    if (!told)
        printf("rank %d heard: %s\n", rank, message);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return told ? (int)status : 99;
}

static void a_rank_that_cannot_join_tells_the_others(void **state)
{
    (void)state;
    static const struct obstacle obstacles[] = {
        {1, "EMU_MEMORY", "1", "device memory"},
        {0, "EMU_MEMORY", "1", "device memory"},
        {0, "MOCKNCCL_FAIL", "ncclGetUniqueId:1:2", "unhandled system error"},
        {1, "MOCKNCCL_FAIL", "ncclCommInitRankConfig:1:3", "internal error"},
        {0, "MOCKNCCL_FAIL", "ncclCommInitRankConfig:1:3", "internal error"},
        {2, "MOCKNCCL_FAIL", "ncclCommGetAsyncError:1:2", "unhandled system error"},
        {1, "MOCKNCCL_JOIN", "2", "injected: joining"},
        {1, "MOCKNCCL_FAIL", "ncclGroupEnd:1:3", "internal error"},
    };
    const int failed[] = {SOME_ERROR, SOME_ERROR, SOME_ERROR};
    setenv("WRING_JOIN_TIMEOUT", "120000", 1);
    for (size_t i = 0; i < sizeof(obstacles) / sizeof(obstacles[0]); i++)
        run_ranks(3, joins_in_vain, (void *)&obstacles[i], failed);
    unsetenv("WRING_JOIN_TIMEOUT");
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

/* A failed call ends what wring does on the caller's communicator, but not the communicator. */
static int fails_on_the_callers(int rank, void *arg)
{
    struct callers nccl = callers_open(rank, arg);
    int count = 0;
    wring_context *context = open_context();
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    wring_comm *comm;
    options.external = nccl.comm;
    ok(wring_comm_create(context, &options, &comm));
    /* Messages of one size, so that NCCL itself finds nothing wrong. */
    wring_status status = reduce(comm, COUNT, rank ? "int8:round=stochastic" : "int8", 1, NULL);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    bool alive = nccl.count(nccl.comm, &count) == 0 && count == 2;
    return status != WRING_E_MISMATCH || !alive || nccl.destroy(nccl.comm) != 0;
}

static void the_callers_communicator_outlives_a_failure(void **state)
{
    (void)state;
    struct shared *shared = shared_open();
    run_ranks(2, fails_on_the_callers, shared, NULL);
    munmap(shared, sizeof(*shared));
}

/* Two communicators of a context, each with a stream of the caller's, used in another order by each
 * rank, in calls that are new. */
static int in_any_order(int rank, void *arg)
{
    (void)arg;
    wring_context *context = open_context();
    wring_comm *comm[2];
    struct actor actor[2];
    void *stream[2] = {there_stream};
    ok(device->stream_open(&stream[1]));
    ok(wring_comm_create(context, NULL, &comm[0]));
    ok(wring_comm_split(comm[0], 0, 0, &comm[1]));
    for (int i = 0; i < 2; i++)
        actor_open(&actor[i], &chained, comm[i]);
    for (int number = 0; number < 2; number++) {
        for (int i = 0; i < 2; i++) {
            there_stream = stream[i ^ rank];
            actor_start(&actor[i ^ rank], number);
        }
        for (int i = 0; i < 2; i++)
            actor_wait(&actor[i]);
    }
    size_t nbytes[2];
    unsigned char *bytes[2];
    for (int i = 0; i < 2; i++) {
        bytes[i] = actor_outcome(&actor[i], &nbytes[i]);
        actor_close(&actor[i]);
        wring_comm_destroy(comm[i]);
    }
    bool same = nbytes[0] == nbytes[1] && memcmp(bytes[0], bytes[1], nbytes[0]) == 0;
    free(bytes[0]);
    free(bytes[1]);
    wring_context_destroy(context);
    return !same;
}

static void communicators_in_any_order(void **state)
{
    (void)state;
    setenv("WRING_TIMEOUT", "5000", 1);
    run_ranks(2, in_any_order, NULL, NULL);
    unsetenv("WRING_TIMEOUT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_disagree_are_told),
        cmocka_unit_test(a_mismatch_with_a_known_call_ends_too),
        cmocka_unit_test(nan_is_seen_by_all),
        cmocka_unit_test(a_lost_rank_is_an_error_on_all_others),
        cmocka_unit_test(state_is_read_beside_a_stuck_call),
        cmocka_unit_test(one_goes_on_once_the_caller_has_aborted),
        cmocka_unit_test(those_that_are_left_go_on),
        cmocka_unit_test(a_rank_that_cannot_start_tells_the_others),
        cmocka_unit_test(a_rank_that_cannot_join_tells_the_others),
        cmocka_unit_test(a_damaged_frame_is_refused),
        cmocka_unit_test(errors_of_nccl_come_with_its_words),
        cmocka_unit_test(nccl_missing_or_too_old),
        cmocka_unit_test(the_callers_communicator_outlives_a_failure),
        cmocka_unit_test(communicators_in_any_order),
    };
    if (!scene_emulated())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
