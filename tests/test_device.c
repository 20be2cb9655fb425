/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on device memory over a transport of the host, all ranks in this process: the same
 * bits, residuals and bytes on the wire as from host memory, for every algorithm, codec and type.
 * And what is refused. Emulated, or on a GPU where there is one. */
#include "scene.h"

#include "collective/comm.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

static const struct wri_device *device;
static void *stream;

static void play(const struct scene *s)
{
    struct outcome host, other;
    char name[128];
    there = NULL;
    there_stream = NULL;
    play_here(s, &host);
    there = device;
    there_stream = stream;
    play_here(s, &other);
    scene_name(s, name);
    for (int q = 0; q < s->nranks; q++) {
        assert_int_equal(host.nbytes[q], other.nbytes[q]);
        if (memcmp(host.bytes[q], other.bytes[q], host.nbytes[q]) != 0)
            fail_msg("%s: rank %d has other bits from device memory", name, q);
        assert_int_equal(host.wire_nbytes[q], other.wire_nbytes[q]);
    }
    outcome_close(&host);
    outcome_close(&other);
}

static void same_bits_as_from_host_memory(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n += n == 1 ? 1 : 2)
        for_each_scene(n == 4 ? 3 : n, play);
}

static void every_type_and_operation_exactly(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < WRING_DTYPE_COUNT; dtype++)
        for (int op = 0; op < WRING_OP_COUNT; op++) {
            bool integers = dtype > WRING_FLOAT64;
            struct scene s = {.nranks = 3,
                              .kind = WRING_ALLREDUCE,
                              .op = (wring_op)op,
                              .dtype = (wring_dtype)dtype,
                              .spec = "none",
                              .algorithm = op % 2 ? "ring" : "direct",
                              .piece = "1K",
                              .count = {1001, 7}};
            if (!(integers && op == WRING_AVG))
                play(&s);
        }
}

/* The handles that stand for a default stream; the second differs from thread to thread. */
static void default_streams(void **state)
{
    (void)state;
    void *const handles[] = {(void *)1, (void *)2};
    void *own = stream;
    for (size_t i = 0; i < LENGTH(handles); i++) {
        stream = handles[i];
        struct scene s = {.nranks = 2,
                          .kind = WRING_ALLREDUCE,
                          .op = WRING_AVG,
                          .spec = "ef+int8",
                          .algorithm = "direct",
                          .piece = "1K",
                          .count = {2000, 50}};
        play(&s);
    }
    stream = own;
}

/* ---- gradients of a scheduler ---------------------------------------------------------------- */

enum { PARAMS = 3, RANKS = 2, MICRO = 3, STEPS = 2 };
static const size_t param_count[PARAMS] = {700, 1, 17000};

struct trainee {
    wring_scheduler *scheduler;
    void *grad[PARAMS];
};

static bool weighted; /* micro-steps, in what follows */

static void trainee_open(struct trainee *t, wring_comm *comm, const wring_codec *codec,
                         wring_dtype dtype)
{
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.codec = codec;
    options.accumulate = MICRO;
    options.stream = there_stream;
    options.weighted = weighted;
    options.bucket_nbytes = 4096;
    options.first_bucket_nbytes = 4096;
    ok(wring_scheduler_create(comm, &options, &t->scheduler));
    for (int i = 0; i < PARAMS; i++) {
        char name[2] = {(char)('p' + i), 0};
        int number;
        t->grad[i] = block_open(param_count[i] * wring_dtype_size(dtype));
        ok(wring_scheduler_add(t->scheduler, name, dtype, 1, &param_count[i], t->grad[i], &number));
    }
}

/* The thread's current device is another one, if there is another one. */
static void ready_elsewhere(struct trainee *t, int param)
{
    int count = 1;
    if (there != NULL)
        ok(device->count(&count));
    if (count > 1)
        ok(device->select(1));
    ok(wring_scheduler_ready(t->scheduler, param));
    if (count > 1)
        ok(device->select(0));
}

/* With weights 5, 5, 2; 3, 3, 0; ... a parameter is absent here and there. */
static void backward(struct trainee *t, wring_dtype dtype, int rank, int micro)
{
    static const double weights[] = {5, 5, 2, 3, 3, 0};
    if (weighted)
        ok(wring_scheduler_weigh(t->scheduler, weights[micro]));
    for (int i = PARAMS; i-- > 0;) {
        if (weighted && (micro + rank + i) % 4 == 0) {
            ok(wring_scheduler_absent(t->scheduler, i));
            continue;
        }
        char host[17000 * sizeof(float)];
        for (size_t j = 0; j < param_count[i]; j++) {
            float value = scene_value(rank, micro, j + 20000 * (size_t)i);
            wri_array_convert(dtype, host + j * wring_dtype_size(dtype), WRING_FLOAT32, &value, 1);
        }
        block_copy(t->grad[i], host, param_count[i] * wring_dtype_size(dtype));
        ready_elsewhere(t, i);
    }
}

static void *finish_one(void *scheduler)
{
    return wring_scheduler_finish(scheduler, NULL) == WRING_OK ? scheduler : NULL;
}

/* A thread for each rank: weights may make a rank start buckets only here. */
static void finish_all(struct trainee *t)
{
    pthread_t thread[RANKS];
    for (int q = 0; q < RANKS; q++)
        assert_int_equal(pthread_create(&thread[q], NULL, finish_one, t[q].scheduler), 0);
    for (int q = 0; q < RANKS; q++) {
        void *done;
        pthread_join(thread[q], &done);
        assert_non_null(done);
    }
}

/* Train two ranks for some steps; the norm of the gradients at the end, and rank 0's, clipped, go
 * to OUT. */
static void train(wring_dtype dtype, unsigned char *out)
{
    wring_context *context;
    wring_comm *comm[RANKS];
    wring_codec *codec;
    struct trainee t[RANKS];
    double norm[RANKS];
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    options.transport = "self";
    ok(wring_context_create(&options, &context));
    ok(wring_comm_create_local(context, RANKS, NULL, comm));
    ok(wring_codec_create("ef+int4", &codec));
    for (int q = 0; q < RANKS; q++)
        trainee_open(&t[q], comm[q], codec, dtype);
    for (int micro = 0; micro < MICRO * STEPS; micro++) {
        for (int q = 0; q < RANKS; q++)
            backward(&t[q], dtype, q, micro);
        finish_all(t);
    }
    for (int q = 0; q < RANKS; q++) {
        ok(wring_scheduler_norm(t[q].scheduler, &norm[q]));
        ok(wring_scheduler_scale(t[q].scheduler, 0.3 / norm[q]));
    }
    assert_true(norm[0] == norm[1] && norm[0] > 0);
    memcpy(out, norm, sizeof(*norm));
    out += sizeof(*norm);
    for (int i = 0; i < PARAMS; i++) {
        block_copy(out, t[0].grad[i], param_count[i] * wring_dtype_size(dtype));
        out += param_count[i] * wring_dtype_size(dtype);
    }
    for (int q = 0; q < RANKS; q++) {
        wring_scheduler_destroy(t[q].scheduler);
        for (int i = 0; i < PARAMS; i++)
            block_close(t[q].grad[i]);
        wring_comm_destroy(comm[q]);
    }
    wring_codec_destroy(codec);
    wring_context_destroy(context);
}

static void sleep_a_little(void *unused)
{
    (void)unused;
    usleep(50000);
}

/* A scheduler that ends while its stream still adds up, and one that outlives its communicator. */
static void schedulers_end_when_they_like(void **state)
{
    (void)state;
    wring_context *context;
    wring_comm *comm;
    struct trainee t;
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    options.transport = "self";
    there = device;
    there_stream = stream;
    for (int outlives = 0; outlives < 2; outlives++) {
        ok(wring_context_create(&options, &context));
        ok(wring_comm_create_local(context, 1, NULL, &comm));
        trainee_open(&t, comm, NULL, WRING_FLOAT32);
        ok(device->call_back(stream, sleep_a_little, NULL));
        ok(wring_scheduler_ready(t.scheduler, 0));
        if (outlives)
            wring_comm_destroy(comm);
        wring_scheduler_destroy(t.scheduler);
        if (!outlives)
            wring_comm_destroy(comm);
        wring_context_destroy(context);
        ok(device->stream_wait(stream));
        for (int i = 0; i < PARAMS; i++)
            block_close(t.grad[i]);
    }
}

/* ---- a stream of the caller's that is held up ------------------------------------------------ */

static void wait_for(void *go)
{
    sem_wait(go);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Calls whose stream does not come to them end at the time-out all the same; what the device may
 * still touch stays until it is let go. And so does destroying a tensor that is in such a call. */
static void a_call_behind_a_held_stream(void **state)
{
    (void)state;
    const struct scene s = {.nranks = 2,
                            .kind = WRING_ALLREDUCE,
                            .spec = "ef+int8",
                            .algorithm = "direct",
                            .piece = "1K",
                            .count = {2000, 50}};
    wring_context *context;
    wring_comm *comm[2];
    struct actor actor[2];
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    options.transport = "self";
    setenv("WRING_TIMEOUT", "300", 1);
    there = device;
    there_stream = stream;
    for (int destroys = 0; destroys < 2; destroys++) {
        sem_t go;
        sem_init(&go, 0, 0);
        ok(wring_context_create(&options, &context));
        ok(wring_comm_create_local(context, s.nranks, NULL, comm));
        for (int q = 0; q < s.nranks; q++)
            actor_open(&actor[q], &s, comm[q]);
        ok(device->call_back(stream, wait_for, &go));
        for (int q = 0; q < s.nranks; q++)
            actor_go(&actor[q], 0);
        double began = now_s();
        if (destroys) {
            wring_tensor_destroy(actor[0].tensor[0]);
            actor[0].tensor[0] = NULL;
        }
        for (int q = 0; q < s.nranks; q++)
            assert_int_equal(wring_request_wait(actor[q].request, NULL),
                             destroys && q == 0 ? WRING_E_ABORTED : WRING_E_TIMEOUT);
        assert_true(now_s() - began < 6);
        sem_post(&go);
        for (int q = 0; q < s.nranks; q++) /* the calls ended before they were through */
            assert_true(wri_lane_is_quiet(comm[q]));
        for (int q = 0; q < s.nranks; q++) {
            actor_close(&actor[q]);
            wring_comm_destroy(comm[q]);
        }
        wring_context_destroy(context);
        ok(device->stream_wait(stream));
        sem_destroy(&go);
    }
    unsetenv("WRING_TIMEOUT");
}

static void a_scheduler_with_micro_steps(void **state)
{
    (void)state;
    static unsigned char host[72000], other[72000];
    for (int turn = 0; turn < 2 * (WRING_BFLOAT16 + 1); turn++) {
        wring_dtype dtype = (wring_dtype)(turn / 2);
        weighted = turn % 2;
        there = NULL;
        there_stream = NULL;
        train(dtype, host);
        there = device;
        there_stream = stream;
        train(dtype, other);
        assert_memory_equal(host, other, sizeof(host));
    }
    weighted = false;
}

/* Megatron 3670, DeepSpeed 8080: two streams filled a bucket and the reduction waited for one. Here
 * either producer may be the slow one. */
static void case_b76_gradients_from_two_streams(void **state)
{
    (void)state;
    enum { TRIES = 100 };
    static float host[TRIES][2][64];
    wring_context *context;
    wring_comm *comm[RANKS];
    wring_scheduler *scheduler[RANKS];
    void *grad[RANKS][2], *producer[RANKS][2];
    const size_t count = 64;
    int number;
    there = device;
    there_stream = stream;
    wring_context_options context_options = WRING_CONTEXT_OPTIONS_INIT;
    context_options.transport = "self";
    ok(wring_context_create(&context_options, &context));
    ok(wring_comm_create_local(context, RANKS, NULL, comm));
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.stream = stream;
    options.op = WRING_SUM;
    for (int q = 0; q < RANKS; q++) {
        ok(wring_scheduler_create(comm[q], &options, &scheduler[q]));
        for (int p = 0; p < 2; p++) {
            grad[q][p] = block_open(sizeof(host[0][0]));
            ok(device->stream_open(&producer[q][p]));
            ok(wring_scheduler_add(scheduler[q], p ? "b" : "a", WRING_FLOAT32, 1, &count,
                                   grad[q][p], &number));
        }
    }
    ok(device->stream_wait(stream));
    for (int try = 0; try < TRIES; try++) {
        for (int q = 0; q < RANKS; q++)
            for (int p = 0; p < 2; p++) {
                for (size_t i = 0; i < count; i++)
                    host[try][p][i] = (float)(try + 1000 * p);
                if (p == try % 2)
                    ok(device->call_back(producer[q][p], sleep_a_little, NULL));
                ok(device->copy(device, producer[q][p], grad[q][p], host[try][p],
                                sizeof(host[0][0])));
                ok(wring_scheduler_ready_on(scheduler[q], p, producer[q][p]));
            }
        for (int q = 0; q < RANKS; q++)
            ok(wring_scheduler_finish(scheduler[q], NULL));
        for (int q = 0; q < RANKS; q++)
            for (int p = 0; p < 2; p++) {
                float found[64];
                block_copy(found, grad[q][p], sizeof(found));
                for (size_t i = 0; i < count; i++)
                    assert_true(found[i] == (float)(RANKS * (try + 1000 * p)));
            }
    }
    for (int q = 0; q < RANKS; q++) {
        wring_scheduler_destroy(scheduler[q]);
        for (int p = 0; p < 2; p++) {
            device->stream_close(producer[q][p]);
            block_close(grad[q][p]);
        }
        wring_comm_destroy(comm[q]);
    }
    wring_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_from_host_memory),
        cmocka_unit_test(every_type_and_operation_exactly),
        cmocka_unit_test(default_streams),
        cmocka_unit_test(a_scheduler_with_micro_steps),
        cmocka_unit_test(schedulers_end_when_they_like),
        cmocka_unit_test(a_call_behind_a_held_stream),
        cmocka_unit_test(case_b76_gradients_from_two_streams),
    };
    int count = 0;
    setenv("WRING_MODULES", getenv("WRING_LIB") ? getenv("WRING_LIB") : "", 1);
    if (wri_device_find("cuda", getenv("WRING_MODULES"), &device) != WRING_OK ||
        device->count(&count) != WRING_OK) {
        printf("skipped: %s\n", wring_error_message());
        return 77;
    }
    ok(device->stream_open(&stream));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device->stream_close(stream);
    return failed;
}
