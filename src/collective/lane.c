/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's streams on its context's device: opened at first use. */
#include "base/clock.h"
#include "base/status.h"
#include "collective/exec.h"

#include <time.h>

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
        status = wri_lane_settle(comm);
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

/* Some thread is enqueueing a call, and left the lock to others for a moment. */
static bool is_starting(const wring_comm *comm)
{
    const wring_request *request = comm->context->active;
    while (request != NULL && !(request->comm == comm && request->starting))
        request = request->next;
    return request != NULL;
}

/* Until EVENT passes; never inside the device, which may wait for a rank that is gone. */
static wring_status await(wring_comm *comm, void *event, int64_t end_ns)
{
    const struct wri_lane *lane = &comm->lane;
    wring_status status = lane->device->event_record(lane->device, event, lane->stream);
    while (status == WRING_OK) {
        status = lane->device->event_test(lane->device, event);
        if (status != WRING_AGAIN)
            break;
        int64_t now_ns = wri_clock_ns();
        if (wri_alarm_status(&comm->alarm) != WRING_OK && end_ns > now_ns + WRI_QUIET_NS)
            end_ns = now_ns + WRI_QUIET_NS;
        if (now_ns > end_ns)
            WRI_FAIL(WRING_E_TIMEOUT,
                     "what is on the communicator's stream does not end: a stream of the caller's "
                     "holds it up, or an ncclComm_t of his that has failed and was not aborted");
        wri_context_poll(comm->context); /* a call that fails frees the stream */
        wri_context_yield(comm->context);
        status = WRING_OK;
    }
    return status;
}

static wring_status settle(wring_comm *comm, void *event)
{
    int64_t end_ns = wri_clock_ns() + comm->context->config.timeout_ms * NS_PER_MS + WRI_QUIET_NS;
    for (;;) {
        bool starting = is_starting(comm);
        uint64_t operation = comm->operation;
        wring_status status = await(comm, event, end_ns);
        if (status != WRING_OK || (!starting && operation == comm->operation))
            return status;
        wri_context_yield(comm->context);
    }
}

wring_status wri_lane_settle(wring_comm *comm)
{
    const struct wri_device *device = comm->lane.device;
    void *event;
    if (device == NULL)
        return WRING_OK;
    int was = wri_context_enter(comm->context);
    wring_status status = device->event_open(device, &event);
    if (status == WRING_OK) {
        status = settle(comm, event);
        device->event_close(device, event);
    }
    wri_context_leave(comm->context, was);
    return status;
}

wring_status wri_lane_copy(wring_comm *comm, void *dst, const void *src, size_t nbytes)
{
    const struct wri_lane *lane = &comm->lane;
    WRI_TRY(lane->device->copy(lane->device, lane->stream, dst, src, nbytes));
    return lane->device->stream_wait(lane->stream);
}

wring_status wri_lane_move(wring_comm *comm, void *dst, const void *src, size_t nbytes)
{
    pthread_mutex_lock(&comm->context->lock);
    wring_status status = wri_lane_settle(comm);
    int was = wri_context_enter(comm->context);
    if (status == WRING_OK)
        status = wri_lane_copy(comm, dst, src, nbytes);
    wri_context_leave(comm->context, was);
    pthread_mutex_unlock(&comm->context->lock);
    return status;
}
