/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream-ordered call does around its data without asking the host: frames written and
 * compared, the verdict, and the state that it decides about. Lists travel as kernel arguments. */
#include "kernels.cuh"
#include "table.h"

#define BATCH 16 /* frames of a launch: arguments take 4096 bytes at most */

struct frame_batch {
    struct wri_device_frame frame[BATCH];
};

/* A warp per frame, a lane per word. */
INLINE uint32_t expected_word(const struct wri_device_frame &frame)
{
    const uint32_t *words = (const uint32_t *)frame.frame;
    return words[lane_id()];
}

__global__ void seal_kernel(struct frame_batch batch, const struct wri_verdict *verdict)
{
    const struct wri_device_frame &frame = batch.frame[threadIdx.x / WARP];
    uint32_t word = expected_word(frame);
    if (lane_id() == WRI_DEVICE_FRAME_FLAGS / 4 && verdict->nonfinite)
        word |= 1u << 8 * (WRI_DEVICE_FRAME_FLAGS % 4);
    ((uint32_t *)frame.at)[lane_id()] = word;
}

__global__ void verify_kernel(struct frame_batch batch, struct wri_verdict *verdict)
{
    const struct wri_device_frame &frame = batch.frame[threadIdx.x / WARP];
    uint32_t found = ((const uint32_t *)frame.at)[lane_id()];
    uint32_t differs = found ^ expected_word(frame);
    if (lane_id() == WRI_DEVICE_FRAME_FLAGS / 4) {
        uint32_t flag = 1u << 8 * (WRI_DEVICE_FRAME_FLAGS % 4);
        note_nonfinite(verdict, found & flag);
        differs &= ~flag;
    }
    if (__any_sync(ALL, differs != 0) && lane_id() == 0)
        atomicCAS(&verdict->error, 0u, frame.error);
}

template <typename V>
static wring_status launch_frames(void (*kernel)(struct frame_batch, V *),
                                  const struct wri_device_frame *frames, size_t n, V *verdict,
                                  void *stream)
{
    for (size_t i = 0; i < n; i += BATCH) {
        struct frame_batch batch;
        size_t part = n - i < BATCH ? n - i : BATCH;
        memcpy(batch.frame, frames + i, part * sizeof(*frames));
        wring_status status = launch(kernel, 1, (unsigned)(part * WARP), stream, batch, verdict);
        if (status != WRING_OK)
            return status;
    }
    return WRING_OK;
}

wring_status wri_cuda_seal(const struct wri_device_frame *frames, size_t n,
                           const struct wri_verdict *verdict, void *stream)
{
    return launch_frames(seal_kernel, frames, n, verdict, stream);
}

wring_status wri_cuda_verify(const struct wri_device_frame *frames, size_t n,
                             struct wri_verdict *verdict, void *stream)
{
    return launch_frames(verify_kernel, frames, n, verdict, stream);
}

/* ---- residuals ------------------------------------------------------------------------------- */

INLINE bool clean(const struct wri_verdict *verdict)
{
    return verdict->nonfinite == 0 && verdict->error == 0 && verdict->failed == 0;
}

__global__ void __launch_bounds__(256)
    fold_kernel(float *to0, float *to1, const uint32_t *to_current, float *from0, float *from1,
                const uint32_t *from_current, size_t n, float weight,
                const struct wri_verdict *verdict)
{
    if (!clean(verdict))
        return;
    float *to = *to_current & 1 ? to1 : to0;
    float *from = *from_current & 1 ? from1 : from0;
    for (size_t i = thread_id(); i < n; i += thread_count()) {
        to[i] += weight * from[i];
        from[i] = 0;
    }
}

wring_status wri_cuda_fold(float *const to[2], const uint32_t *to_current, size_t to_begin,
                           float *const from[2], const uint32_t *from_current, size_t n,
                           float weight, const struct wri_verdict *verdict, void *stream)
{
    return launch(fold_kernel, div_up(n, 1024), 256, stream, to[0] + to_begin, to[1] + to_begin,
                  to_current, from[0], from[1], from_current, n, weight, verdict);
}

/* ---- commit ---------------------------------------------------------------------------------- */

/* A part of a residual: its generations are exchanged, element by element. */
__global__ void __launch_bounds__(256)
    exchange_kernel(struct wri_device_commit commit, const struct wri_verdict *verdict)
{
    if (!clean(verdict))
        return;
    float *one = commit.residual[0] + commit.begin, *other = commit.residual[1] + commit.begin;
    for (size_t i = thread_id(); i < commit.end - commit.begin; i += thread_count()) {
        float was = one[i];
        one[i] = other[i];
        other[i] = was;
    }
}

#define ADVANCES 64

/* Words to change, NULL ones left out. */
struct advance_batch {
    uint32_t *exchange[ADVANCES];
    uint64_t *step[ADVANCES];
    uint64_t by;
};

__global__ void advance_kernel(struct advance_batch batch, const struct wri_verdict *verdict)
{
    if (!clean(verdict))
        return;
    if (batch.exchange[threadIdx.x])
        *batch.exchange[threadIdx.x] ^= 1;
    if (batch.step[threadIdx.x])
        *batch.step[threadIdx.x] += batch.by;
}

static bool whole(const struct wri_device_commit *commit)
{
    return commit->begin == 0 && commit->end == commit->count;
}

wring_status wri_cuda_commit(const struct wri_device_commit *commits, size_t n, uint64_t by,
                             const struct wri_verdict *verdict, void *stream)
{
    wring_status status = WRING_OK;
    for (size_t i = 0; status == WRING_OK && i < n; i++) {
        const struct wri_device_commit *commit = &commits[i];
        if (commit->current && commit->begin < commit->end && !whole(commit))
            status = launch(exchange_kernel, div_up(commit->end - commit->begin, 1024), 256, stream,
                            *commit, verdict);
    }
    for (size_t first = 0; status == WRING_OK && first < n; first += ADVANCES) {
        struct advance_batch batch = {};
        batch.by = by;
        for (size_t i = first; i < n && i < first + ADVANCES; i++) {
            batch.exchange[i - first] = whole(&commits[i]) ? commits[i].current : nullptr;
            batch.step[i - first] = commits[i].step;
        }
        status = launch(advance_kernel, 1, ADVANCES, stream, batch, verdict);
    }
    return status;
}
