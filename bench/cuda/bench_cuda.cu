/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wring-bench-cuda: how fast the kernels of each codec are on the current device, as a fraction of
 * what a device-to-device copy moves in the same run. One JSON object per codec and size on standard
 * output, a table on standard error.
 *
 *     fraction = bytes that the kernel must read and write / time / (bytes of the copy / its time)
 *
 *     encode      4 n + encoded          with feedback 12 n + encoded
 *     decode      encoded + 4 n          decode_add  encoded + 8 n
 *
 * Each figure is the least of several batches, floors and kernels in turn.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>

#include <vector>

extern "C" {
#include "codec/codec.h"
}

static const char *const specs[] = {"none",
                                    "bf16",
                                    "fp16",
                                    "int8",
                                    "int4",
                                    "sign",
                                    "topk:0.01+int8",
                                    "ef+int8",
                                    "ef+int4",
                                    "ef+sign",
                                    "ef+topk:0.01+int8"};

static void die(const char *doing, const char *why)
{
    fprintf(stderr, "wring-bench-cuda: %s: %s\n", doing, why);
    exit(1);
}

static void ok(wring_status status)
{
    if (status != WRING_OK)
        die(wring_status_name(status), wring_error_message());
}

static void cuda(cudaError_t error)
{
    if (error != cudaSuccess)
        die("CUDA", cudaGetErrorString(error));
}

/* ---- what the device can do at all ----------------------------------------------------------- */

__global__ void fill_kernel(float *x, size_t n)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        uint32_t word = (uint32_t)i * 2654435761u;
        word ^= word >> 15;
        x[i] = ((float)(word >> 8) * 0x1p-23f - 1) * (word & 31 ? 0.01f : 1.0f);
    }
}

__global__ void read_kernel(const float4 *x, size_t n, float *never)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    float sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        sum += x[i].x + x[i].y + x[i].z + x[i].w;
    if (sum == 1e30f)
        *never = sum;
}

__global__ void empty_kernel()
{
}

template <typename... Expected, typename... Given>
static void launch(cudaStream_t stream, size_t blocks, void (*kernel)(Expected...), Given... given)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(blocks < 1 ? 1 : blocks > 1u << 20 ? 1u << 20 : blocks));
    config.blockDim = dim3(256);
    config.stream = stream;
    cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(given)...));
}

/* ---- one size -------------------------------------------------------------------------------- */

struct bench {
    const struct wri_device *device;
    cudaStream_t stream;
    cudaEvent_t from, to;
    size_t count;
    int batches;
    float *src, *dst, *residual[2];
    void *encoded, *scratch, *verdict;
    char name[256];
};

/* Least seconds of one ACT. */
template <typename Act> static double seconds(struct bench *b, Act act)
{
    double least = 1e30;
    int repeat = b->count > 1u << 26 ? 3 : b->count > 1u << 20 ? 10 : 30;
    act();
    for (int batch = 0; batch < b->batches; batch++) {
        float ms;
        cuda(cudaEventRecord(b->from, b->stream));
        for (int i = 0; i < repeat; i++)
            act();
        cuda(cudaEventRecord(b->to, b->stream));
        cuda(cudaEventSynchronize(b->to));
        cuda(cudaEventElapsedTime(&ms, b->from, b->to));
        double each = ms * 1e-3 / repeat;
        least = each < least ? each : least;
    }
    return least;
}

struct floors {
    double copy_s, read_s, launch_s;
};

static struct floors measure_floors(struct bench *b)
{
    struct floors f;
    size_t nbytes = b->count * sizeof(float), n = b->count / 4;
    f.copy_s = seconds(b, [&] {
        cuda(cudaMemcpyAsync(b->dst, b->src, nbytes, cudaMemcpyDeviceToDevice, b->stream));
    });
    f.read_s = seconds(
        b, [&] { launch(b->stream, n / 1024, read_kernel, (const float4 *)b->src, n, b->dst); });
    f.launch_s = seconds(b, [&] { launch(b->stream, 1, empty_kernel); });
    return f;
}

static void encode(struct bench *b, const wring_codec *codec)
{
    struct wri_encode_run run = {};
    run.codec = codec;
    run.src = b->src;
    run.count = b->count;
    run.residual_in = codec->feedback ? b->residual[0] : nullptr;
    run.residual_out = codec->feedback ? b->residual[1] : nullptr;
    run.dst = b->encoded;
    run.scratch = b->scratch;
    run.place = {b->device, b->stream, (struct wri_verdict *)b->verdict, 1};
    ok(wri_codec_encode_run(&run));
}

static void decode(struct bench *b, const wring_codec *codec, bool add)
{
    struct wri_decode_run run = {};
    run.codec = codec;
    run.src = b->encoded;
    run.nbytes = wri_codec_nbytes(codec, WRING_FLOAT32, b->count);
    run.dst = b->dst;
    run.count = b->count;
    run.add = add;
    run.scratch = b->scratch;
    run.place = {b->device, b->stream, (struct wri_verdict *)b->verdict, 1};
    ok(wri_codec_decode_run(&run));
}

static void measure(struct bench *b, const char *spec)
{
    wring_codec *codec;
    ok(wri_codec_create(spec, &codec));
    size_t n = b->count, nbytes = wri_codec_nbytes(codec, WRING_FLOAT32, n);
    cuda(cudaMalloc(&b->encoded, nbytes));
    cuda(cudaMalloc(&b->scratch, wri_codec_device_scratch_nbytes(codec, b->device, n) + 1));
    struct floors f = measure_floors(b);
    double encode_s = seconds(b, [&] { encode(b, codec); });
    double decode_s = seconds(b, [&] { decode(b, codec, false); });
    double add_s = seconds(b, [&] { decode(b, codec, true); });
    double floats = (double)n * sizeof(float), copy_rate = 2 * floats / f.copy_s;
    double fractions[3] = {((codec->feedback ? 3 : 1) * floats + (double)nbytes) / encode_s,
                           (floats + (double)nbytes) / decode_s,
                           (2 * floats + (double)nbytes) / add_s};
    for (double &fraction : fractions)
        fraction /= copy_rate;
    printf("{\"codec\": \"%s\", \"count\": %zu, \"encoded_bytes\": %zu, \"ratio\": %.3f, "
           "\"encode_gbps\": %.3f, \"decode_gbps\": %.3f, \"decode_add_gbps\": %.3f, "
           "\"read_gbps\": %.3f, \"memcpy_gbps\": %.3f, \"launch_us\": %.3f, "
           "\"encode_fraction\": %.3f, \"decode_fraction\": %.3f, \"decode_add_fraction\": %.3f, "
           "\"encode_us\": %.2f, \"isa\": \"%s\"}\n",
           spec, n, nbytes, floats / (double)nbytes, floats / encode_s * 1e-9,
           floats / decode_s * 1e-9, floats / add_s * 1e-9, floats / f.read_s * 1e-9,
           floats / f.copy_s * 1e-9, f.launch_s * 1e6, fractions[0], fractions[1], fractions[2],
           encode_s * 1e6, b->name);
    fflush(stdout);
    fprintf(stderr, "%-20s %10zu %8.1f %8.1f %8.1f   %6.2f %6.2f %6.2f   %8.1f %8.2f\n", spec, n,
            floats / encode_s * 1e-9, floats / decode_s * 1e-9, floats / add_s * 1e-9, fractions[0],
            fractions[1], fractions[2], floats / f.copy_s * 1e-9, f.launch_s * 1e6);
    cuda(cudaStreamSynchronize(b->stream));
    cuda(cudaFree(b->encoded));
    cuda(cudaFree(b->scratch));
    wri_codec_destroy(codec);
}

static void measure_size(struct bench *b, size_t count)
{
    float **blocks[] = {&b->src, &b->dst, &b->residual[0], &b->residual[1]};
    b->count = count;
    for (float **block : blocks) {
        cuda(cudaMalloc(block, count * sizeof(float)));
        launch(b->stream, count / 1024, fill_kernel, *block, count);
    }
    cuda(cudaMalloc(&b->verdict, sizeof(struct wri_verdict)));
    cuda(cudaMemsetAsync(b->verdict, 0, sizeof(struct wri_verdict), b->stream));
    for (const char *spec : specs)
        measure(b, spec);
    for (float **block : blocks)
        cuda(cudaFree(*block));
    cuda(cudaFree(b->verdict));
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, nullptr, 'h'}, {}};
    std::vector<size_t> sizes;
    struct bench b = {};
    b.batches = 5;
    for (int option; (option = getopt_long(argc, argv, "b:n:h", options, nullptr)) >= 0;) {
        if (option == 'b')
            sizes.push_back(strtoull(optarg, nullptr, 10));
        else if (option == 'n')
            b.batches = atoi(optarg);
        else {
            fprintf(option == 'h' ? stdout : stderr,
                    "wring-bench-cuda [-b BYTES]... [-n BATCHES]\n"
                    "  -b  bytes of float32, as often as wanted; 256 KiB, 16 MiB, 1 GiB if never\n"
                    "  -n  batches, of which the fastest counts (5)\n");
            return option == 'h' ? 0 : 2;
        }
    }
    if (sizes.empty())
        sizes = {256u << 10, 16u << 20, 1u << 30};
    int devices;
    ok(wri_device_find("cuda", getenv("WRING_MODULES") ? getenv("WRING_MODULES") : "", &b.device));
    ok(b.device->count(&devices));
    struct cudaDeviceProp prop;
    cuda(cudaGetDeviceProperties(&prop, 0));
    snprintf(b.name, sizeof(b.name), "%s", prop.name);
    cuda(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    cuda(cudaEventCreate(&b.from));
    cuda(cudaEventCreate(&b.to));
    fprintf(stderr, "%s\n%-20s %10s %8s %8s %8s   %6s %6s %6s   %8s %8s\n", b.name, "codec",
            "count", "encode", "decode", "add", "enc/cp", "dec/cp", "add/cp", "copy", "launch");
    fprintf(stderr, "%-20s %10s %8s %8s %8s   %6s %6s %6s   %8s %8s\n", "", "", "GB/s", "GB/s",
            "GB/s", "", "", "", "GB/s", "us");
    for (size_t nbytes : sizes)
        measure_size(&b, nbytes / sizeof(float));
    return 0;
}
