/* SPDX-License-Identifier: Apache-2.0 */
/* A context's device and a communicator's streams on it: opened at first use, so that a program
 * without device memory never loads anything. */
#include "collective/comm.h"

#include "base/clock.h"
#include "base/status.h"

#include <dlfcn.h>
#include <time.h>

wring_status wri_context_device(wring_context *context)
{
    const struct wri_device *device;
    int count = 0, index = 0;
    if (context->device != NULL)
        return WRING_OK;
    WRI_TRY(wri_device_find("cuda", context->config.modules, &device));
    WRI_TRY(device->count(&count));
    WRI_TRY(device->current(&index));
    context->device_index = index;
    context->device = device;
    return WRING_OK;
}

int wri_context_enter(wring_context *context)
{
    int was = context->device_index;
    if (context->device != NULL && context->device->current(&was) == WRING_OK &&
        was != context->device_index)
        context->device->select(context->device_index);
    return was;
}

void wri_context_leave(wring_context *context, int was)
{
    if (context->device != NULL && was != context->device_index)
        context->device->select(was);
}

static void wake(void *context_arg)
{
    wring_context *context = context_arg;
    context->transport->wake(context->link);
}

wring_status wri_context_wake_after(wring_context *context, void *stream)
{
    if (context->transport->wake == NULL)
        return WRING_OK;
    return context->device->call_back(stream, wake, context);
}

/* Device memory can only be where the driver is loaded. Asked anew until it is. */
static bool may_have_device_memory(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == NULL)
        driver = dlopen("libemucuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (driver != NULL)
        dlclose(driver);
    return driver != NULL;
}

wring_status wri_context_check_memory(wring_context *context, const void *pointer, bool device)
{
    int owner = -1;
    if (!device && context->device == NULL &&
        (!may_have_device_memory() || wri_context_device(context) != WRING_OK))
        return WRING_OK;
    WRI_TRY(context->device->owner(pointer, &owner));
    if (!device && owner >= 0)
        WRI_FAIL(WRING_E_ARGUMENT,
                 "%p is memory of device %d, and the call has no stream: set wring_call.stream",
                 pointer, owner);
    if (device && owner < 0)
        WRI_FAIL(WRING_E_ARGUMENT,
                 "%p is host memory, and the call has a stream: leave it NULL, or copy the data to "
                 "the device",
                 pointer);
    if (device && owner != context->device_index)
        WRI_FAIL(WRING_E_ARGUMENT, "%p is memory of device %d, the context works on device %d",
                 pointer, owner, context->device_index);
    return WRING_OK;
}

static wring_status open_streams(wring_comm *comm)
{
    struct wri_lane *lane = &comm->lane;
    size_t n = (size_t)comm->context->config.window;
    WRI_TRY(wri_alloc(n, sizeof(void *), (void **)&lane->piece_stream));
    WRI_TRY(lane->device->stream_open(&lane->stream));
    WRI_TRY(lane->device->event_open(lane->device, &lane->order));
    WRI_TRY(lane->device->alloc_pinned(sizeof(*lane->failed), (void **)&lane->failed));
    *lane->failed = 0;
    WRI_TRY(lane->device->alloc(lane->device, lane->stream, sizeof(*lane->clean),
                                (void **)&lane->clean));
    WRI_TRY(lane->device->zero(lane->stream, lane->clean, sizeof(*lane->clean)));
    for (size_t i = 0; i < n; i++)
        WRI_TRY(lane->device->stream_open(&lane->piece_stream[i]));
    return WRING_OK;
}

static void close_streams(wring_comm *comm)
{
    struct wri_lane *lane = &comm->lane;
    size_t n = (size_t)comm->context->config.window;
    for (size_t i = 0; lane->piece_stream != NULL && i < n; i++)
        lane->device->stream_close(lane->piece_stream[i]);
    lane->device->event_close(lane->device, lane->order);
    lane->device->free(lane->device, lane->stream, lane->clean);
    lane->device->stream_close(lane->stream);
    lane->device->free_pinned(lane->failed);
    wri_free(lane->piece_stream);
    *lane = (struct wri_lane){0};
}

wring_status wri_lane_open(wring_comm *comm)
{
    wring_context *context = comm->context;
    if (comm->lane.device != NULL)
        return WRING_OK;
    WRI_TRY(wri_context_device(context));
    int was = wri_context_enter(context);
    comm->lane.device = context->device;
    wring_status status = open_streams(comm);
    if (status != WRING_OK)
        close_streams(comm);
    wri_context_leave(context, was);
    return status;
}

/* Asked for again and again instead of waited for: what holds a stream up may never end. */
static bool is_through(const struct wri_lane *lane, void *stream, int64_t end_ns)
{
    static const struct timespec nap = {0, 100000};
    wring_status status = lane->device->event_record(lane->device, lane->order, stream);
    while (status == WRING_OK) {
        status = lane->device->event_test(lane->device, lane->order);
        if (status != WRING_AGAIN)
            break; /* also after an error of the device: nothing runs there any more */
        if (wri_clock_ns() > end_ns)
            return false;
        nanosleep(&nap, NULL);
        status = WRING_OK;
    }
    return true;
}

bool wri_lane_is_quiet(wring_comm *comm)
{
    const struct wri_lane *lane = &comm->lane;
    size_t n = (size_t)comm->context->config.window;
    int64_t end_ns = wri_clock_ns() + WRI_QUIET_NS;
    bool quiet = true;
    if (lane->device == NULL)
        return true;
    int was = wri_context_enter(comm->context);
    for (size_t i = 0; quiet && i < n; i++)
        quiet = is_through(lane, lane->piece_stream[i], end_ns);
    quiet = quiet && is_through(lane, lane->stream, end_ns);
    wri_context_leave(comm->context, was);
    return quiet;
}

void wri_lane_close(wring_comm *comm)
{
    if (comm->lane.device == NULL)
        return;
    int was = wri_context_enter(comm->context);
    close_streams(comm);
    wri_context_leave(comm->context, was);
}

wring_status wri_buffers_open(wring_comm *comm, enum wri_memory kind, struct wri_arena *arena)
{
    const struct wri_device *device = comm->lane.device;
    void *block = NULL;
    if (kind == WRI_MEMORY_HOST)
        return wri_arena_open(arena);
    if (arena->overflow)
        WRI_FAIL(WRING_E_MEMORY, "the buffers of the call are larger than memory has addresses");
    if (arena->used == 0)
        return WRING_OK;
    if (kind == WRI_MEMORY_PINNED)
        WRI_TRY(device->alloc_pinned(arena->used, &block));
    else
        WRI_TRY(device->alloc(device, comm->lane.stream, arena->used, &block));
    *arena = (struct wri_arena){.base = block, .capacity = arena->used};
    return WRING_OK;
}

void wri_buffers_close(wring_comm *comm, enum wri_memory kind, struct wri_arena *arena)
{
    const struct wri_device *device = comm->lane.device;
    if (kind == WRI_MEMORY_PINNED && arena->base != NULL)
        device->free_pinned(arena->base);
    else if (kind == WRI_MEMORY_DEVICE && arena->base != NULL)
        device->free(device, comm->lane.stream, arena->base);
    else
        wri_arena_close(arena);
    *arena = (struct wri_arena){0};
}

wring_status wri_lane_buffers(wring_comm *comm, struct wri_arena *arena)
{
    pthread_mutex_lock(&comm->context->lock);
    wring_status status = wri_lane_open(comm);
    int was = wri_context_enter(comm->context);
    if (status == WRING_OK)
        status = wri_buffers_open(comm, WRI_MEMORY_DEVICE, arena);
    if (status == WRING_OK)
        status = comm->lane.device->stream_wait(comm->lane.stream); /* others will use it */
    wri_context_leave(comm->context, was);
    pthread_mutex_unlock(&comm->context->lock);
    return status;
}

void wri_lane_buffers_close(wring_comm *comm, struct wri_arena *arena, void *stream)
{
    const struct wri_lane *lane = &comm->lane;
    pthread_mutex_lock(&comm->context->lock);
    int was = wri_context_enter(comm->context);
    lane->device->free(lane->device, stream, arena->base);
    *arena = (struct wri_arena){0};
    wri_context_leave(comm->context, was);
    pthread_mutex_unlock(&comm->context->lock);
}

wring_status wri_lane_order(wring_comm *comm, void *first, void *then)
{
    const struct wri_lane *lane = &comm->lane;
    WRI_TRY(lane->device->event_record(lane->device, lane->order, first));
    return lane->device->event_wait(lane->device, lane->order, then);
}

wring_status wri_lane_copy(wring_comm *comm, void *dst, const void *src, size_t nbytes)
{
    const struct wri_lane *lane = &comm->lane;
    WRI_TRY(lane->device->copy(lane->device, lane->stream, dst, src, nbytes));
    return lane->device->stream_wait(lane->stream);
}
