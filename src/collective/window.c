/* SPDX-License-Identifier: Apache-2.0 */
/* The window of pieces that a request keeps in flight, and the memory that they work in: sized by
 * the largest piece, taken from what an earlier call gave back or anew, in one block of each
 * kind. */
#include "base/status.h"
#include "collective/exec.h"

/* What the largest (shard, piece) needs. */
struct extent {
    size_t count, payload, scratch;
    size_t run; /* elements that are encoded at a time */
};

/* Working memory of a run's codec. */
static size_t scratch_of(const wring_request *request, size_t count)
{
    const wring_codec *codec = request->plan.codec;
    return request->device ? wri_codec_device_scratch_nbytes(codec, request->device, count)
                           : wri_codec_scratch_nbytes(codec, request->dtype, count);
}

static struct extent largest_range(const wring_request *request)
{
    const struct wri_layout *layout = &request->layout;
    struct extent most = {0};
    for (size_t s = 0; s < layout->nshards; s++)
        for (size_t p = 0; p < layout->npieces; p++) {
            size_t count = 0, payload = 0;
            struct wri_run run = {0};
            while (wri_layout_next(layout, s, p, &run)) {
                size_t scratch = scratch_of(request, run.count);
                size_t own = wri_codec_nbytes(layout->codec, request->dtype, run.count);
                size_t partial = wri_codec_nbytes(layout->codec, request->acc_dtype, run.count);
                count += run.count;
                most.run = run.count > most.run ? run.count : most.run;
                payload += own > partial ? own : partial;
                most.scratch = scratch > most.scratch ? scratch : most.scratch;
            }
            most.count = count > most.count ? count : most.count;
            most.payload = payload > most.payload ? payload : most.payload;
        }
    return most;
}

/* One slot's bytes of each kind of memory. */
static void take_slot(wring_request *request, struct wri_arena *buffers, size_t nbytes,
                      struct wri_slot *slot)
{
    bool device = request->device != NULL;
    unsigned char *there = device ? wri_arena_take(&buffers[WRI_MEMORY_DEVICE], nbytes, 1) : NULL;
    unsigned char *here = NULL;
    if (!request->ordered)
        here = wri_arena_take(&buffers[device ? WRI_MEMORY_PINNED : WRI_MEMORY_HOST], nbytes, 1);
    if (slot != NULL)
        *slot = (struct wri_slot){.frame = here, .device = there};
}

/* One piece of the window. Its codec works in device memory, if the call is on a device; only
 * pieces on a stream of their own have a scratch of their own. */
static void take_piece(wring_request *request, struct wri_arena *buffers, const struct extent *most,
                       struct wri_piece *piece)
{
    struct wri_arena *host = &buffers[WRI_MEMORY_HOST];
    struct wri_arena *work = request->device ? &buffers[WRI_MEMORY_DEVICE] : host;
    size_t slot_nbytes = wri_round_up(
        WRI_FRAME_NBYTES + (most->payload > WRI_EAGER ? most->payload : WRI_EAGER), WRI_ALIGN);
    struct wri_slot *slot = wri_arena_take(host, request->nslots, sizeof(*slot));
    struct wri_transfer *transfer =
        wri_arena_take(host, request->ntransfers_max, sizeof(*transfer));
    for (size_t j = 0; j < request->nslots; j++)
        take_slot(request, buffers, slot_nbytes, slot ? &slot[j] : NULL);
    void *accumulator = wri_arena_take(work, most->count, wring_dtype_size(request->acc_dtype));
    void *scratch = wri_arena_take(work, most->scratch, 1);
    bool narrow = request->plan.codec->feedback && request->plan.codec->residual_bits < 32;
    float *residual = narrow ? wri_arena_take(host, most->run, sizeof(*residual)) : NULL;
    void *found = request->device
                      ? wri_arena_take(&buffers[WRI_MEMORY_PINNED], 1, sizeof(struct wri_verdict))
                      : NULL;
    if (piece != NULL)
        *piece = (struct wri_piece){.slot = slot,
                                    .transfer = transfer,
                                    .accumulator = accumulator,
                                    .scratch = scratch,
                                    .residual = residual,
                                    .found = found};
}

/* The window of pieces with their slots, accumulators and scratch. */
static void take_buffers(wring_request *request, struct wri_arena *buffers,
                         const struct extent *most)
{
    if (request->device != NULL)
        request->verdict =
            wri_arena_take(&buffers[WRI_MEMORY_DEVICE], 1, sizeof(*request->verdict));
    request->piece =
        wri_arena_take(&buffers[WRI_MEMORY_HOST], request->window, sizeof(struct wri_piece));
    for (size_t i = 0; i < request->window; i++)
        take_piece(request, buffers, most, request->piece ? &request->piece[i] : NULL);
}

/* What the arena was found to need: from the communicator's spare, or new. */
static wring_status open_buffers(wring_request *request, enum wri_memory kind)
{
    struct wri_arena *arena = &request->buffers[kind], *spare = &request->comm->spare[kind];
    if (arena->overflow || spare->capacity < arena->used)
        return wri_buffers_open(request->comm, kind, arena);
    *arena = (struct wri_arena){.base = spare->base, .capacity = spare->capacity};
    *spare = (struct wri_arena){0};
    return WRING_OK;
}

/* Streams and events of the pieces. */
static wring_status open_events(wring_request *request)
{
    const struct wri_device *device = request->device;
    for (size_t i = 0; i < request->window; i++) {
        struct wri_piece *piece = &request->piece[i];
        piece->stream =
            request->ordered ? request->comm->lane.stream : request->comm->lane.piece_stream[i];
        *piece->found = (struct wri_verdict){0};
        WRI_TRY(device->event_open(device, &piece->drained));
        for (size_t j = 0; !request->ordered && j < request->nslots; j++)
            WRI_TRY(device->event_open(device, &piece->slot[j].copied));
    }
    return WRING_OK;
}

static void close_events(wring_request *request)
{
    for (size_t i = 0; request->device != NULL && request->piece != NULL && i < request->window;
         i++) {
        struct wri_piece *piece = &request->piece[i];
        request->device->event_close(request->device, piece->drained);
        for (size_t j = 0; j < request->nslots; j++)
            request->device->event_close(request->device, piece->slot[j].copied);
    }
}

wring_status wri_window_open(wring_request *request)
{
    struct extent most = largest_range(request);
    take_buffers(request, request->buffers, &most);
    for (int kind = 0; kind < WRI_MEMORY_KINDS; kind++)
        WRI_TRY(open_buffers(request, (enum wri_memory)kind));
    take_buffers(request, request->buffers, &most);
    return request->device ? open_events(request) : WRING_OK;
}

void wri_window_give_back(wring_request *request)
{
    for (int kind = 0; kind < WRI_MEMORY_KINDS; kind++) {
        struct wri_arena *arena = &request->buffers[kind], *spare = &request->comm->spare[kind];
        if (arena->capacity > spare->capacity) {
            struct wri_arena smaller = *spare;
            *spare = *arena;
            *arena = smaller;
        }
    }
}

void wri_window_close(wring_request *request)
{
    close_events(request);
    for (int kind = 0; kind < WRI_MEMORY_KINDS; kind++)
        wri_buffers_close(request->comm, (enum wri_memory)kind, &request->buffers[kind]);
}
