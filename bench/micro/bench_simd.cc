// SPDX-License-Identifier: Apache-2.0
// Speed of the SIMD kernels: every kernel at every level that this CPU has, on data that fits the first
// cache, the second, and neither. Each iteration also times a memcpy of the same float32 bytes; the ratio
// of the two fastest, `x_memcpy`, holds on a machine whose clock or neighbours change. Rates are of
// float32 bytes; `best` is that of the fastest iteration.
//
//     bench_simd --benchmark_filter=quantise8/avx2
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

extern "C" {
#include "simd/kernels.h"
}

namespace {

// Everything that a kernel reads and writes. The feedback variants read and write `residual`.
struct Buffers {
    std::vector<float> src, residual, dst, copy;
    std::vector<unsigned char> scales, codes;
    explicit Buffers(size_t count)
        : src(count), residual(count), dst(count), copy(count), scales(count / 8 + 4),
          codes(count * sizeof(float))
    {
        uint32_t state = 1;
        for (float &x : src) {
            state = state * 1664525u + 1013904223u;
            x = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
        }
    }
};

const wring_random_key key = {1, 2, 3, 0};

wri_blocks blocks(Buffers &b, size_t block, bool feedback, bool random)
{
    wri_blocks in = {};
    in.source.src = b.src.data();
    in.source.count = b.src.size();
    in.source.beta = 1;
    if (feedback)
        in.source.residual_in = in.source.residual_out = b.residual.data();
    in.block = block;
    in.random = random ? &key : nullptr;
    return in;
}

using Table = struct wri_kernels; // the function of that name hides it
using Kernel = void (*)(const Table &, Buffers &);

template <auto Member, size_t Block, bool Feedback, bool Random>
void encode(const Table &k, Buffers &b)
{
    wri_blocks in = blocks(b, Block, Feedback, Random);
    benchmark::DoNotOptimize((k.*Member)(&in, b.scales.data(), b.codes.data()));
}

template <auto Member, size_t Block, bool Add>
void decode(const Table &k, Buffers &b)
{
    (k.*Member)(b.dst.data(), b.dst.size(), Block, b.scales.data(), b.codes.data(), Add);
}

template <auto Member> void store(const Table &k, Buffers &b)
{
    wri_blocks in = blocks(b, 1, false, false);
    benchmark::DoNotOptimize((k.*Member)(&in.source, b.codes.data()));
}

template <auto Member, bool Add> void load(const Table &k, Buffers &b)
{
    (k.*Member)(b.dst.data(), b.dst.size(), b.codes.data(), Add);
}

const struct {
    const char *name;
    Kernel run;
} kernels[] = {
    {"quantise8", encode<&Table::quantise8, 128, false, false>},
    {"quantise8_random", encode<&Table::quantise8, 128, false, true>},
    {"quantise8_feedback", encode<&Table::quantise8, 128, true, false>},
    {"quantise4", encode<&Table::quantise4, 128, false, false>},
    {"quantise4_feedback", encode<&Table::quantise4, 128, true, false>},
    {"quantise1", encode<&Table::quantise1, 1024, false, false>},
    {"quantise1_feedback", encode<&Table::quantise1, 1024, true, false>},
    {"dequantise8", decode<&Table::dequantise8, 128, false>},
    {"dequantise8_add", decode<&Table::dequantise8, 128, true>},
    {"dequantise4", decode<&Table::dequantise4, 128, false>},
    {"dequantise4_add", decode<&Table::dequantise4, 128, true>},
    {"dequantise1", decode<&Table::dequantise1, 1024, false>},
    {"dequantise1_add", decode<&Table::dequantise1, 1024, true>},
    {"store_f32", store<&Table::store_f32>},
    {"store_bf16", store<&Table::store_bf16>},
    {"store_fp16", store<&Table::store_fp16>},
    {"load_f32_add", load<&Table::load_f32, true>},
    {"load_bf16", load<&Table::load_bf16, false>},
    {"load_bf16_add", load<&Table::load_bf16, true>},
    {"load_fp16", load<&Table::load_fp16, false>},
    {"load_fp16_add", load<&Table::load_fp16, true>},
};

// Of this thread on a processor, so that waiting for one does not count.
double now()
{
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <typename F> double seconds(F run)
{
    double start = now();
    run();
    benchmark::ClobberMemory();
    return now() - start;
}

// Small arrays are handled several times per measurement, so that reading the clock does not count.
void measure(benchmark::State &state, const Table *level, Kernel run)
{
    Buffers b(static_cast<size_t>(state.range(0)));
    const size_t nbytes = b.src.size() * sizeof(float);
    const int repeat = nbytes < (1 << 20) ? static_cast<int>((1 << 20) / nbytes) : 1;
    double copy_s = INFINITY, kernel_s = INFINITY;
    encode<&Table::quantise8, 128, false, false>(*level, b); // codes and scales to decode
    for (auto _ : state) {
        double s = seconds([&] {
            for (int i = 0; i < repeat; i++)
                run(*level, b);
        });
        double copy = seconds([&] {
            for (int i = 0; i < repeat; i++) {
                std::memcpy(b.copy.data(), b.src.data(), nbytes);
                benchmark::ClobberMemory();
            }
        });
        copy_s = std::min(copy_s, copy);
        kernel_s = std::min(kernel_s, s);
        state.SetIterationTime(s / repeat);
    }
    state.SetBytesProcessed(static_cast<int64_t>(nbytes) * state.iterations());
    state.counters["best"] = benchmark::Counter(static_cast<double>(nbytes) * repeat / kernel_s,
                                                benchmark::Counter::kDefaults,
                                                benchmark::Counter::kIs1000);
    state.counters["x_memcpy"] = copy_s / kernel_s;
}

} // namespace

int main(int argc, char **argv)
{
    for (const auto &kernel : kernels)
        for (int level = WRI_SIMD_SCALAR; level < WRI_SIMD_LEVEL_COUNT; level++)
            if (const Table *k = wri_kernels_at(level))
                benchmark::RegisterBenchmark(
                    (std::string(kernel.name) + "/" + k->name).c_str(),
                    [=](benchmark::State &state) { measure(state, k, kernel.run); })
                    ->Arg(4 << 10)->Arg(32 << 10)->Arg(64 << 20)->UseManualTime();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
