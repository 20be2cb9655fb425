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

/* COUNT zeroed floats where the tensor's state is. */
static wring_status floats_open(const wring_tensor *tensor, size_t count, float **out)
{
    void *stream = tensor->comm->lane.stream;
    void *block;
    WRI_TRY(tensor->device->alloc(tensor->device, stream, count * sizeof(float), &block));
    wring_status status = WRING_OK;
    if (!tensor->device->host) /* its memory comes zeroed */
        status = tensor->device->zero(stream, block, count * sizeof(float));
    if (status != WRING_OK)
        tensor->device->free(tensor->device, stream, block);
    *out = block;
    return status;
}

static wring_status residual_open(const wring_tensor *tensor, struct wri_residual *residual,
                                  size_t begin, size_t end)
{
    float *block;
    WRI_TRY(floats_open(tensor, 2 * (end - begin), &block));
    *residual =
        (struct wri_residual){{block, block + (end - begin)}, 0, begin, end, residual->on_device};
    return WRING_OK;
}

static void residual_close(const wring_tensor *tensor, struct wri_residual *residual)
{
    float *block = residual->generation[0] < residual->generation[1] ? residual->generation[0]
                                                                     : residual->generation[1];
    tensor->device->free(tensor->device, tensor->comm->lane.stream, block);
    *residual = (struct wri_residual){.on_device = residual->on_device};
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

/* What the tensor keeps on the device of its communicator. */
static wring_status open_words(wring_tensor *tensor)
{
    wring_comm *comm = tensor->comm;
    const struct wri_device *device = comm->lane.device;
    void *block;
    WRI_TRY(wri_codec_on_device(tensor->codec, device));
    WRI_TRY(device->alloc(device, comm->lane.stream, sizeof(*tensor->words), &block));
    tensor->device = device;
    tensor->words = block;
    tensor->local.on_device = &tensor->words->current[0];
    tensor->owner.on_device = &tensor->words->current[1];
    return device->zero(comm->lane.stream, block, sizeof(*tensor->words));
}

static wring_status open_state(wring_tensor *tensor, bool device)
{
    wring_comm *comm = tensor->comm;
    wring_status status = WRING_OK;
    pthread_mutex_lock(&comm->context->lock);
    if (device)
        status = wri_lane_open(comm);
    int was = wri_context_enter(comm->context);
    if (status == WRING_OK && device)
        status = open_words(tensor);
    if (status == WRING_OK && tensor->codec->feedback && tensor->count > 0)
        status = residual_open(tensor, &tensor->local, 0, tensor->count);
    wri_context_leave(comm->context, was);
    pthread_mutex_unlock(&comm->context->lock);
    return status;
}

static void close_state(wring_tensor *tensor)
{
    wring_context *context = tensor->comm->context;
    int was = wri_context_enter(context);
    residual_close(tensor, &tensor->local);
    residual_close(tensor, &tensor->owner);
    if (tensor->words != NULL)
        tensor->device->free(tensor->device, tensor->comm->lane.stream, tensor->words);
    wri_context_leave(context, was);
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
    tensor->device = &wri_device_host;
    status = wri_strdup(name, &tensor->name);
    if (status == WRING_OK)
        status = open_state(tensor, options && options->device);
    if (status != WRING_OK) {
        close_state(tensor);
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
    if (tensor->calls > 0)
        abort_calls(tensor);
    wring_tensor **link = &comm->tensors;
    while (*link != tensor)
        link = &(*link)->next;
    *link = tensor->next;
    close_state(tensor);
    wri_comm_release(comm);
    pthread_mutex_unlock(&context->lock);
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

/* Waits for all calls that are enqueued. */
static wring_status residual_from_device(const wring_tensor *tensor, float *dst)
{
    wring_context *context = tensor->comm->context;
    const struct wri_device *device = tensor->device;
    void *stream = tensor->comm->lane.stream;
    struct wri_device_state state;
    pthread_mutex_lock(&context->lock);
    int was = wri_context_enter(context);
    wring_status status = device->copy(device, stream, &state, tensor->words, sizeof(state));
    if (status == WRING_OK)
        status = device->stream_wait(stream);
    if (status == WRING_OK)
        status = device->copy(device, stream, dst, tensor->local.generation[state.current[0] & 1],
                              tensor->count * sizeof(float));
    if (status == WRING_OK)
        status = device->stream_wait(stream);
    wri_context_leave(context, was);
    pthread_mutex_unlock(&context->lock);
    return status;
}

wring_status wri_tensor_residual(const wring_tensor *tensor, float *dst, size_t count)
{
    if (count != tensor->count)
        WRI_FAIL(WRING_E_ARGUMENT, "tensor '%s' has %zu elements, not %zu", tensor->name,
                 tensor->count, count);
    if (count == 0)
        return WRING_OK;
    const struct wri_residual *local = &tensor->local;
    if (local->generation[0] == NULL)
        memset(dst, 0, count * sizeof(float));
    else if (tensor->words == NULL)
        memcpy(dst, local->generation[local->current], count * sizeof(float));
    else
        return residual_from_device(tensor, dst);
    return WRING_OK;
}

/* What was kept as the owner goes back to what is sent. */
static wring_status fold(wring_tensor *tensor, float weight)
{
    const struct wri_residual *owner = &tensor->owner, *local = &tensor->local;
    size_t n = owner->end - owner->begin;
    if (n == 0)
        return WRING_OK;
    if (tensor->words != NULL)
        return tensor->device->fold(local->generation, local->on_device, owner->begin,
                                    owner->generation, owner->on_device, n, weight,
                                    tensor->comm->lane.stream);
    float *to = local->generation[local->current] + owner->begin;
    const float *from = owner->generation[owner->current];
    for (size_t i = 0; i < n; i++)
        to[i] += weight * from[i];
    return WRING_OK;
}

wring_status wri_tensor_own(wring_tensor *tensor, size_t begin, size_t end, float weight)
{
    struct wri_residual *owner = &tensor->owner;
    if (owner->begin == begin && owner->end == end)
        return WRING_OK;
    struct wri_residual fresh = {.on_device = owner->on_device};
    if (begin < end)
        WRI_TRY(residual_open(tensor, &fresh, begin, end));
    wring_status status = fold(tensor, weight);
    if (status == WRING_OK && tensor->words != NULL)
        status = tensor->device->zero(tensor->comm->lane.stream, owner->on_device,
                                      sizeof(*owner->on_device));
    if (status != WRING_OK) {
        residual_close(tensor, &fresh);
        return status;
    }
    residual_close(tensor, owner);
    *owner = fresh;
    owner->begin = begin;
    owner->end = end;
    return WRING_OK;
}

struct wri_device_commit wri_residual_commit(const struct wri_residual *residual, size_t begin,
                                             size_t end)
{
    if (residual->generation[0] == NULL)
        return (struct wri_device_commit){0};
    return (struct wri_device_commit){
        .current = residual->on_device,
        .residual = {residual->generation[0], residual->generation[1]},
        .begin = begin - residual->begin,
        .end = end - residual->begin,
        .count = residual->end - residual->begin};
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
