/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory where it cannot be: every mistake has an error that names it, and nothing crashes
 * later. Needs the emulated device, which has two devices, and settings for what is missing. */
#include "codec/codec.h"
#include "scene.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1000, NBYTES = COUNT * sizeof(float) };

static const struct wri_device *device;

struct world {
    wring_context *context;
    wring_comm *comm[2];
};

static struct world world_open(int nranks)
{
    struct world world = {0};
    world.context = self_open(nranks, NULL, world.comm);
    return world;
}

static void world_close(struct world *world)
{
    wring_comm_destroy(world->comm[0]);
    wring_comm_destroy(world->comm[1]);
    wring_context_destroy(world->context);
}

static wring_status start(wring_comm *comm, wring_tensor *tensor, const void *send, void *recv,
                          void *stream, wring_request **request)
{
    wring_segment segment = {.tensor = tensor, .send = send, .recv = recv, .count = COUNT};
    wring_call call = WRING_CALL_INIT;
    call.segments = &segment;
    call.nsegments = 1;
    call.stream = stream;
    return wring_comm_start(comm, &call, request);
}

static void refused(wring_status status, wring_status expected, const char *words)
{
    if (status != expected || strstr(wring_error_message(), words) == NULL)
        fail_msg("%s, '%s': expected %s and '%s'", wring_status_name(status), wring_error_message(),
                 wring_status_name(expected), words);
}

/* A call that is in order still works: nothing was left behind. */
static void works(struct world *world, void *data)
{
    wring_request *request;
    ok(start(world->comm[0], NULL, data, data, there_stream, &request));
    ok(wring_request_wait(request, NULL));
}

static void memory_of_the_other_kind(void **state)
{
    (void)state;
    struct world world = world_open(1);
    wring_request *request;
    float host[COUNT] = {0};
    void *data = block_open(NBYTES);
    refused(start(world.comm[0], NULL, data, data, NULL, &request), WRING_E_ARGUMENT,
            "is memory of device 0, and the call has no stream");
    refused(start(world.comm[0], NULL, host, data, there_stream, &request), WRING_E_ARGUMENT,
            "is host memory, and the call has a stream");
    refused(start(world.comm[0], NULL, data, host, there_stream, &request), WRING_E_ARGUMENT,
            "is host memory");
    refused(wring_allreduce(world.comm[0], data, data, COUNT, WRING_FLOAT32, WRING_SUM),
            WRING_E_ARGUMENT, "set wring_call.stream");
    works(&world, data);
    block_close(data);
    world_close(&world);
}

static void buffers_that_lie_badly(void **state)
{
    (void)state;
    struct world world = world_open(1);
    wring_request *request;
    wring_scheduler *scheduler;
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    int param;
    char *data = block_open(2 * NBYTES);
    refused(start(world.comm[0], NULL, data + 2, data + 2, there_stream, &request),
            WRING_E_ARGUMENT, "is not aligned to the 4 bytes of a float32");
    refused(start(world.comm[0], NULL, data, data + NBYTES - 4, there_stream, &request),
            WRING_E_ARGUMENT, "overlap in part");
    refused(start(world.comm[0], NULL, data, data + 2 * NBYTES - 4, there_stream, &request),
            WRING_E_ARGUMENT, "the last of 4000 bytes at");
    options.stream = there_stream;
    ok(wring_scheduler_create(world.comm[0], &options, &scheduler));
    refused(wring_scheduler_add(scheduler, "weight", WRING_FLOAT32, 1, &(size_t){COUNT}, data + 2,
                                &param),
            WRING_E_ARGUMENT, "is not aligned to the 4 bytes of a float32");
    wring_scheduler_destroy(scheduler);
    ok(start(world.comm[0], NULL, data, data + NBYTES, there_stream, &request));
    ok(wring_request_wait(request, NULL));
    works(&world, data);
    block_close(data);
    world_close(&world);
}

static void gradients_of_the_other_kind(void **state)
{
    (void)state;
    struct world world = world_open(1);
    float host[COUNT] = {0};
    void *data = block_open(NBYTES), *grad[] = {data, host};
    static const char *const words[] = {"parameter 'weight': %p is memory of device 0",
                                        "parameter 'weight': %p is host memory"};
    for (int on_device = 0; on_device < 2; on_device++) {
        wring_scheduler *scheduler;
        wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
        char expected[80];
        int param;
        options.stream = on_device ? there_stream : NULL;
        ok(wring_scheduler_create(world.comm[0], &options, &scheduler));
        snprintf(expected, sizeof(expected), words[on_device], grad[on_device]);
        refused(wring_scheduler_add(scheduler, "weight", WRING_FLOAT32, 1, &(size_t){COUNT},
                                    grad[on_device], &param),
                WRING_E_ARGUMENT, expected);
        wring_scheduler_destroy(scheduler);
    }
    block_close(data);
    world_close(&world);
}

/* What is host memory also where gradients are on the device. */
static void arguments_that_are_always_host_memory(void **state)
{
    (void)state;
    struct world world = world_open(1);
    wring_tensor *tensor;
    wring_scheduler *scheduler;
    wring_scheduler_options scheduler_options = WRING_SCHEDULER_OPTIONS_INIT;
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    float host[COUNT], untouched[COUNT] = {3};
    int64_t ids[1] = {1};
    int table;
    void *data = block_open(NBYTES);
    block_copy(data, untouched, NBYTES);
    for (int on_device = 0; on_device < 2; on_device++) {
        options.device = on_device;
        ok(wring_tensor_create(world.comm[0], "t", WRING_FLOAT32, 1, &(size_t){COUNT}, &options,
                               &tensor));
        refused(wring_tensor_residual(tensor, data, COUNT), WRING_E_ARGUMENT,
                "is memory of device 0, and must be host memory");
        refused(wring_tensor_residual(tensor, data, COUNT), WRING_E_ARGUMENT, "DST: ");
        ok(wring_tensor_residual(tensor, host, COUNT));
        wring_tensor_destroy(tensor);
        scheduler_options.stream = on_device ? there_stream : NULL;
        ok(wring_scheduler_create(world.comm[0], &scheduler_options, &scheduler));
        ok(wring_scheduler_add_table(scheduler, "rows", WRING_FLOAT32, 4, 2, &table));
        refused(wring_scheduler_ready_rows(scheduler, table, data, host, 1), WRING_E_ARGUMENT,
                "IDS: ");
        refused(wring_scheduler_ready_rows(scheduler, table, ids, data, 1), WRING_E_ARGUMENT,
                "ROWS: ");
        ok(wring_scheduler_ready_rows(scheduler, table, ids, host, 1));
        ok(wring_scheduler_ready_rows(scheduler, table, data, data, 0));
        ok(wring_scheduler_finish(scheduler, NULL));
        wring_scheduler_destroy(scheduler);
    }
    block_copy(host, data, NBYTES);
    assert_memory_equal(host, untouched, NBYTES);
    block_close(data);
    world_close(&world);
}

static void tensors_of_the_other_kind(void **state)
{
    (void)state;
    struct world world = world_open(1);
    wring_tensor *tensor[2];
    wring_request *request;
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    float host[COUNT] = {0};
    void *data = block_open(NBYTES);
    for (int i = 0; i < 2; i++) {
        options.device = i;
        ok(wring_tensor_create(world.comm[0], i ? "there" : "here", WRING_FLOAT32, 1,
                               &(size_t){COUNT}, &options, &tensor[i]));
    }
    refused(start(world.comm[0], tensor[0], data, data, there_stream, &request), WRING_E_ARGUMENT,
            "tensor 'here' is in host memory");
    refused(start(world.comm[0], tensor[1], host, host, NULL, &request), WRING_E_ARGUMENT,
            "tensor 'there' is in device memory");
    wring_tensor_destroy(tensor[0]);
    wring_tensor_destroy(tensor[1]);
    block_close(data);
    world_close(&world);
}

static void another_device(void **state)
{
    (void)state;
    struct world world = world_open(1);
    wring_request *request;
    void *data = block_open(NBYTES), *other_stream, *other;
    works(&world, data);
    ok(device->select(1));
    ok(device->stream_open(&other_stream));
    ok(device->alloc(device, other_stream, NBYTES, &other));
    refused(start(world.comm[0], NULL, data, data, other_stream, &request), WRING_E_ARGUMENT,
            "stream belongs to device 1, the context works on device 0");
    refused(start(world.comm[0], NULL, other, data, there_stream, &request), WRING_E_ARGUMENT,
            "memory of device 1, the context works on device 0");
    works(&world, data); /* whichever device is current */
    int index = -1;
    ok(device->current(&index));
    assert_int_equal(index, 1);
    device->free(device, other_stream, other);
    ok(device->stream_wait(other_stream));
    device->stream_close(other_stream);
    ok(device->select(0));
    block_close(data);
    world_close(&world);
}

static void no_stream_at_all(void **state)
{
    (void)state;
    struct world world = world_open(1);
    wring_request *request;
    wring_scheduler *scheduler;
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    int param;
    void *data = block_open(NBYTES);
    refused(start(world.comm[0], NULL, data, data, &world, &request), WRING_E_ARGUMENT,
            "is no CUDA stream");
    options.stream = &world;
    refused(wring_scheduler_create(world.comm[0], &options, &scheduler), WRING_E_ARGUMENT,
            "is no CUDA stream");
    options.stream = there_stream;
    options.accumulate = 2;
    ok(wring_scheduler_create(world.comm[0], &options, &scheduler));
    ok(wring_scheduler_add(scheduler, "weight", WRING_FLOAT32, 1, &(size_t){COUNT}, data, &param));
    for (int micro = 0; micro < 2; micro++) { /* what was refused can be asked for again */
        refused(wring_scheduler_ready_on(scheduler, param, &world), WRING_E_ARGUMENT,
                "is no CUDA stream");
        ok(wring_scheduler_ready(scheduler, param));
        ok(wring_scheduler_finish(scheduler, NULL));
    }
    wring_scheduler_destroy(scheduler);
    works(&world, data);
    block_close(data);
    world_close(&world);
}

static void out_of_device_memory(void **state)
{
    (void)state;
    struct world world = world_open(2);
    wring_tensor *tensor;
    wring_request *request;
    wring_codec *codec;
    ok(wring_codec_create("ef+int8", &codec));
    void *data = block_open(NBYTES);
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    options.device = true;
    options.codec = codec;
    setenv("EMU_MEMORY", "100000", 1);
    refused(wring_tensor_create(world.comm[0], "large", WRING_FLOAT32, 1, &(size_t){1 << 20},
                                &options, &tensor),
            WRING_E_MEMORY, "bytes of device memory");
    for (int bits = 50; bits < 64; bits++) /* what its bytes are does not wrap round */
        refused(wring_tensor_create(world.comm[0], "large", WRING_FLOAT32, 1,
                                    &(size_t){(size_t)1 << bits}, &options, &tensor),
                WRING_E_MEMORY, "");
    setenv("EMU_MEMORY", "1", 1);
    refused(start(world.comm[0], NULL, data, data, there_stream, &request), WRING_E_MEMORY,
            "bytes of device memory");
    unsetenv("EMU_MEMORY");
    ok(wring_tensor_create(world.comm[0], "large", WRING_FLOAT32, 1, &(size_t){COUNT}, &options,
                           &tensor));
    wring_tensor_destroy(tensor);
    wring_request *both[2];
    void *more = block_open(NBYTES);
    ok(start(world.comm[0], NULL, data, data, there_stream, &both[0]));
    ok(start(world.comm[1], NULL, more, more, there_stream, &both[1]));
    ok(wring_request_wait(both[0], NULL));
    ok(wring_request_wait(both[1], NULL));
    block_close(more);
    block_close(data);
    wring_codec_destroy(codec);
    world_close(&world);
}

static void a_codec_without_a_cuda_half(void **state)
{
    (void)state;
    struct world world = world_open(1);
    wring_request *request;
    wring_codec *codec;
    void *data = block_open(NBYTES);
    ok(wring_codec_create("topk:0.1+int8", &codec));
    struct wring_codec_ops ops = *codec->stage[1].ops;
    ops.name = "brandnew";
    codec->stage[1].ops = &ops;
    wring_segment segment = {.send = data, .recv = data, .count = COUNT};
    wring_call call = WRING_CALL_INIT;
    call.segments = &segment;
    call.nsegments = 1;
    call.stream = there_stream;
    call.codec = codec;
    refused(wring_comm_start(world.comm[0], &call, &request), WRING_E_UNSUPPORTED,
            "codec stage brandnew has no CUDA half");
    wring_codec_destroy(codec);
    works(&world, data);
    block_close(data);
    world_close(&world);
}

static void transport_and_call_must_fit(void **state)
{
    (void)state;
    wring_context *context;
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    wring_comm_options comm_options = WRING_COMM_OPTIONS_INIT;
    wring_comm *comm;
    float host[COUNT] = {0};
    struct world world = world_open(1);
    comm_options.external = &world;
    refused(wring_comm_create(world.context, &comm_options, &comm), WRING_E_ARGUMENT,
            "transport self takes no communicator of the caller's");
    world_close(&world);
    options.transport = "nccl";
    setenv("WRING_RANK", "0", 1);
    setenv("WRING_SIZE", "1", 1);
    setenv("WRING_ROOT", "127.0.0.1:29999", 1);
    ok(wring_context_create(&options, &context));
    ok(wring_comm_create(context, NULL, &comm));
    refused(wring_allreduce(comm, host, host, COUNT, WRING_FLOAT32, WRING_SUM), WRING_E_ARGUMENT,
            "transport nccl moves device memory, and the call has no stream");
    ok(wring_barrier(comm));
    wring_comm_destroy(comm);
    refused(wring_comm_create_local(context, 2, NULL, &comm), WRING_E_UNSUPPORTED,
            "does not hold several ranks");
    wring_context_destroy(context);
}

/* ---- machines that lack something, as children ----------------------------------------------- */

static void device_tensor(wring_status expected, const char *words)
{
    struct world world = world_open(1);
    wring_tensor *tensor;
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    options.device = true;
    refused(wring_tensor_create(world.comm[0], "t", WRING_FLOAT32, 1, &(size_t){COUNT}, &options,
                                &tensor),
            expected, words);
    float host[COUNT] = {1};
    ok(wring_allreduce(world.comm[0], host, host, COUNT, WRING_FLOAT32, WRING_SUM));
    world_close(&world);
}

static void lacking(const char *variable, const char *value, const char *words)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv(variable, value, 1);
        device_tensor(WRING_E_MODULE, words);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void no_driver_an_old_driver_no_module(void)
{
    lacking("EMU_DRIVER", "missing", "this machine has no NVIDIA driver");
    lacking("EMU_DRIVER", "old", "the driver is for CUDA 11.4, this module was built with 13.0");
    lacking("WRING_MODULES", "/nowhere", "no module at /nowhere/libwring_cuda.so");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_the_other_kind),
        cmocka_unit_test(buffers_that_lie_badly),
        cmocka_unit_test(gradients_of_the_other_kind),
        cmocka_unit_test(arguments_that_are_always_host_memory),
        cmocka_unit_test(tensors_of_the_other_kind),
        cmocka_unit_test(another_device),
        cmocka_unit_test(no_stream_at_all),
        cmocka_unit_test(out_of_device_memory),
        cmocka_unit_test(a_codec_without_a_cuda_half),
        cmocka_unit_test(transport_and_call_must_fit),
    };
    if (!scene_emulated())
        return 77;
    no_driver_an_old_driver_no_module(); /* children first: a device has threads */
    ok(wri_device_find("cuda", getenv("WRING_MODULES"), &device));
    ok(device->stream_open(&there_stream));
    there = device;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device->stream_close(there_stream);
    return failed;
}
