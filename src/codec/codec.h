/* SPDX-License-Identifier: Apache-2.0 */
/* Internal calls of the codec layer: registry, chains, and encode/decode of a run of elements of
 * any type. A run starts on a unit boundary of its tensor, and ends on one or at its end. */
#ifndef WRI_CODEC_CODEC_H
#define WRI_CODEC_CODEC_H

#include "base/device.h"

#define WRI_STAGES_MAX 5
#define WRI_SPEC_MAX 256

/* A parsed chain. An `ef` stage is taken out of the list into `feedback`; stage[0..nstages) ends
 * with a quantiser (`none` where the spec names none). */
struct wring_codec {
    char spec[WRI_SPEC_MAX]; /* canonical */
    uint64_t digest;         /* hash of spec: equal on all ranks, part of every frame */
    struct wring_stage stage[WRI_STAGES_MAX];
    size_t nstages;
    bool feedback;
    float beta;        /* weight of the residual */
    int residual_bits; /* of an element of it: 8, 16 or 32 */
    bool exact;        /* codec none: every type, bytes as they are */
};

/* The INDEX-th stage of the registry, NULL past the end; and by name of LENGTH characters. */
const struct wring_codec_ops *wri_codec_at(size_t index);
const struct wring_codec_ops *wri_codec_find(const char *name, size_t length);

/* The INDEX-th stage for people: value is its accepted form, detail its parameters one a line.
 * False past the end. The strings stay valid until the thread's next call. */
bool wri_codec_info(size_t index, wring_info *info_out);

/* A codec from its text; WRING_E_SPEC names the stage, its position and the accepted form. */
wring_status wri_codec_create(const char *spec, wring_codec **codec_out);
void wri_codec_destroy(wring_codec *codec);

/* What a stage calls for the rest of the chain, its `next`: sizes as in wring_codec_ops. */
size_t wri_stage_nbytes(const struct wring_stage *stage, size_t count);
size_t wri_stage_scratch_nbytes(const struct wring_stage *stage, size_t count);

/* Elements that tensors of COUNT elements are cut by: the chain's unit, or COUNT for whole-tensor
 * units; at least 1. */
size_t wri_codec_unit(const wring_codec *codec, size_t count);
bool wri_codec_whole_unit(const wring_codec *codec);

/* WRING_OK if the codec takes DTYPE with OP; else WRING_E_UNSUPPORTED with a message. */
wring_status wri_codec_accepts(const wring_codec *codec, wring_dtype dtype, wring_op op);

/* Encoded bytes of a run: exact for FIXED, else the bound; a multiple of 4; 0 for count 0, a type
 * that the codec does not take, or more than 2^56 elements. And working memory for encoding or
 * decoding it, to be 64-byte aligned. */
size_t wri_codec_nbytes(const wring_codec *codec, wring_dtype dtype, size_t count);
size_t wri_codec_scratch_nbytes(const wring_codec *codec, wring_dtype dtype, size_t count);

/* The same of a run on a device; and whether it has all of the codec's stages. */
size_t wri_codec_device_scratch_nbytes(const wring_codec *codec, const struct wri_device *device,
                                       size_t count);
wring_status wri_codec_on_device(const wring_codec *codec, const struct wri_device *device);

/* Where a run happens. On a device all its pointers but `codec` are the device's, the call only
 * enqueues, and what it finds goes to the verdict. */
struct wri_place {
    const struct wri_device *device; /* NULL: the host, and nothing below counts */
    void *stream;
    struct wri_verdict *verdict;
    uint32_t error; /* what malformed bytes leave in the verdict */
};

/* DTYPE is the type that travels. SRC_DTYPE is it or its accumulator type. */
struct wri_encode_run {
    const wring_codec *codec;
    wring_dtype dtype, src_dtype;
    const void *src;
    size_t count;
    const float *residual_in; /* NULL: none */
    float *residual_out;      /* NULL: not wanted */
    struct wring_random_key random;
    uint64_t first; /* index in the tensor of src[0] */
    void *dst;      /* wri_codec_nbytes() bytes, aligned to 4 and to the size of DTYPE */
    void *scratch;
    bool nonfinite; /* out: ORed */
    struct wri_place place;
    /* On a device: what the source is divided by first, 0 for nothing; whether the two residuals
     * change places (NULL: no); what counts instead of random.step (NULL: that). */
    double divisor;
    const uint32_t *current;
    const uint64_t *step;
};
wring_status wri_codec_encode_run(struct wri_encode_run *run);

/* DST_DTYPE is DTYPE or its accumulator type. With `add`, reduces with OP into DST, which then is
 * of the accumulator type; only SUM and AVG for lossy codecs. */
struct wri_decode_run {
    const wring_codec *codec;
    wring_dtype dtype, dst_dtype;
    const void *src; /* hostile bytes, aligned to 4 and to the size of DTYPE */
    size_t nbytes;   /* must equal wri_codec_nbytes() */
    void *dst;
    size_t count;
    bool add;
    wring_op op;
    void *scratch;
    struct wri_place place;
};
wring_status wri_codec_decode_run(const struct wri_decode_run *run);

/* What these two do for a place that is not the host. */
wring_status wri_codec_encode_device(const struct wri_encode_run *run);
wring_status wri_codec_decode_device(const struct wri_decode_run *run);

/* Set the thread's floating-point mode to round-to-nearest without flush-to-zero, as all codecs
 * assume, and put back what was there. */
unsigned wri_float_mode_enter(void);
void wri_float_mode_leave(unsigned saved);

#endif
