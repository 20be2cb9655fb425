/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame in front of every payload: 128 bytes, little-endian (docs/wire-format.md).
 *
 * A payload of up to WRI_EAGER bytes travels in one message with its frame, a larger one in a
 * second message of its own; so a first message always fits the receiver's buffer, and ranks that
 * disagree can tell each other about what.
 */
#ifndef WRI_COLLECTIVE_FRAME_H
#define WRI_COLLECTIVE_FRAME_H

#include <wring/wring.h>

#define WRI_FRAME_MAGIC 0x676e7277u /* "wrng" */
#define WRI_FRAME_VERSION 1
#define WRI_FRAME_NBYTES 128
#define WRI_EAGER 8192

enum wri_frame_flags { WRI_FRAME_NONFINITE = 1, WRI_FRAME_RAW = 2, WRI_FRAME_HASHED = 4 };

struct wri_frame {
    uint32_t magic;
    uint8_t version, header_nbytes;
    uint16_t flags;
    uint8_t kind, op, dtype, nstages;
    uint16_t stage[5]; /* wire ids; unused ones 0 */
    uint16_t tag;      /* which message of the piece */
    uint64_t spec_digest;
    uint64_t count; /* elements of the whole call */
    uint64_t payload_nbytes;
    uint64_t nonce;  /* of the communicator's creation */
    uint32_t epoch;  /* of the communicator */
    uint32_t source; /* rank */
    uint64_t operation;
    uint64_t step, last_good_step;
    uint32_t plan_epoch, plan_digest;
    uint32_t piece;
    uint32_t tensor_digest; /* of the names of the tensors, 0 if stateless */
    uint64_t payload_count; /* elements in this payload */
    uint64_t payload_hash;  /* XXH3 if HASHED, else 0 */
    uint64_t header_hash;   /* XXH3 of the 120 bytes before */
};
_Static_assert(sizeof(struct wri_frame) == WRI_FRAME_NBYTES, "the frame is 128 bytes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the frame is little-endian");

/* Fill in payload hash (if HASHED is set) and header hash. */
void wri_frame_seal(struct wri_frame *frame, const void *payload);

/* Check a header that was received, NBYTES long, against what was expected: an otherwise equal
 * frame. WRING_E_CORRUPT: it is no frame. WRING_E_MISMATCH: another call; the message names both
 * sides. */
wring_status wri_frame_check(const struct wri_frame *frame, size_t nbytes,
                             const struct wri_frame *expected);

/* The call that a frame belongs to, in words. */
void wri_frame_describe(const struct wri_frame *frame, char *text, size_t capacity);

/* After the payload came: check its hash. */
wring_status wri_frame_check_payload(const struct wri_frame *frame, const void *payload);

#endif
