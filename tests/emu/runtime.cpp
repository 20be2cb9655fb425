/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what is ordered after what: streams as queues with a thread each, events as points in them;
 * and what a device answers. */
#include "emu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

/* One record of an event: who waits for it waits for this one, whatever is recorded later. */
struct point {
    std::mutex lock;
    std::condition_variable changed;
    bool passed = false;
    double passed_s = 0;
};

struct emu_event {
    int device;
    std::mutex lock;
    std::shared_ptr<point> last; /* empty: never recorded */
};

struct emu_stream {
    int device;
    bool blocking; /* keeps order with the legacy stream */
    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool busy = false, stop = false, ended = false;
    std::thread worker;
};

/* Who works with a stream shares it, so that another thread may destroy it meanwhile. */
using stream_ref = std::shared_ptr<emu_stream>;

struct machine {
    std::mutex lock; /* of all below */
    std::vector<stream_ref> streams;
    stream_ref legacy[DEVICES_MAX] = {};
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
static thread_local stream_ref per_thread[DEVICES_MAX];

cudaError_t emu_answer(cudaError_t error)
{
    if (error == cudaSuccess)
        error = (cudaError_t)the().sticky.load();
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

int emu_device()
{
    return current_device;
}

size_t emu_setting(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}

static int device_count()
{
    return (int)min(emu_setting("EMU_DEVICES", 2), (size_t)DEVICES_MAX);
}

cudaError_t emu_driver()
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
    *version = emu_driver() == cudaErrorInsufficientDriver ? 11040
               : emu_driver() == cudaErrorNoDevice         ? 0
                                                           : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    if (emu_driver() != cudaSuccess)
        return emu_answer(emu_driver());
    *count = device_count();
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return emu_answer(emu_driver());
}

cudaError_t cudaSetDevice(int device)
{
    if (emu_driver() != cudaSuccess)
        return emu_answer(emu_driver());
    if (device < 0 || device >= device_count())
        return emu_answer(cudaErrorInvalidDevice);
    current_device = device;
    return emu_answer(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device)
{
    if (device < 0 || device >= device_count())
        return emu_answer(cudaErrorInvalidDevice);
    *prop = {"emulated", emu_setting("EMU_MEMORY", (size_t)1 << 34), 9, 0, 4};
    return cudaSuccess;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void work(emu_stream *stream)
{
    std::unique_lock<std::mutex> lock(stream->lock);
    current_device = stream->device;
    for (;;) {
        stream->changed.wait(lock, [&] { return stream->stop || !stream->queue.empty(); });
        if (stream->queue.empty()) {
            stream->ended = true;
            return;
        }
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

static stream_ref stream_open(int device, bool blocking)
{
    auto stream = std::make_shared<emu_stream>();
    stream->device = device;
    stream->blocking = blocking;
    stream->worker = std::thread(work, stream.get());
    return stream;
}

/* False if the stream has ended: then there is nothing on it to wait for. */
static bool push(emu_stream &stream, std::function<void()> operation)
{
    std::lock_guard<std::mutex> lock(stream.lock);
    if (stream.ended)
        return false;
    stream.queue.push_back(std::move(operation));
    stream.changed.notify_all();
    return true;
}

static std::shared_ptr<point> push_point(emu_stream &stream)
{
    auto mark = std::make_shared<point>();
    bool comes = push(stream, [mark] {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        std::lock_guard<std::mutex> lock(mark->lock);
        mark->passed = true;
        mark->passed_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        mark->changed.notify_all();
    });
    return comes ? mark : nullptr;
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

static void push_wait(emu_stream &stream, std::shared_ptr<point> mark)
{
    if (mark)
        push(stream, [mark] { wait_point(*mark); });
}

/* What a handle stands for, NULL if for nothing. */
static stream_ref resolve(cudaStream_t handle)
{
    std::lock_guard<std::mutex> lock(the().lock);
    bool legacy = handle == nullptr || handle == cudaStreamLegacy;
    if (legacy || handle == cudaStreamPerThread) {
        stream_ref &one = legacy ? the().legacy[current_device] : per_thread[current_device];
        if (!one)
            the().streams.push_back(one = stream_open(current_device, !legacy));
        return one;
    }
    for (const stream_ref &stream : the().streams)
        if (stream.get() == handle)
            return stream;
    return nullptr;
}

static void order_after(emu_stream &later, emu_stream &earlier)
{
    push_wait(later, push_point(earlier));
}

cudaError_t emu_enqueue(cudaStream_t handle, std::function<void()> operation)
{
    stream_ref stream = resolve(handle);
    if (!stream)
        return emu_answer(cudaErrorInvalidResourceHandle);
    std::vector<stream_ref> earlier;
    {
        std::lock_guard<std::mutex> lock(the().lock);
        stream_ref legacy = the().legacy[stream->device];
        if (stream->blocking && legacy)
            earlier.push_back(legacy);
        for (const stream_ref &other : the().streams)
            if (stream == legacy && other->blocking && other->device == stream->device)
                earlier.push_back(other);
    }
    for (const stream_ref &other : earlier)
        order_after(*stream, *other);
    bool taken = push(*stream, std::move(operation));
    return emu_answer(taken ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

static void drain(emu_stream &stream)
{
    std::unique_lock<std::mutex> lock(stream.lock);
    stream.changed.wait(lock, [&] { return stream.queue.empty() && !stream.busy; });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    if (emu_driver() != cudaSuccess)
        return emu_answer(emu_driver());
    stream_ref opened = stream_open(current_device, !(flags & cudaStreamNonBlocking));
    std::lock_guard<std::mutex> lock(the().lock);
    the().streams.push_back(opened);
    *stream = opened.get();
    return emu_answer(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
        return emu_answer(cudaErrorInvalidResourceHandle);
    stream_ref stream;
    {
        std::lock_guard<std::mutex> lock(the().lock);
        for (size_t i = 0; i < the().streams.size() && !stream; i++)
            if (the().streams[i].get() == handle) {
                stream = the().streams[i];
                the().streams.erase(the().streams.begin() + (long)i);
            }
    }
    if (!stream)
        return emu_answer(cudaErrorInvalidResourceHandle);
    {
        std::lock_guard<std::mutex> lock(stream->lock);
        stream->stop = true;
        stream->changed.notify_all();
    }
    stream->worker.join();
    return emu_answer(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    stream_ref stream = resolve(handle);
    if (!stream)
        return emu_answer(cudaErrorInvalidResourceHandle);
    drain(*stream);
    return emu_answer(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    stream_ref stream = resolve(handle);
    if (!stream)
        return emu_answer(cudaErrorInvalidResourceHandle);
    std::lock_guard<std::mutex> lock(stream->lock);
    return emu_answer(stream->queue.empty() && !stream->busy ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device)
{
    stream_ref stream = resolve(handle);
    if (!stream)
        return emu_answer(cudaErrorInvalidResourceHandle);
    *device = stream->device;
    return emu_answer(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    std::vector<stream_ref> all;
    {
        std::lock_guard<std::mutex> lock(the().lock);
        for (const stream_ref &stream : the().streams)
            if (stream->device == current_device)
                all.push_back(stream);
    }
    for (const stream_ref &stream : all)
        drain(*stream);
    return emu_answer(emu_driver());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
    return emu_enqueue(stream, [function, arg] { function(arg); });
}

/* ---- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    if (emu_driver() != cudaSuccess)
        return emu_answer(emu_driver());
    *event = new emu_event;
    (*event)->device = current_device;
    return emu_answer(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event; /* who waits for it has its point */
    return emu_answer(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    stream_ref stream = resolve(handle);
    if (!stream || stream->device != event->device)
        return emu_answer(cudaErrorInvalidResourceHandle);
    cudaError_t error = emu_enqueue(handle, [] {});
    auto mark = push_point(*stream);
    std::lock_guard<std::mutex> lock(event->lock);
    event->last = mark;
    return emu_answer(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned)
{
    stream_ref stream = resolve(handle);
    if (!stream)
        return emu_answer(cudaErrorInvalidResourceHandle);
    push_wait(*stream, last_point(event));
    return emu_answer(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    auto mark = last_point(event);
    if (!mark)
        return emu_answer(cudaSuccess);
    std::lock_guard<std::mutex> lock(mark->lock);
    return emu_answer(mark->passed ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (auto mark = last_point(event))
        wait_point(*mark);
    return emu_answer(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    auto first = last_point(from), second = last_point(to);
    if (!first || !second || from->device != to->device)
        return emu_answer(cudaErrorInvalidResourceHandle);
    *milliseconds = (float)(1e3 * (second->passed_s - first->passed_s));
    return emu_answer(cudaSuccess);
}

/* ---- launch ---------------------------------------------------------------------------------- */

cudaError_t emu_launch(const cudaLaunchConfig_t *config, std::function<void()> thread)
{
    dim3 grid = config->gridDim, block = config->blockDim;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (threads == 0 || threads > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 ||
        config->dynamicSmemBytes > 48 << 10)
        return emu_answer(cudaErrorInvalidConfiguration);
    stream_ref stream = resolve(config->stream);
    if (!stream || stream->device != current_device)
        return emu_answer(cudaErrorInvalidResourceHandle);
    emu_grid run = {grid, block, config->dynamicSmemBytes, std::move(thread)};
    uint64_t seed = emu_setting("EMU_SEED", 1) + the().launches++;
    return emu_enqueue(config->stream, [run, seed] {
        if (the().sticky.load() == cudaSuccess && !emu_run_grid(run, seed))
            the().sticky = cudaErrorLaunchFailure;
    });
}
