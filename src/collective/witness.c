/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Did the caller leave the call's input alone?
 *
 * What stands in a call's segments is the library's until the call is done, and is read piece by
 * piece meanwhile: who writes into it sends a mixture of two gradients, without an error. With
 * WRING_CHECK_INPUT what each piece reads is hashed when the call starts, and once it was read.
 */
#include "base/hash.h"
#include "base/status.h"
#include "collective/exec.h"

static bool reads_input(const struct wring_step *step)
{
    return step->kind == WRING_STEP_LOAD ||
           (step->kind == WRING_STEP_ENCODE && step->buffer == WRING_BUFFER_INPUT);
}

static uint64_t hash_of(const wring_request *request, const struct wring_step *step, size_t piece)
{
    size_t size = wring_dtype_size(request->dtype);
    struct wri_run run = {0};
    uint64_t hash = 0;
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece, &run))
        hash = wri_hash(wri_exec_input(request, &run), run.count * size, hash);
    return hash;
}

wring_status wri_witness_open(wring_request *request)
{
    size_t npieces = request->layout.npieces;
    if (!request->context->config.check_input || request->device != NULL)
        return WRING_OK;
    WRI_TRY(wri_alloc(request->nsteps * npieces, sizeof(uint64_t), (void **)&request->witness));
    for (size_t i = 0; i < request->nsteps; i++)
        for (size_t p = 0; reads_input(&request->step[i]) && p < npieces; p++)
            request->witness[i * npieces + p] = hash_of(request, &request->step[i], p);
    return WRING_OK;
}

wring_status wri_witness_check(const wring_request *request, const struct wri_piece *piece,
                               const struct wring_step *step)
{
    size_t i = (size_t)(step - request->step), npieces = request->layout.npieces;
    struct wri_run run = {0};
    if (request->witness == NULL || !reads_input(step) ||
        request->witness[i * npieces + piece->index] == hash_of(request, step, piece->index))
        return WRING_OK;
    wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run);
    const wring_tensor *tensor = request->segment[run.segment].tensor;
    WRI_FAIL(WRING_E_STATE,
             "the input was written to after the call had started: %s%s%s%zu elements from "
             "element %zu of segment %zu have changed",
             tensor ? "tensor '" : "", tensor ? tensor->name : "", tensor ? "', " : "",
             wri_layout_count(&request->layout, (size_t)step->shard, piece->index), run.begin,
             run.segment);
}
