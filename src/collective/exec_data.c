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

static const void *input_at(const wring_request *request, const struct wri_run *run)
{
    return (const char *)request->segment[run->segment].send +
           run->begin * wring_dtype_size(request->dtype);
}

static void *output_at(const wring_request *request, const struct wri_run *run)
{
    return (char *)request->segment[run->segment].recv +
           run->begin * wring_dtype_size(request->dtype);
}

/* Which residual and which random numbers the run is encoded with. */
static void set_state(const wring_request *request, const struct wring_step *step,
                      const struct wri_run *run, struct wri_encode_run *encode)
{
    const wring_segment *segment = &request->segment[run->segment];
    const wring_tensor *tensor = segment->tensor;
    bool owner = step->buffer == WRING_BUFFER_ACCUMULATOR;
    encode->first = segment->offset + run->begin;
    encode->random = (struct wring_random_key){
        .seed = (uint64_t)request->context->config.seed,
        .tensor = tensor ? tensor->id : run->segment,
        .step = tensor ? tensor->step : request->frame.operation,
        .rank = (uint32_t)request->comm->rank | (owner ? 0x80000000u : 0)};
    if (tensor == NULL || !encode->codec->feedback)
        return;
    if (step->flags & WRING_STEP_LOCAL_RESIDUAL)
        wri_residual_at(&tensor->local, encode->first, &encode->residual_in, &encode->residual_out);
    else if (step->flags & WRING_STEP_OWNER_RESIDUAL)
        wri_residual_at(&tensor->owner, encode->first, &encode->residual_in, &encode->residual_out);
}

static bool must_scale(const wring_request *request, const struct wring_step *step)
{
    return step->flags & WRING_STEP_SCALE && request->op == WRING_AVG;
}

wring_status wri_exec_encode(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step)
{
    struct wri_slot *slot = &piece->slot[step->slot];
    bool input = step->buffer == WRING_BUFFER_INPUT;
    unsigned char *dst = wri_slot_payload(slot);
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        void *accumulator = accumulator_at(request, piece, &run);
        if (must_scale(request, step))
            wri_array_divide(request->acc_dtype, accumulator, request->comm->nranks, run.count);
        struct wri_encode_run call = {.codec = request->plan.codec,
                                      .dtype = wri_step_dtype(request, step),
                                      .src_dtype = input ? request->dtype : request->acc_dtype,
                                      .src = input ? input_at(request, &run) : accumulator,
                                      .count = run.count,
                                      .dst = dst,
                                      .scratch = request->scratch};
        set_state(request, step, &run, &call);
        WRI_TRY(wri_codec_encode_run(&call));
        request->nonfinite |= call.nonfinite;
        dst += wri_codec_nbytes(call.codec, call.dtype, run.count);
    }
    slot->full = true;
    slot->sealed = false;
    return WRING_OK;
}

wring_status wri_exec_decode(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step)
{
    const unsigned char *src = wri_slot_payload(&piece->slot[step->slot]);
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
                                      .scratch = request->scratch};
        call.nbytes = wri_codec_nbytes(call.codec, call.dtype, run.count);
        WRI_TRY(wri_codec_decode_run(&call));
        src += call.nbytes;
    }
    return WRING_OK;
}

void wri_exec_load(wring_request *request, struct wri_piece *piece, const struct wring_step *step)
{
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        void *accumulator = accumulator_at(request, piece, &run);
        if (step->flags & WRING_STEP_REDUCE)
            wri_array_reduce(request->op, request->acc_dtype, accumulator, request->dtype,
                             input_at(request, &run), run.count);
        else
            wri_array_convert(request->acc_dtype, accumulator, request->dtype,
                              input_at(request, &run), run.count);
    }
}

void wri_exec_store(wring_request *request, struct wri_piece *piece, const struct wring_step *step)
{
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        void *accumulator = accumulator_at(request, piece, &run);
        if (must_scale(request, step))
            wri_array_divide(request->acc_dtype, accumulator, request->comm->nranks, run.count);
        request->nonfinite |= wri_array_convert(request->dtype, output_at(request, &run),
                                                request->acc_dtype, accumulator, run.count);
    }
}
