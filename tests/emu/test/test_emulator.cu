/* SPDX-License-Identifier: Apache-2.0 */
/* What the emulator promises: that broken kernels are caught, each in a child of its own, because a
 * failed launch or AddressSanitizer ends it; and that streams, events and memory keep CUDA's order. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

#include "kernels.cuh"

#define COUNT 200 /* three blocks and a part of one */
#define SEEDS 8

static void ok(cudaError_t error)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        _exit(10);
    }
}

template <typename... Expected, typename... Given>
static void launch(cudaStream_t stream, unsigned blocks, unsigned threads, size_t shared,
                   void (*kernel)(Expected...), Given... given)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    ok(cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(given)...));
}

/* ---- broken kernels -------------------------------------------------------------------------- */

/* In a child: 0 if the result is right, 1 if it is wrong, 2 if the launch failed. */
template <int FAULT> static int run_reverse()
{
    float host[COUNT], *src, *dst;
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(i + 1);
    ok(cudaMalloc(&src, sizeof(host)));
    ok(cudaMalloc(&dst, sizeof(host)));
    ok(cudaMemcpy(src, host, sizeof(host), cudaMemcpyHostToDevice));
    launch(cudaStreamLegacy, (COUNT + THREADS - 1) / THREADS, THREADS, 0, reverse<FAULT>, src, dst,
           COUNT);
    if (cudaStreamSynchronize(cudaStreamLegacy) != cudaSuccess)
        return 2;
    ok(cudaMemcpy(host, dst, sizeof(host), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) {
        int first = i / THREADS * THREADS, n = COUNT - first < THREADS ? COUNT - first : THREADS;
        if (host[i] != (float)(first + n - (i - first)))
            return 1;
    }
    return 0;
}

/* How often over seeds a child ended other than with 0. */
static int caught(int (*act)())
{
    int failures = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            char text[16];
            snprintf(text, sizeof(text), "%d", seed);
            setenv("EMU_SEED", text, 1);
            if (freopen("/dev/null", "w", stderr) == NULL)
                _exit(11);
            _exit(act());
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        failures += status != 0;
    }
    return failures;
}

static void right_kernels_pass(void **)
{
    assert_int_equal(caught(run_reverse<RIGHT>), 0);
}

/* Halves of a warp on ways of their own, lanes that go ahead of others, then all together. */
__global__ void halves(uint32_t *out)
{
    unsigned t = threadIdx.x, lane = t % 32, half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    uint32_t sum = t, wanted = lane < 16 ? (t ^ 1) + 3 : t + 10;
    for (int i = 0; i < (lane < 16 ? 3 : 10); i++)
        sum = __shfl_xor_sync(half, sum, 1) + 1;
    for (int i = 0; i < 5 && lane == 4; i++)
        sum += __ballot_sync(1u << 4, 1) - 16;
    unsigned odd = __ballot_sync(0xffffffffu, lane & 1);
    bool good = sum == wanted && odd == 0xAAAAAAAAu && __ballot_sync(half, 1) == half;
    atomicAdd(out, good ? 1u : 0u);
}

static int run_halves()
{
    uint32_t *out, good = 0;
    ok(cudaMalloc(&out, sizeof(good)));
    ok(cudaMemset(out, 0, sizeof(good)));
    launch(cudaStreamLegacy, 3, 64, 0, halves, out);
    if (cudaStreamSynchronize(cudaStreamLegacy) != cudaSuccess)
        return 2;
    ok(cudaMemcpy(&good, out, sizeof(good), cudaMemcpyDeviceToHost));
    return good != 3 * 64;
}

static void parts_of_a_warp_meet_by_themselves(void **)
{
    assert_int_equal(caught(run_halves), 0);
}

static void a_missing_barrier_shows(void **)
{
    assert_true(caught(run_reverse<MISSING_BARRIER>) > 0);
}

static void an_uninitialised_shared_value_shows(void **)
{
    assert_int_equal(caught(run_reverse<UNINITIALISED>), SEEDS);
}

static void a_barrier_that_not_all_reach_fails_the_launch(void **)
{
    assert_int_equal(caught(run_reverse<DIVERGENT_BARRIER>), SEEDS);
    assert_int_equal(caught(run_reverse<DIVERGENT_COLLECTIVE>), SEEDS);
    assert_int_equal(caught(run_reverse<DIVERGENT_MASKS>), SEEDS);
}

static void accesses_past_the_end_are_caught(void **)
{
#if defined(__SANITIZE_ADDRESS__)
    assert_int_equal(caught(run_reverse<WRONG_TAIL>), SEEDS);
    assert_int_equal(caught(run_reverse<SHARED_TAIL>), SEEDS);
#else
    printf("needs AddressSanitizer: preset emulated-asan\n");
    skip();
#endif
}

/* ---- memory that is freed wrongly ------------------------------------------------------------ */

enum { FREED_ONCE, FREED_TWICE, FREED_TWICE_LATER, FREED_AS_PINNED, LEAKED };

template <int FAULT> static int run_free()
{
    void *block;
    setenv("EMU_STRICT", "1", 1);
    ok(cudaMalloc(&block, 100));
    if (FAULT == FREED_AS_PINNED)
        ok(cudaFreeHost(block));
    if (FAULT != LEAKED)
        ok(cudaFreeAsync(block, cudaStreamLegacy));
    if (FAULT == FREED_TWICE)
        ok(cudaFree(block));
    if (FAULT == FREED_TWICE_LATER)
        ok(cudaFreeAsync(block, cudaStreamLegacy));
    exit(0);
}

static void wrong_frees_and_leaks_show(void **)
{
    assert_int_equal(caught(run_free<FREED_ONCE>), 0);
    assert_int_equal(caught(run_free<FREED_TWICE>), SEEDS);
    assert_int_equal(caught(run_free<FREED_TWICE_LATER>), SEEDS);
    assert_int_equal(caught(run_free<FREED_AS_PINNED>), SEEDS);
    assert_int_equal(caught(run_free<LEAKED>), SEEDS);
}

/* ---- device language ------------------------------------------------------------------------- */

__global__ void collectives(uint32_t *out)
{
    uint32_t lane = threadIdx.x % 32, sum = threadIdx.x;
    for (int with = 16; with > 0; with /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, with);
    uint32_t up = __shfl_up_sync(0xffffffffu, lane, 3),
             down = __shfl_down_sync(0xffffffffu, lane, 3);
    uint32_t odd = __ballot_sync(0xffffffffu, lane & 1);
    int many = __syncthreads_count(threadIdx.x < 40);
    bool good = sum == (threadIdx.x / 32 * 32) * 32 + 496 && up == (lane < 3 ? lane : lane - 3) &&
                down == (lane > 28 ? lane : lane + 3) && odd == 0xAAAAAAAAu && many == 40;
    good = good && __shfl_sync(0xffffffffu, lane, 7) == 7 && __any_sync(0xffffffffu, lane == 9);
    atomicAdd(&out[0], good ? 1u : 0u);
    atomicMax(&out[1], threadIdx.x);
}

__global__ void dynamic_shared(int *out)
{
    WRI_SHARED_DYNAMIC(int, words);
    words[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
}

static void warps_and_blocks(void **)
{
    uint32_t *out, host[2] = {0, 0};
    int *reversed, there[64];
    ok(cudaMalloc(&out, sizeof(host)));
    ok(cudaMemset(out, 0, sizeof(host)));
    launch(cudaStreamLegacy, 3, 64, 0, collectives, out);
    ok(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
    assert_int_equal(host[0], 3 * 64);
    assert_int_equal(host[1], 63);
    ok(cudaMalloc(&reversed, sizeof(there)));
    launch(cudaStreamLegacy, 1, 64, sizeof(there), dynamic_shared, reversed);
    ok(cudaMemcpy(there, reversed, sizeof(there), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++)
        assert_int_equal(there[i], 63 - i);
    ok(cudaFree(out));
    ok(cudaFree(reversed));
}

/* ---- streams, events, memory ----------------------------------------------------------------- */

static void sleep_a_little(void *)
{
    usleep(20000);
}

__global__ void store(int *at, int value)
{
    *at = value;
}

static int value_of(const int *there)
{
    int value = -1;
    ok(cudaMemcpy(&value, there, sizeof(value), cudaMemcpyDeviceToHost));
    return value;
}

/* A wait is for what was recorded when it was enqueued, not for what is recorded later elsewhere. */
static void events_order_streams(void **)
{
    cudaStream_t slow, other, waits;
    cudaEvent_t event;
    int *at;
    ok(cudaMalloc(&at, sizeof(int)));
    ok(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&waits, cudaStreamNonBlocking));
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ok(cudaLaunchHostFunc(slow, sleep_a_little, NULL));
    launch(slow, 1, 1, 0, store, at, 1);
    ok(cudaEventRecord(event, slow));
    assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    ok(cudaStreamWaitEvent(waits, event, 0));
    ok(cudaEventRecord(event, other));
    launch(waits, 1, 1, 0, store, at, 2);
    ok(cudaStreamSynchronize(waits));
    ok(cudaStreamSynchronize(slow));
    assert_int_equal(value_of(at), 2);
    ok(cudaEventSynchronize(event));
    ok(cudaStreamDestroy(slow));
    ok(cudaStreamDestroy(other));
    ok(cudaStreamDestroy(waits));
    ok(cudaEventDestroy(event));
    ok(cudaFree(at));
}

static void the_legacy_stream_keeps_order_with_blocking_ones(void **)
{
    cudaStream_t blocking;
    int *at;
    ok(cudaMalloc(&at, sizeof(int)));
    ok(cudaStreamCreate(&blocking));
    ok(cudaLaunchHostFunc(blocking, sleep_a_little, NULL));
    launch(blocking, 1, 1, 0, store, at, 1);
    launch(cudaStreamLegacy, 1, 1, 0, store, at, 2);
    launch(blocking, 1, 1, 0, store, at, 3);
    ok(cudaStreamSynchronize(blocking));
    assert_int_equal(value_of(at), 3);
    ok(cudaStreamDestroy(blocking));
    ok(cudaFree(at));
}

/* Each a thread's own stream, while others synchronize the device and use the legacy stream. */
static void *open_use_close(void *at)
{
    for (int i = 0; i < 200; i++) {
        cudaStream_t stream;
        ok(cudaStreamCreate(&stream));
        launch(stream, 1, 1, 0, store, (int *)at, i);
        ok(cudaMemsetAsync(at, 0, sizeof(int), cudaStreamLegacy));
        ok(i % 3 ? cudaSuccess : cudaDeviceSynchronize());
        ok(cudaStreamDestroy(stream));
    }
    return NULL;
}

static void streams_come_and_go(void **)
{
    pthread_t threads[4];
    int *at[4];
    for (int i = 0; i < 4; i++) {
        ok(cudaMalloc(&at[i], sizeof(int)));
        assert_int_equal(pthread_create(&threads[i], NULL, open_use_close, at[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        ok(cudaFree(at[i]));
    }
}

static void memory_has_an_owner_and_an_end(void **)
{
    cudaPointerAttributes attributes;
    char *there, *pinned, here;
    ok(cudaMalloc(&there, 100));
    ok(cudaHostAlloc(&pinned, 100, cudaHostAllocDefault));
    ok(cudaPointerGetAttributes(&attributes, there + 99));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    ok(cudaPointerGetAttributes(&attributes, pinned));
    assert_int_equal(attributes.type, cudaMemoryTypeHost);
    ok(cudaPointerGetAttributes(&attributes, &here));
    assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
    setenv("EMU_STRICT", "0", 1);
    assert_int_equal(cudaFree(there + 1), cudaErrorInvalidValue);
    setenv("EMU_STRICT", "1", 1);
    setenv("EMU_MEMORY", "1000", 1);
    char *large = NULL;
    assert_int_equal(cudaMalloc(&large, 2000), cudaErrorMemoryAllocation);
    unsetenv("EMU_MEMORY");
    ok(cudaFree(there));
    ok(cudaFreeHost(pinned));
}

static void bad_launches_are_refused(void **)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(1025);
    assert_int_equal(cudaLaunchKernelEx(&config, store, nullptr, 0), cudaErrorInvalidConfiguration);
    config.blockDim = dim3(1);
    config.gridDim = dim3(0);
    assert_int_equal(cudaLaunchKernelEx(&config, store, nullptr, 0), cudaErrorInvalidConfiguration);
    int other = 0;
    config.gridDim = dim3(1);
    config.stream = (cudaStream_t)&other;
    assert_int_equal(cudaLaunchKernelEx(&config, store, nullptr, 0),
                     cudaErrorInvalidResourceHandle);
    setenv("EMU_DRIVER", "old", 1);
    assert_int_equal(cudaGetDeviceCount(&other), cudaErrorInsufficientDriver);
    setenv("EMU_DRIVER", "missing", 1);
    assert_int_equal(cudaGetDeviceCount(&other), cudaErrorNoDevice);
    unsetenv("EMU_DRIVER");
}

/* Copies, waits and host functions may be given a stream of any device; kernels and records not. */
static void streams_belong_to_a_device(void **)
{
    cudaStream_t stream;
    cudaEvent_t here, there;
    int *at, value = 1;
    ok(cudaMalloc(&at, sizeof(int)));
    ok(cudaEventCreate(&here));
    ok(cudaSetDevice(1));
    ok(cudaEventCreate(&there));
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ok(cudaSetDevice(0));
    cudaLaunchConfig_t config = {};
    config.stream = stream;
    assert_int_equal(cudaLaunchKernelEx(&config, store, at, 2), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventRecord(here, stream), cudaErrorInvalidResourceHandle);
    ok(cudaEventRecord(there, stream));
    ok(cudaEventRecord(here, cudaStreamLegacy));
    ok(cudaStreamWaitEvent(stream, here, 0));
    ok(cudaLaunchHostFunc(stream, sleep_a_little, NULL));
    ok(cudaMemcpyAsync(at, &value, sizeof(value), cudaMemcpyDefault, stream));
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(value_of(at), 1);
    ok(cudaStreamDestroy(stream));
    ok(cudaEventDestroy(here));
    ok(cudaEventDestroy(there));
    ok(cudaFree(at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_pass), /* children first: a device has threads */
        cmocka_unit_test(parts_of_a_warp_meet_by_themselves),
        cmocka_unit_test(a_missing_barrier_shows),
        cmocka_unit_test(an_uninitialised_shared_value_shows),
        cmocka_unit_test(a_barrier_that_not_all_reach_fails_the_launch),
        cmocka_unit_test(accesses_past_the_end_are_caught),
        cmocka_unit_test(wrong_frees_and_leaks_show),
        cmocka_unit_test(warps_and_blocks),
        cmocka_unit_test(events_order_streams),
        cmocka_unit_test(the_legacy_stream_keeps_order_with_blocking_ones),
        cmocka_unit_test(streams_come_and_go),
        cmocka_unit_test(memory_has_an_owner_and_an_end),
        cmocka_unit_test(bad_launches_are_refused),
        cmocka_unit_test(streams_belong_to_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
