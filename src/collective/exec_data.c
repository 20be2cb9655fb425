/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that look at data: codec, conversion, reduction, over the runs of a (shard, piece). */
#include "base/status.h"
#include "collective/exec.h"
#include "collective/state.h"
#include "simd/array.h"

static void *accumulator_at(const wring_request *request, const struct wri_piece *piece,
                            const struct wri_run *run)
{
    return (char *)piece->accumulator + run->done * wring_dtype_size(request->acc_dtype);
}

static void *output_at(const wring_request *request, const struct wri_run *run)
{
    return (char *)request->segment[run->segment].recv +
           run->begin * wring_dtype_size(request->dtype);
}

static struct wri_place place_of(const wring_request *request, const struct wri_piece *piece,
                                 const struct wring_step *step)
{
    return (struct wri_place){request->device, piece->stream, request->verdict,
                              (uint32_t)(step - request->step) + 1};
}

/* Which residual and which random numbers the run is encoded with. A narrow residual is widened
 * into the piece's memory, and returned, to be narrowed afterwards. */
static struct wri_residual *set_state(const wring_request *request, const struct wri_piece *piece,
                                      const struct wring_step *step, const struct wri_run *run,
                                      struct wri_encode_run *encode)
{
    const wring_segment *segment = &request->segment[run->segment];
    wring_tensor *tensor = segment->tensor;
    bool owner = step->buffer == WRING_BUFFER_ACCUMULATOR;
    encode->first = segment->offset + run->begin;
    encode->random = (struct wring_random_key){
        .seed = (uint64_t)request->context->config.seed,
        .tensor = tensor ? tensor->id : run->segment,
        .step = tensor ? tensor->step : request->frame.operation,
        .rank = (uint32_t)request->comm->rank | (owner ? 0x80000000u : 0)};
    if (tensor == NULL)
        return NULL;
    if (request->device != NULL)
        encode->step = tensor->step_on_device;
    bool local = step->flags & WRING_STEP_LOCAL_RESIDUAL;
    if (!encode->codec->feedback || !(local || step->flags & WRING_STEP_OWNER_RESIDUAL))
        return NULL;
    struct wri_residual *residual = local ? &tensor->local : request->change[run->segment].owned;
    if (wri_residual_count(residual) == 0)
        return NULL;
    encode->current = residual->on_device;
    if (residual->bits == 32) {
        encode->residual_in = wri_residual_at(residual, residual->current, encode->first);
        encode->residual_out = wri_residual_at(residual, !residual->current, encode->first);
        return NULL;
    }
    wri_residual_widen(residual, residual->current, encode->first, run->count, piece->residual);
    encode->residual_in = encode->residual_out = piece->residual;
    return residual;
}

static bool must_scale(const wring_request *request, const struct wring_step *step)
{
    return step->flags & WRING_STEP_SCALE && request->op == WRING_AVG;
}

/* What a device divides by while it encodes or stores; the host does it before. */
static double divisor_of(const wring_request *request, const struct wring_step *step)
{
    return must_scale(request, step) ? request->comm->nranks : 0;
}

wring_status wri_exec_encode(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step)
{
    struct wri_slot *slot = &piece->slot[step->slot];
    bool input = step->buffer == WRING_BUFFER_INPUT;
    unsigned char *dst = wri_slot_data(slot), *begin = dst;
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        void *accumulator = accumulator_at(request, piece, &run);
        if (must_scale(request, step) && request->device == NULL)
            wri_array_divide(request->acc_dtype, accumulator, request->comm->nranks, run.count);
        struct wri_encode_run call = {.codec = request->plan.codec,
                                      .dtype = wri_step_dtype(request, step),
                                      .src_dtype = input ? request->dtype : request->acc_dtype,
                                      .src = input ? wri_exec_input(request, &run) : accumulator,
                                      .count = run.count,
                                      .dst = dst,
                                      .scratch = piece->scratch,
                                      .place = place_of(request, piece, step),
                                      .divisor = divisor_of(request, step)};
        struct wri_residual *narrow = set_state(request, piece, step, &run, &call);
        WRI_TRY(wri_codec_encode_run(&call));
        if (narrow != NULL)
            wri_residual_narrow(narrow, !narrow->current, call.first, run.count, piece->residual);
        request->nonfinite |= call.nonfinite;
        dst += wri_codec_nbytes(call.codec, call.dtype, run.count);
    }
    slot->full = true;
    slot->sealed = false;
    if (request->device == NULL || request->ordered)
        return WRING_OK;
    return wri_device_download(request, piece, slot, (size_t)(dst - begin));
}

wring_status wri_exec_decode(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step)
{
    struct wri_slot *slot = &piece->slot[step->slot];
    const unsigned char *src = wri_slot_data(slot);
    if (request->device != NULL && !request->ordered)
        WRI_TRY(
            wri_device_upload(request, piece, slot, wri_step_nbytes(request, step, piece->index)));
    bool output = step->buffer == WRING_BUFFER_OUTPUT;
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        struct wri_decode_run call = {.codec = request->plan.codec,
                                      .dtype = wri_step_dtype(request, step),
                                      .dst_dtype = output ? request->dtype : request->acc_dtype,
                                      .src = src,
                                      .dst = output ? output_at(request, &run)
                                                    : accumulator_at(request, piece, &run),
                                      .count = run.count,
                                      .add = step->kind == WRING_STEP_DECODE_ADD,
                                      .op = request->op,
                                      .scratch = piece->scratch,
                                      .place = place_of(request, piece, step)};
        call.nbytes = wri_codec_nbytes(call.codec, call.dtype, run.count);
        WRI_TRY(wri_codec_decode_run(&call));
        src += call.nbytes;
    }
    return WRING_OK;
}

/* An array operation on the device, in the place of the host's. */
static wring_status convert_there(wring_request *request, struct wri_piece *piece, void *dst,
                                  wring_dtype dst_dtype, const void *src, wring_dtype src_dtype,
                                  size_t count, double divisor)
{
    struct wri_device_convert convert = {.dst_dtype = dst_dtype,
                                         .src_dtype = src_dtype,
                                         .dst = dst,
                                         .src = src,
                                         .count = count,
                                         .divisor = divisor,
                                         .verdict = request->verdict,
                                         .stream = piece->stream};
    return request->device->convert(&convert);
}

static wring_status load_there(wring_request *request, struct wri_piece *piece,
                               const struct wring_step *step, const struct wri_run *run)
{
    void *accumulator = accumulator_at(request, piece, run);
    const void *input = wri_exec_input(request, run);
    if (step->flags & WRING_STEP_REDUCE)
        return request->device->reduce(request->op, request->acc_dtype, accumulator, request->dtype,
                                       input, run->count, piece->stream);
    return convert_there(request, piece, accumulator, request->acc_dtype, input, request->dtype,
                         run->count, 0);
}

wring_status wri_exec_load(wring_request *request, struct wri_piece *piece,
                           const struct wring_step *step)
{
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        void *accumulator = accumulator_at(request, piece, &run);
        if (request->device != NULL)
            WRI_TRY(load_there(request, piece, step, &run));
        else if (step->flags & WRING_STEP_REDUCE)
            wri_array_reduce(request->op, request->acc_dtype, accumulator, request->dtype,
                             wri_exec_input(request, &run), run.count);
        else
            wri_array_convert(request->acc_dtype, accumulator, request->dtype,
                              wri_exec_input(request, &run), run.count);
    }
    return WRING_OK;
}

wring_status wri_exec_store(wring_request *request, struct wri_piece *piece,
                            const struct wring_step *step)
{
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        void *accumulator = accumulator_at(request, piece, &run);
        if (request->device != NULL) {
            WRI_TRY(convert_there(request, piece, output_at(request, &run), request->dtype,
                                  accumulator, request->acc_dtype, run.count,
                                  divisor_of(request, step)));
            continue;
        }
        if (must_scale(request, step))
            wri_array_divide(request->acc_dtype, accumulator, request->comm->nranks, run.count);
        request->nonfinite |= wri_array_convert(request->dtype, output_at(request, &run),
                                                request->acc_dtype, accumulator, run.count);
    }
    return WRING_OK;
}

wring_status wri_exec_local(wring_request *request, struct wri_piece *piece,
                            const struct wring_step *step)
{
    switch (step->kind) {
    case WRING_STEP_ENCODE:
        WRI_TRY(wri_exec_encode(request, piece, step));
        return wri_witness_check(request, piece, step);
    case WRING_STEP_DECODE_SET:
    case WRING_STEP_DECODE_ADD:
        return wri_exec_decode(request, piece, step);
    case WRING_STEP_LOAD:
        WRI_TRY(wri_exec_load(request, piece, step));
        return wri_witness_check(request, piece, step);
    case WRING_STEP_STORE:
        return wri_exec_store(request, piece, step);
    default:
        WRI_FAIL(WRING_E_UNSUPPORTED,
                 "algorithm %s asks for step %d, which no built-in codec needs",
                 request->plan.algorithm->name, step->kind);
    }
}
