/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device table: memory, streams, events, and which codec has a half here. Nothing waits for
 * the device but stream_wait and what says so in device.h. */
#include <stdarg.h>
#include <stdio.h>

#include "kernels.cuh"
#include "table.h"

/* The library's; set when the module is opened. */
static const struct wring_host_services *host;

/* ---- errors ---------------------------------------------------------------------------------- */

wring_status wri_cuda_fail(wring_status status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return host->fail(status, "%s", text);
}

wring_status wri_cuda_status(cudaError_t error, const char *doing)
{
    cudaGetLastError(); /* an error that we report is not the next caller's */
    if (error == cudaErrorNotReady)
        return WRING_AGAIN;
    return host->fail(error == cudaErrorMemoryAllocation ? WRING_E_MEMORY : WRING_E_SYSTEM,
                      "CUDA, %s: %s (%s)", doing, cudaGetErrorString(error),
                      cudaGetErrorName(error));
}

size_t wri_cuda_dtype_size(wring_dtype dtype)
{
    static const unsigned char sizes[WRING_DTYPE_COUNT] = {4, 2, 2, 8, 1, 1, 4, 8};
    return sizes[dtype];
}

/* ---- devices --------------------------------------------------------------------------------- */

static wring_status count(int *count_out)
{
    int runtime = 0, driver = 0;
    cudaError_t error = cudaGetDeviceCount(count_out);
    if (error == cudaSuccess)
        return WRING_OK;
    cudaGetLastError();
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    if (driver == 0)
        return wri_cuda_fail(WRING_E_MODULE,
                             "CUDA: this machine has no NVIDIA driver (%s); install one, or use "
                             "host memory",
                             cudaGetErrorString(error));
    return wri_cuda_fail(WRING_E_MODULE,
                         "CUDA: %s; the driver is for CUDA %d.%d, this module was built with %d.%d",
                         cudaGetErrorString(error), driver / 1000, driver % 1000 / 10,
                         runtime / 1000, runtime % 1000 / 10);
}

static wring_status current(int *index_out)
{
    CUDA_TRY(cudaGetDevice(index_out), "current device");
    return WRING_OK;
}

static wring_status select_device(int index)
{
    CUDA_TRY(cudaSetDevice(index), "choosing a device");
    return WRING_OK;
}

static wring_status stream_device(void *stream, int *index_out)
{
#if CUDART_VERSION >= 12080
    cudaError_t error = cudaStreamGetDevice((cudaStream_t)stream, index_out);
    if (error != cudaSuccess) {
        cudaGetLastError();
        return wri_cuda_fail(WRING_E_ARGUMENT, "stream %p is no CUDA stream: %s", stream,
                             cudaGetErrorString(error));
    }
    return WRING_OK;
#else
    (void)stream;
    return current(index_out);
#endif
}

static wring_status owner(const void *pointer, int *index_out)
{
    struct cudaPointerAttributes attributes;
    CUDA_TRY(cudaPointerGetAttributes(&attributes, pointer), "looking at an address");
    bool device =
        attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    *index_out = device ? attributes.device : -1;
    return WRING_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static wring_status alloc(const struct wri_device *, void *stream, size_t nbytes, void **out)
{
    cudaError_t error = cudaMallocAsync(out, nbytes, (cudaStream_t)stream);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return wri_cuda_fail(WRING_E_MEMORY, "CUDA: no %zu bytes of device memory", nbytes);
    }
    CUDA_TRY(error, "allocating device memory");
    return WRING_OK;
}

static void free_block(const struct wri_device *, void *stream, void *block)
{
    if (block)
        cudaFreeAsync(block, (cudaStream_t)stream);
}

static wring_status alloc_pinned(size_t nbytes, void **out)
{
    CUDA_TRY(cudaHostAlloc(out, nbytes, cudaHostAllocPortable), "allocating pinned memory");
    return WRING_OK;
}

static void free_pinned(void *block)
{
    if (block)
        cudaFreeHost(block);
}

static wring_status copy(const struct wri_device *, void *stream, void *dst, const void *src,
                         size_t nbytes)
{
    if (nbytes > 0 && dst != src)
        CUDA_TRY(cudaMemcpyAsync(dst, src, nbytes, cudaMemcpyDefault, (cudaStream_t)stream),
                 "copying");
    return WRING_OK;
}

static wring_status zero(void *stream, void *dst, size_t nbytes)
{
    if (nbytes > 0)
        CUDA_TRY(cudaMemsetAsync(dst, 0, nbytes, (cudaStream_t)stream), "filling memory");
    return WRING_OK;
}

/* ---- streams, events ------------------------------------------------------------------------- */

static wring_status stream_open(void **stream_out)
{
    CUDA_TRY(cudaStreamCreateWithFlags((cudaStream_t *)stream_out, cudaStreamNonBlocking),
             "opening a stream");
    return WRING_OK;
}

static void stream_close(void *stream)
{
    if (stream)
        cudaStreamDestroy((cudaStream_t)stream);
}

static wring_status stream_wait(void *stream)
{
    CUDA_TRY(cudaStreamSynchronize((cudaStream_t)stream), "waiting for a stream");
    return WRING_OK;
}

static wring_status event_open(const struct wri_device *, void **event_out)
{
    CUDA_TRY(cudaEventCreateWithFlags((cudaEvent_t *)event_out, cudaEventDisableTiming),
             "opening an event");
    return WRING_OK;
}

static void event_close(const struct wri_device *, void *event)
{
    if (event)
        cudaEventDestroy((cudaEvent_t)event);
}

static wring_status event_record(const struct wri_device *, void *event, void *stream)
{
    CUDA_TRY(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream), "recording an event");
    return WRING_OK;
}

static wring_status event_wait(const struct wri_device *, void *event, void *stream)
{
    CUDA_TRY(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0),
             "waiting for an event");
    return WRING_OK;
}

static wring_status event_test(const struct wri_device *, void *event)
{
    CUDA_TRY(cudaEventQuery((cudaEvent_t)event), "the work before an event");
    return WRING_OK;
}

static wring_status call_back(void *stream, void (*function)(void *), void *arg)
{
    CUDA_TRY(cudaLaunchHostFunc((cudaStream_t)stream, function, arg), "enqueuing a host function");
    return WRING_OK;
}

/* ---- codecs ---------------------------------------------------------------------------------- */

#define WRING_CODEC(name, place) WRING_CODEC_##place(name)
#define WRING_CODEC_HOST(name)
#define WRING_CODEC_BOTH(name) extern const struct wri_cuda_codec wri_codec_##name##_cuda;
#include "codec/codecs.def"
#undef WRING_CODEC_BOTH

static const struct {
    const char *name;
    const struct wri_cuda_codec *codec;
} codecs[] = {
#define WRING_CODEC_BOTH(name) {#name, &wri_codec_##name##_cuda},
#include "codec/codecs.def"
};

static const struct wri_cuda_codec *find(const struct wring_stage *stage)
{
    for (auto &row : codecs)
        if (strcmp(row.name, stage->ops->name) == 0)
            return row.codec;
    return nullptr;
}

static wring_status supports(const struct wring_stage *chain)
{
    for (const struct wring_stage *stage = chain; stage; stage = stage->next)
        if (!find(stage))
            return wri_cuda_fail(WRING_E_UNSUPPORTED, "codec stage %s has no CUDA half",
                                 stage->ops->name);
    return WRING_OK;
}

static size_t scratch_nbytes(const struct wring_stage *stage, size_t n)
{
    const struct wri_cuda_codec *codec = find(stage);
    return codec && codec->scratch_nbytes ? codec->scratch_nbytes(stage, n) : 0;
}

static wring_status encode(const struct wri_device_encode *e)
{
    return find(e->stage)->encode(e);
}

static wring_status decode(const struct wri_device_decode *d)
{
    return find(d->stage)->decode(d);
}

extern "C" const struct wri_device wri_device_cuda;
extern "C" const struct wri_device *wri_device_cuda_open(const struct wring_host_services *services)
{
    host = services;
    return &wri_device_cuda;
}

const struct wri_device wri_device_cuda = {sizeof(struct wri_device),
                                           "cuda",
                                           false,
                                           count,
                                           current,
                                           select_device,
                                           stream_device,
                                           owner,
                                           alloc,
                                           free_block,
                                           alloc_pinned,
                                           free_pinned,
                                           copy,
                                           zero,
                                           stream_open,
                                           stream_close,
                                           stream_wait,
                                           event_open,
                                           event_close,
                                           event_record,
                                           event_wait,
                                           event_test,
                                           call_back,
                                           supports,
                                           scratch_nbytes,
                                           encode,
                                           decode,
                                           wri_cuda_convert,
                                           wri_cuda_reduce,
                                           wri_cuda_weigh,
                                           wri_cuda_scale,
                                           wri_cuda_squares,
                                           wri_cuda_fold,
                                           wri_cuda_seal,
                                           wri_cuda_verify,
                                           wri_cuda_commit};
