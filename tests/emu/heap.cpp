/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whose memory an address is, and who may free it. */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>

#include <map>
#include <mutex>

struct memory {
    size_t nbytes;
    cudaMemoryType type;
    int device;
    bool freed; /* perhaps its stream is not there yet */
};

struct memories {
    std::mutex lock;
    std::map<uintptr_t, memory> blocks;
    size_t used[DEVICES_MAX] = {};
};

static void look_for_leaks();

/* Never destroyed: streams of a process that exits may still run. */
static memories &heap()
{
    static memories *one = [] {
        atexit(look_for_leaks);
        return new memories;
    }();
    return *one;
}

static void look_for_leaks()
{
    std::lock_guard<std::mutex> lock(heap().lock);
    size_t count = 0, nbytes = 0;
    for (auto &block : heap().blocks)
        if (!block.second.freed) {
            count++;
            nbytes += block.second.nbytes;
        }
    if (count == 0 || !emu_setting("EMU_STRICT", 0))
        return;
    fprintf(stderr, "emulated CUDA: %zu blocks of %zu bytes were never freed\n", count, nbytes);
    abort();
}

static cudaError_t block_open(void **block, size_t nbytes, cudaMemoryType type)
{
    if (emu_driver() != cudaSuccess)
        return emu_answer(emu_driver());
    nbytes = nbytes ? nbytes : 1;
    std::lock_guard<std::mutex> lock(heap().lock);
    size_t &used = heap().used[emu_device()];
    if (type == cudaMemoryTypeDevice && used + nbytes > emu_setting("EMU_MEMORY", (size_t)1 << 34))
        return emu_answer(cudaErrorMemoryAllocation);
    void *memory_block = nullptr;
    /* The exact size, so that AddressSanitizer sees the first byte past it. */
    if (posix_memalign(&memory_block, 256, nbytes) != 0)
        return emu_answer(cudaErrorMemoryAllocation);
    memset(memory_block, 0xA5, nbytes);
    used += type == cudaMemoryTypeDevice ? nbytes : 0;
    heap().blocks[(uintptr_t)memory_block] = {nbytes, type, emu_device(), false};
    *block = memory_block;
    return emu_answer(cudaSuccess);
}

/* Nobody may free it again, from now on. */
static cudaError_t block_claim(void *block, cudaMemoryType type)
{
    std::lock_guard<std::mutex> lock(heap().lock);
    auto found = heap().blocks.find((uintptr_t)block);
    if (found != heap().blocks.end() && found->second.type == type && !found->second.freed) {
        found->second.freed = true;
        return cudaSuccess;
    }
    fprintf(stderr, "emulated CUDA: %p is freed twice, or by another than it came from\n", block);
    if (emu_setting("EMU_STRICT", 0))
        abort();
    return cudaErrorInvalidValue;
}

static void block_close(void *block)
{
    std::lock_guard<std::mutex> lock(heap().lock);
    auto found = heap().blocks.find((uintptr_t)block);
    if (found->second.type == cudaMemoryTypeDevice)
        heap().used[found->second.device] -= found->second.nbytes;
    heap().blocks.erase(found);
    free(block);
}

static cudaError_t free_now(void *block, cudaMemoryType type)
{
    cudaError_t error = block ? block_claim(block, type) : cudaSuccess;
    cudaDeviceSynchronize();
    if (block && error == cudaSuccess)
        block_close(block);
    return emu_answer(error);
}

cudaError_t cudaMalloc(void **block, size_t nbytes)
{
    return block_open(block, nbytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFree(void *block)
{
    return free_now(block, cudaMemoryTypeDevice);
}

/* The address is known at once; what was enqueued before may not use it, which nobody checks. */
cudaError_t cudaMallocAsync(void **block, size_t nbytes, cudaStream_t)
{
    return block_open(block, nbytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFreeAsync(void *block, cudaStream_t stream)
{
    cudaError_t error = block ? block_claim(block, cudaMemoryTypeDevice) : cudaSuccess;
    if (!block || error != cudaSuccess)
        return emu_answer(error);
    return emu_enqueue(stream, [block] { block_close(block); });
}

cudaError_t cudaHostAlloc(void **block, size_t nbytes, unsigned)
{
    return block_open(block, nbytes, cudaMemoryTypeHost);
}

cudaError_t cudaFreeHost(void *block)
{
    return free_now(block, cudaMemoryTypeHost);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    std::lock_guard<std::mutex> lock(heap().lock);
    *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, (void *)pointer};
    auto after = heap().blocks.upper_bound((uintptr_t)pointer);
    if (after == heap().blocks.begin())
        return emu_answer(cudaSuccess);
    auto found = --after;
    if ((uintptr_t)pointer - found->first < found->second.nbytes)
        *attributes = {found->second.type, found->second.device, (void *)pointer,
                       found->second.type == cudaMemoryTypeHost ? (void *)pointer : nullptr};
    return emu_answer(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t nbytes, cudaMemcpyKind,
                            cudaStream_t stream)
{
    return emu_enqueue(stream, [=] {
        if (nbytes > 0)
            memmove(dst, src, nbytes);
    });
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t nbytes, cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(dst, src, nbytes, kind, cudaStreamLegacy);
    return error != cudaSuccess ? error : cudaStreamSynchronize(cudaStreamLegacy);
}

cudaError_t cudaMemsetAsync(void *dst, int byte, size_t nbytes, cudaStream_t stream)
{
    return emu_enqueue(stream, [=] {
        if (nbytes > 0)
            memset(dst, byte, nbytes);
    });
}

cudaError_t cudaMemset(void *dst, int byte, size_t nbytes)
{
    return cudaMemsetAsync(dst, byte, nbytes, cudaStreamLegacy);
}
