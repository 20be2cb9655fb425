/* SPDX-License-Identifier: Apache-2.0 */
/* Named gradients and their state; see state.h. */
#include "collective/tensor.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/exec.h"
#include "collective/saved.h"
#include "collective/transaction.h"

#include <stdio.h>
#include <string.h>

static wring_status shape_count(int ndim, const size_t *shape, size_t *count_out)
{
    size_t count = 1;
    for (int i = 0; i < ndim; i++)
        if (!wri_size_mul(count, shape[i], &count))
            WRI_FAIL(WRING_E_ARGUMENT, "shape has more elements than memory has addresses");
    *count_out = count;
    return WRING_OK;
}

/* The tensor's state is on the device of its communicator. */
static wring_status move_there(wring_tensor *tensor)
{
    wring_comm *comm = tensor->comm;
    const struct wri_device *device = comm->lane.device;
    void *block;
    WRI_TRY(wri_codec_on_device(tensor->codec, device));
    if (tensor->single)
        WRI_FAIL(WRING_E_UNSUPPORTED, "tensor '%s': on a device residuals have two generations",
                 tensor->name);
    WRI_TRY(device->alloc(device, comm->lane.stream, sizeof(*tensor->step_on_device), &block));
    tensor->device = device;
    tensor->step_on_device = block;
    return device->zero(comm->lane.stream, block, sizeof(*tensor->step_on_device));
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
        status = move_there(tensor);
    if (status == WRING_OK && tensor->codec->feedback && tensor->count > 0)
        status = wri_residual_open(tensor, tensor->codec->residual_bits, 0, tensor->count,
                                   &tensor->local);
    wri_context_leave(comm->context, was);
    pthread_mutex_unlock(&comm->context->lock);
    return status;
}

static void close_state(wring_tensor *tensor)
{
    wring_context *context = tensor->comm->context;
    int was = wri_context_enter(context);
    wri_state_close(tensor);
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
    tensor->single = options && options->single;
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
    wring_context *context = tensor->comm->context;
    wring_request *next;
    int idle = 0;
    for (wring_request *request = context->active; request; request = next) {
        next = wri_request_next(request);
        bool uses = false;
        for (size_t i = 0; i < request->nsegments; i++)
            uses |= request->segment[i].tensor == tensor;
        if (uses)
            wri_exec_abort(request,
                           wri_fail(WRING_E_ABORTED, "tensor '%s' was destroyed", tensor->name));
    }
    while (tensor->calls > 0)
        wri_context_drive(context, &idle);
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
    wri_step_forget(tensor);
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

static size_t residual_nbytes(const wring_tensor *tensor, const struct wri_residual *residual)
{
    return (tensor->single ? 1 : 2) *
           wri_residual_nbytes(residual->bits, wri_residual_count(residual));
}

size_t wri_tensor_state_nbytes(const wring_tensor *tensor)
{
    size_t nbytes = residual_nbytes(tensor, &tensor->local);
    for (const struct wri_residual *owned = tensor->owned; owned != NULL; owned = owned->next)
        nbytes += residual_nbytes(tensor, owned);
    return nbytes;
}

const wring_codec *wri_tensor_codec(const wring_tensor *tensor)
{
    return tensor->codec;
}

void wri_tensor_set_reason(wring_tensor *tensor, const char *reason)
{
    tensor->codec_reason = reason;
}

wring_status wri_tensor_residual(const wring_tensor *tensor, float *dst, size_t count)
{
    wring_context *context = tensor->comm->context;
    if (count != tensor->count)
        WRI_FAIL(WRING_E_ARGUMENT, "tensor '%s' has %zu elements, not %zu", tensor->name,
                 tensor->count, count);
    if (count == 0)
        return WRING_OK;
    pthread_mutex_lock(&context->lock);
    wring_status status = wri_context_check_host(context, "DST", dst);
    if (status == WRING_OK && !tensor->device->host)
        status = wri_lane_settle(tensor->comm);
    int was = wri_context_enter(context);
    if (status == WRING_OK) {
        memset(dst, 0, count * sizeof(float));
        status = wri_residual_get(tensor, &tensor->local, dst);
    }
    wri_context_leave(context, was);
    pthread_mutex_unlock(&context->lock);
    return status;
}

wring_status wri_tensor_explain(wring_comm *comm, char **text_out)
{
    size_t nbytes = 0;
    FILE *out = open_memstream(text_out, &nbytes);
    if (out == NULL)
        WRI_FAIL(WRING_E_MEMORY, "no memory for an explanation");
    pthread_mutex_lock(&comm->context->lock);
    for (const wring_tensor *tensor = comm->tensors; tensor != NULL; tensor = tensor->next) {
        const char *reason = tensor->codec_reason;
        fprintf(out, "%s: %zu %s, codec %s%s%s%s, %zu of %zu bytes, state %zu bytes", tensor->name,
                tensor->count, wring_dtype_name(tensor->dtype), tensor->codec->spec,
                reason ? " (" : "", reason ? reason : "", reason ? ")" : "",
                wri_codec_nbytes(tensor->codec, tensor->dtype, tensor->count),
                tensor->count * wring_dtype_size(tensor->dtype), wri_tensor_state_nbytes(tensor));
        if (tensor->algorithm != NULL)
            fprintf(out, "; last sent by %s (%s), %llu bytes with its bucket", tensor->algorithm,
                    tensor->reason, (unsigned long long)tensor->wire_nbytes);
        if (tensor->resets == 1)
            fprintf(out, "; reset once");
        else if (tensor->resets > 1)
            fprintf(out, "; reset %d times", tensor->resets);
        fputc('\n', out);
    }
    pthread_mutex_unlock(&comm->context->lock);
    fclose(out);
    return WRING_OK;
}
