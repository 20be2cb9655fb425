/* SPDX-License-Identifier: Apache-2.0 */
/* Named gradients and their state; see state.h. */
#include "collective/tensor.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/exec.h"
#include "collective/state.h"

#include <stdio.h>
#include <string.h>

static wring_status residual_open(struct wri_residual *residual, size_t begin, size_t end)
{
    float *block;
    WRI_TRY(wri_alloc(2 * (end - begin), sizeof(float), (void **)&block));
    *residual = (struct wri_residual){{block, block + (end - begin)}, 0, begin, end};
    return WRING_OK;
}

static void residual_close(struct wri_residual *residual)
{
    wri_free(residual->generation[0] < residual->generation[1] ? residual->generation[0]
                                                               : residual->generation[1]);
    *residual = (struct wri_residual){0};
}

void wri_residual_at(const struct wri_residual *residual, size_t index, const float **in_out,
                     float **out_out)
{
    if (residual->generation[0] == NULL) {
        *in_out = NULL;
        *out_out = NULL;
        return;
    }
    *in_out = residual->generation[residual->current] + (index - residual->begin);
    *out_out = residual->generation[!residual->current] + (index - residual->begin);
}

static wring_status shape_count(int ndim, const size_t *shape, size_t *count_out)
{
    size_t count = 1;
    for (int i = 0; i < ndim; i++)
        if (!wri_size_mul(count, shape[i], &count))
            WRI_FAIL(WRING_E_ARGUMENT, "shape has more elements than memory has addresses");
    *count_out = count;
    return WRING_OK;
}

wring_status wri_tensor_create(wring_comm *comm, const char *name, wring_dtype dtype, int ndim,
                               const size_t *shape, const wring_tensor_options *options,
                               wring_tensor **tensor_out)
{
    size_t count;
    WRI_TRY(shape_count(ndim, shape, &count));
    const wring_codec *codec = options && options->codec ? options->codec : comm->codec;
    wring_status status = wri_codec_accepts(codec, dtype, WRING_SUM);
    if (status != WRING_OK)
        return wri_fail_context(status, "tensor '%s'", name);

    wring_tensor *tensor;
    WRI_TRY(wri_alloc(1, sizeof(*tensor), (void **)&tensor));
    tensor->comm = comm;
    tensor->dtype = dtype;
    tensor->count = count;
    tensor->codec = codec;
    tensor->id = wri_hash(name, strlen(name), 0);
    status = wri_strdup(name, &tensor->name);
    if (status == WRING_OK && codec->feedback && count > 0)
        status = residual_open(&tensor->local, 0, count);
    if (status != WRING_OK) {
        wri_free(tensor->name);
        wri_free(tensor);
        return status;
    }
    pthread_mutex_lock(&comm->context->lock);
    bool taken = false;
    for (const wring_tensor *other = comm->tensors; other != NULL; other = other->next)
        taken |= other->id == tensor->id;
    tensor->next = comm->tensors;
    comm->tensors = tensor;
    comm->refs++;
    pthread_mutex_unlock(&comm->context->lock);
    if (taken) {
        wri_tensor_destroy(tensor);
        WRI_FAIL(WRING_E_ARGUMENT, "there is already a tensor '%s' on this communicator", name);
    }
    *tensor_out = tensor;
    return WRING_OK;
}

/* A call that still uses the tensor cannot go on without it. */
static void abort_calls(const wring_tensor *tensor)
{
    wring_request *next;
    for (wring_request *request = tensor->comm->context->active; request; request = next) {
        next = wri_request_next(request);
        bool uses = false;
        for (size_t i = 0; i < request->nsegments; i++)
            uses |= request->segment[i].tensor == tensor;
        if (uses)
            wri_exec_abort(request,
                           wri_fail(WRING_E_ABORTED, "tensor '%s' was destroyed", tensor->name));
    }
}

void wri_tensor_destroy(wring_tensor *tensor)
{
    if (tensor == NULL)
        return;
    wring_comm *comm = tensor->comm;
    wring_context *context = comm->context;
    pthread_mutex_lock(&context->lock);
    if (tensor->busy)
        abort_calls(tensor);
    wring_tensor **link = &comm->tensors;
    while (*link != tensor)
        link = &(*link)->next;
    *link = tensor->next;
    wri_comm_release(comm);
    pthread_mutex_unlock(&context->lock);
    residual_close(&tensor->local);
    residual_close(&tensor->owner);
    wri_free(tensor->name);
    wri_free(tensor);
}

size_t wri_tensor_count(const wring_tensor *tensor)
{
    return tensor->count;
}

size_t wri_tensor_state_nbytes(const wring_tensor *tensor)
{
    size_t elements =
        tensor->local.end - tensor->local.begin + tensor->owner.end - tensor->owner.begin;
    return 2 * elements * sizeof(float);
}

const wring_codec *wri_tensor_codec(const wring_tensor *tensor)
{
    return tensor->codec;
}

wring_status wri_tensor_residual(const wring_tensor *tensor, float *dst, size_t count)
{
    if (count != tensor->count)
        WRI_FAIL(WRING_E_ARGUMENT, "tensor '%s' has %zu elements, not %zu", tensor->name,
                 tensor->count, count);
    if (count == 0)
        return WRING_OK;
    const float *now;
    float *next;
    wri_residual_at(&tensor->local, 0, &now, &next);
    if (now != NULL)
        memcpy(dst, now, count * sizeof(float));
    else
        memset(dst, 0, count * sizeof(float));
    return WRING_OK;
}

wring_status wri_tensor_own(wring_tensor *tensor, size_t begin, size_t end, float weight)
{
    struct wri_residual *owner = &tensor->owner;
    if (owner->begin == begin && owner->end == end)
        return WRING_OK;
    struct wri_residual fresh = {0};
    if (begin < end)
        WRI_TRY(residual_open(&fresh, begin, end));
    float *local = tensor->local.generation[tensor->local.current];
    const float *old = owner->generation[owner->current];
    for (size_t i = owner->begin; i < owner->end; i++)
        local[i] += weight * old[i - owner->begin];
    residual_close(owner);
    *owner = fresh;
    owner->begin = begin;
    owner->end = end;
    return WRING_OK;
}

/* The next generation of [begin, end) becomes current: by exchange if that is all there is. */
static void residual_commit(struct wri_residual *residual, size_t begin, size_t end)
{
    if (begin <= residual->begin && residual->end <= end) {
        residual->current = !residual->current;
        return;
    }
    const float *now;
    float *next;
    wri_residual_at(residual, begin, &now, &next);
    memcpy(residual->generation[residual->current] + (begin - residual->begin), next,
           (end - begin) * sizeof(float));
}

void wri_tensor_commit(wring_tensor *tensor, size_t offset, size_t count)
{
    tensor->step++;
    if (tensor->local.generation[0] != NULL && count > 0)
        residual_commit(&tensor->local, offset, offset + count);
    if (tensor->owner.generation[0] != NULL)
        residual_commit(&tensor->owner, tensor->owner.begin, tensor->owner.end);
}

wring_status wri_tensor_explain(wring_comm *comm, char **text_out)
{
    size_t nbytes = 0;
    FILE *out = open_memstream(text_out, &nbytes);
    if (out == NULL)
        WRI_FAIL(WRING_E_MEMORY, "no memory for an explanation");
    pthread_mutex_lock(&comm->context->lock);
    for (const wring_tensor *tensor = comm->tensors; tensor != NULL; tensor = tensor->next) {
        fprintf(out, "%s: %zu %s, codec %s, state %zu bytes", tensor->name, tensor->count,
                wring_dtype_name(tensor->dtype), tensor->codec->spec,
                wri_tensor_state_nbytes(tensor));
        if (tensor->algorithm != NULL)
            fprintf(out, "; last sent by %s (%s), %llu bytes with its bucket", tensor->algorithm,
                    tensor->reason, (unsigned long long)tensor->wire_nbytes);
        fputc('\n', out);
    }
    pthread_mutex_unlock(&comm->context->lock);
    fclose(out);
    return WRING_OK;
}
