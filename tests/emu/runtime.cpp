/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what is ordered after what: streams as queues with a thread each, events as counters; and
 * whose memory an address is. */
#include "emu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#define DEVICES_MAX 8

/* One record of an event: who waits for it waits for this one, whatever is recorded later. */
struct point {
    std::mutex lock;
    std::condition_variable changed;
    bool passed = false;
    double passed_s = 0;
};

struct emu_event {
    std::mutex lock;
    std::shared_ptr<point> last; /* empty: never recorded */
};

struct emu_stream {
    int device;
    bool blocking; /* keeps order with the legacy stream */
    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool busy = false, stop = false;
    std::thread worker;
};

struct memory {
    size_t nbytes;
    cudaMemoryType type;
    int device;
};

struct machine {
    std::mutex lock; /* of all below */
    std::map<uintptr_t, memory> blocks;
    size_t used[DEVICES_MAX] = {};
    std::vector<emu_stream *> streams;
    emu_stream *legacy[DEVICES_MAX] = {};
    std::atomic<int> sticky{cudaSuccess};
    std::atomic<uint64_t> launches{0};
};

/* Never destroyed: streams of a process that exits may still run. */
static machine &the()
{
    static machine *one = new machine;
    return *one;
}

static thread_local int current_device;
static thread_local cudaError_t last_error;
static thread_local emu_stream *per_thread[DEVICES_MAX];

static cudaError_t answer(cudaError_t error)
{
    if (error == cudaSuccess)
        error = (cudaError_t)the().sticky.load();
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

static size_t setting(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}

static int device_count()
{
    return (int)min(setting("EMU_DEVICES", 2), (size_t)DEVICES_MAX);
}

static cudaError_t driver()
{
    const char *state = getenv("EMU_DRIVER");
    if (state && strcmp(state, "missing") == 0)
        return cudaErrorNoDevice;
    if (state && strcmp(state, "old") == 0)
        return cudaErrorInsufficientDriver;
    return cudaSuccess;
}

/* ---- errors, devices ------------------------------------------------------------------------- */

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (auto &row : errors)
        if (row.error == error)
            return row.name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (auto &row : errors)
        if (row.error == error)
            return row.text;
    return "unknown error";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = driver() == cudaErrorInsufficientDriver ? 11040
               : driver() == cudaErrorNoDevice         ? 0
                                                       : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    if (driver() != cudaSuccess)
        return answer(driver());
    *count = device_count();
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return answer(driver());
}

cudaError_t cudaSetDevice(int device)
{
    if (driver() != cudaSuccess)
        return answer(driver());
    if (device < 0 || device >= device_count())
        return answer(cudaErrorInvalidDevice);
    current_device = device;
    return answer(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device)
{
    if (device < 0 || device >= device_count())
        return answer(cudaErrorInvalidDevice);
    *prop = {"emulated", setting("EMU_MEMORY", (size_t)1 << 34), 9, 0, 4};
    return cudaSuccess;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void work(emu_stream *stream)
{
    std::unique_lock<std::mutex> lock(stream->lock);
    current_device = stream->device;
    for (;;) {
        stream->changed.wait(lock, [&] { return stream->stop || !stream->queue.empty(); });
        if (stream->queue.empty())
            return;
        std::function<void()> next = std::move(stream->queue.front());
        stream->queue.pop_front();
        stream->busy = true;
        lock.unlock();
        next();
        lock.lock();
        stream->busy = false;
        stream->changed.notify_all();
    }
}

static emu_stream *stream_open(int device, bool blocking)
{
    emu_stream *stream = new emu_stream;
    stream->device = device;
    stream->blocking = blocking;
    stream->worker = std::thread(work, stream);
    std::lock_guard<std::mutex> lock(the().lock);
    the().streams.push_back(stream);
    return stream;
}

static void push(emu_stream *stream, std::function<void()> operation)
{
    std::lock_guard<std::mutex> lock(stream->lock);
    stream->queue.push_back(std::move(operation));
    stream->changed.notify_all();
}

static std::shared_ptr<point> push_point(emu_stream *stream)
{
    auto mark = std::make_shared<point>();
    push(stream, [mark] {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        std::lock_guard<std::mutex> lock(mark->lock);
        mark->passed = true;
        mark->passed_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        mark->changed.notify_all();
    });
    return mark;
}

static void wait_point(point &mark)
{
    std::unique_lock<std::mutex> lock(mark.lock);
    mark.changed.wait(lock, [&] { return mark.passed; });
}

static std::shared_ptr<point> last_point(emu_event *event)
{
    std::lock_guard<std::mutex> lock(event->lock);
    return event->last;
}

static void push_wait(emu_stream *stream, std::shared_ptr<point> mark)
{
    if (mark)
        push(stream, [mark] { wait_point(*mark); });
}

/* What a handle stands for, NULL if for nothing. */
static emu_stream *resolve(cudaStream_t handle)
{
    bool legacy = handle == nullptr || handle == cudaStreamLegacy;
    if (handle == cudaStreamPerThread) {
        emu_stream *&mine = per_thread[current_device];
        if (!mine)
            mine = stream_open(current_device, true);
        return mine;
    }
    if (legacy) {
        std::unique_lock<std::mutex> lock(the().lock);
        emu_stream *&one = the().legacy[current_device];
        if (!one) {
            lock.unlock();
            emu_stream *opened = stream_open(current_device, false);
            lock.lock();
            one = opened;
        }
        return one;
    }
    std::lock_guard<std::mutex> lock(the().lock);
    for (emu_stream *stream : the().streams)
        if (stream == handle)
            return stream;
    return nullptr;
}

static void order_after(emu_stream *later, emu_stream *earlier)
{
    push_wait(later, push_point(earlier));
}

/* Append an operation, in the order that the legacy stream keeps with blocking ones. */
static cudaError_t enqueue(cudaStream_t handle, std::function<void()> operation)
{
    emu_stream *stream = resolve(handle);
    if (!stream)
        return answer(cudaErrorInvalidResourceHandle);
    emu_stream *legacy;
    std::vector<emu_stream *> others;
    {
        std::lock_guard<std::mutex> lock(the().lock);
        legacy = the().legacy[stream->device];
        if (stream == legacy)
            for (emu_stream *other : the().streams)
                if (other->blocking && other->device == stream->device)
                    others.push_back(other);
    }
    for (emu_stream *other : others)
        order_after(stream, other);
    if (stream->blocking && legacy)
        order_after(stream, legacy);
    push(stream, std::move(operation));
    return answer(cudaSuccess);
}

static void drain(emu_stream *stream)
{
    std::unique_lock<std::mutex> lock(stream->lock);
    stream->changed.wait(lock, [&] { return stream->queue.empty() && !stream->busy; });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    if (driver() != cudaSuccess)
        return answer(driver());
    *stream = stream_open(current_device, !(flags & cudaStreamNonBlocking));
    return answer(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    emu_stream *stream = resolve(handle);
    if (!stream || handle == cudaStreamLegacy || handle == cudaStreamPerThread || !handle)
        return answer(cudaErrorInvalidResourceHandle);
    {
        std::lock_guard<std::mutex> lock(the().lock);
        for (size_t i = 0; i < the().streams.size(); i++)
            if (the().streams[i] == stream)
                the().streams.erase(the().streams.begin() + (long)i--);
    }
    {
        std::lock_guard<std::mutex> lock(stream->lock);
        stream->stop = true;
        stream->changed.notify_all();
    }
    stream->worker.join();
    delete stream;
    return answer(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    emu_stream *stream = resolve(handle);
    if (!stream)
        return answer(cudaErrorInvalidResourceHandle);
    drain(stream);
    return answer(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    emu_stream *stream = resolve(handle);
    if (!stream)
        return answer(cudaErrorInvalidResourceHandle);
    std::lock_guard<std::mutex> lock(stream->lock);
    return answer(stream->queue.empty() && !stream->busy ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device)
{
    emu_stream *stream = resolve(handle);
    if (!stream)
        return answer(cudaErrorInvalidResourceHandle);
    *device = stream->device;
    return answer(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    std::vector<emu_stream *> all;
    {
        std::lock_guard<std::mutex> lock(the().lock);
        for (emu_stream *stream : the().streams)
            if (stream->device == current_device)
                all.push_back(stream);
    }
    for (emu_stream *stream : all)
        drain(stream);
    return answer(driver());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
    return enqueue(stream, [function, arg] { function(arg); });
}

/* ---- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    if (driver() != cudaSuccess)
        return answer(driver());
    *event = new emu_event;
    return answer(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event; /* who waits for it has its point */
    return answer(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    emu_stream *stream = resolve(handle);
    if (!stream)
        return answer(cudaErrorInvalidResourceHandle);
    cudaError_t error = enqueue(handle, [] {});
    auto mark = push_point(stream);
    std::lock_guard<std::mutex> lock(event->lock);
    event->last = mark;
    return answer(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned)
{
    emu_stream *stream = resolve(handle);
    if (!stream)
        return answer(cudaErrorInvalidResourceHandle);
    push_wait(stream, last_point(event));
    return answer(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    auto mark = last_point(event);
    if (!mark)
        return answer(cudaSuccess);
    std::lock_guard<std::mutex> lock(mark->lock);
    return answer(mark->passed ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (auto mark = last_point(event))
        wait_point(*mark);
    return answer(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    auto first = last_point(from), second = last_point(to);
    if (!first || !second)
        return answer(cudaErrorInvalidResourceHandle);
    *milliseconds = (float)(1e3 * (second->passed_s - first->passed_s));
    return answer(cudaSuccess);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static cudaError_t block_open(void **block, size_t nbytes, cudaMemoryType type)
{
    if (driver() != cudaSuccess)
        return answer(driver());
    nbytes = nbytes ? nbytes : 1;
    std::lock_guard<std::mutex> lock(the().lock);
    size_t &used = the().used[current_device];
    if (type == cudaMemoryTypeDevice && used + nbytes > setting("EMU_MEMORY", (size_t)1 << 34))
        return answer(cudaErrorMemoryAllocation);
    void *memory_block = nullptr;
    /* The exact size, so that AddressSanitizer sees the first byte past it. */
    if (posix_memalign(&memory_block, 256, nbytes) != 0)
        return answer(cudaErrorMemoryAllocation);
    memset(memory_block, 0xA5, nbytes);
    used += type == cudaMemoryTypeDevice ? nbytes : 0;
    the().blocks[(uintptr_t)memory_block] = {nbytes, type, current_device};
    *block = memory_block;
    return answer(cudaSuccess);
}

static cudaError_t block_close(void *block)
{
    if (!block)
        return answer(cudaSuccess);
    {
        std::lock_guard<std::mutex> lock(the().lock);
        auto found = the().blocks.find((uintptr_t)block);
        if (found == the().blocks.end())
            return answer(cudaErrorInvalidValue);
        if (found->second.type == cudaMemoryTypeDevice)
            the().used[found->second.device] -= found->second.nbytes;
        the().blocks.erase(found);
    }
    free(block);
    return answer(cudaSuccess);
}

cudaError_t cudaMalloc(void **block, size_t nbytes)
{
    return block_open(block, nbytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFree(void *block)
{
    cudaDeviceSynchronize();
    return block_close(block);
}

/* The address is known at once; what was enqueued before may not use it, which nobody checks. */
cudaError_t cudaMallocAsync(void **block, size_t nbytes, cudaStream_t)
{
    return block_open(block, nbytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFreeAsync(void *block, cudaStream_t stream)
{
    return enqueue(stream, [block] { block_close(block); });
}

cudaError_t cudaHostAlloc(void **block, size_t nbytes, unsigned)
{
    return block_open(block, nbytes, cudaMemoryTypeHost);
}

cudaError_t cudaFreeHost(void *block)
{
    cudaDeviceSynchronize();
    return block_close(block);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    std::lock_guard<std::mutex> lock(the().lock);
    *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, (void *)pointer};
    auto after = the().blocks.upper_bound((uintptr_t)pointer);
    if (after == the().blocks.begin())
        return answer(cudaSuccess);
    auto found = --after;
    if ((uintptr_t)pointer - found->first < found->second.nbytes)
        *attributes = {found->second.type, found->second.device, (void *)pointer,
                       found->second.type == cudaMemoryTypeHost ? (void *)pointer : nullptr};
    return answer(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t nbytes, cudaMemcpyKind,
                            cudaStream_t stream)
{
    return enqueue(stream, [=] {
        if (nbytes > 0)
            memmove(dst, src, nbytes);
    });
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t nbytes, cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(dst, src, nbytes, kind, cudaStreamLegacy);
    return error != cudaSuccess ? error : cudaStreamSynchronize(cudaStreamLegacy);
}

cudaError_t cudaMemsetAsync(void *dst, int byte, size_t nbytes, cudaStream_t stream)
{
    return enqueue(stream, [=] {
        if (nbytes > 0)
            memset(dst, byte, nbytes);
    });
}

cudaError_t cudaMemset(void *dst, int byte, size_t nbytes)
{
    return cudaMemsetAsync(dst, byte, nbytes, cudaStreamLegacy);
}

/* ---- launch ---------------------------------------------------------------------------------- */

cudaError_t emu_launch(const cudaLaunchConfig_t *config, std::function<void()> thread)
{
    dim3 grid = config->gridDim, block = config->blockDim;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (threads == 0 || threads > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 ||
        config->dynamicSmemBytes > 48 << 10)
        return answer(cudaErrorInvalidConfiguration);
    emu_grid run = {grid, block, config->dynamicSmemBytes, std::move(thread)};
    uint64_t seed = setting("EMU_SEED", 1) + the().launches++;
    return enqueue(config->stream, [run, seed] {
        if (the().sticky.load() == cudaSuccess && !emu_run_grid(run, seed))
            the().sticky = cudaErrorLaunchFailure;
    });
}
