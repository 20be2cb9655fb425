/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing and checking frames. Received bytes are hostile: nothing is used before it was
 * compared. */
#include "collective/frame.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/collective.h"

#include <stdio.h>
#include <string.h>

static uint64_t header_hash(const struct wri_frame *frame)
{
    return wri_hash(frame, offsetof(struct wri_frame, header_hash), 0);
}

void wri_frame_seal(struct wri_frame *frame, const void *payload)
{
    frame->payload_hash =
        frame->flags & WRI_FRAME_HASHED ? wri_hash(payload, frame->payload_nbytes, 0) : 0;
    frame->header_hash = header_hash(frame);
}

/* "topk+int8" from wire ids. */
static void stage_names(const struct wri_frame *frame, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < 5 && frame->stage[i] != 0; i++) {
        const struct wring_codec_ops *ops = NULL;
        for (size_t j = 0; (ops = wri_codec_at(j)) != NULL && ops->wire_id != frame->stage[i]; j++)
            ;
        int n = snprintf(text + used, capacity - used, "%s%s", i ? "+" : "", ops ? ops->name : "?");
        used = wri_min(used + (size_t)(n > 0 ? n : 0), capacity - 1);
    }
}

void wri_frame_describe(const struct wri_frame *frame, char *text, size_t capacity)
{
    char stages[64];
    stage_names(frame, stages, sizeof(stages));
    snprintf(text, capacity, "%s %s of %llu %s with %s (spec %08x, plan %08x, tensors %08x)",
             wri_kind_name(frame->kind), wri_op_name(frame->op), (unsigned long long)frame->count,
             wring_dtype_name(frame->dtype), stages, (unsigned)frame->spec_digest,
             frame->plan_digest, frame->tensor_digest);
}

static bool same_call(const struct wri_frame *a, const struct wri_frame *b)
{
    return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->count == b->count &&
           a->nstages == b->nstages && memcmp(a->stage, b->stage, sizeof(a->stage)) == 0 &&
           a->spec_digest == b->spec_digest && a->plan_digest == b->plan_digest &&
           a->plan_epoch == b->plan_epoch && a->tensor_digest == b->tensor_digest;
}

static bool same_message(const struct wri_frame *a, const struct wri_frame *b)
{
    return a->source == b->source && a->operation == b->operation && a->piece == b->piece &&
           a->tag == b->tag && a->payload_count == b->payload_count &&
           a->payload_nbytes == b->payload_nbytes;
}

wring_status wri_frame_check(const struct wri_frame *frame, size_t nbytes,
                             const struct wri_frame *expected)
{
    if (nbytes < WRI_FRAME_NBYTES || frame->magic != WRI_FRAME_MAGIC ||
        frame->header_nbytes != WRI_FRAME_NBYTES || frame->header_hash != header_hash(frame))
        WRI_FAIL(WRING_E_CORRUPT, "%zu bytes that are no wring frame", nbytes);
    if (frame->version != WRI_FRAME_VERSION)
        WRI_FAIL(WRING_E_MISMATCH, "it speaks wire version %d, this rank %d", frame->version,
                 WRI_FRAME_VERSION);
    if (frame->flags & ~(WRI_FRAME_NONFINITE | WRI_FRAME_HASHED))
        WRI_FAIL(WRING_E_CORRUPT, "flags %#x of a frame, which this rank cannot read",
                 (unsigned)frame->flags);
    if (frame->nonce != expected->nonce || frame->epoch != expected->epoch)
        WRI_FAIL(WRING_E_CORRUPT, "a frame of another job or communicator");
    if (!same_call(frame, expected)) {
        char theirs[192], ours[192];
        wri_frame_describe(frame, theirs, sizeof(theirs));
        wri_frame_describe(expected, ours, sizeof(ours));
        WRI_FAIL(WRING_E_MISMATCH, "operation %llu is %s there, but %s on this rank",
                 (unsigned long long)expected->operation, theirs, ours);
    }
    if (!same_message(frame, expected))
        WRI_FAIL(WRING_E_CORRUPT, "a frame that is out of place: operation %llu piece %u tag %u",
                 (unsigned long long)frame->operation, frame->piece, frame->tag);
    return WRING_OK;
}

wring_status wri_frame_check_payload(const struct wri_frame *frame, const void *payload)
{
    if (frame->flags & WRI_FRAME_HASHED &&
        frame->payload_hash != wri_hash(payload, frame->payload_nbytes, 0))
        WRI_FAIL(WRING_E_CORRUPT, "%llu payload bytes do not match their hash",
                 (unsigned long long)frame->payload_nbytes);
    return WRING_OK;
}
