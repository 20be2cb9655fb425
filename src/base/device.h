/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where memory lives and work is ordered: one table, implemented for the host in device.c and for
 * CUDA by a module. Only kernels exist twice, never algorithms.
 *
 * A device's functions enqueue on the stream they are given and return; nothing waits for the
 * device but what says so. The host does everything inside the call, and its kernels are not in
 * this table: codec/ and simd/ are called directly.
 */
#ifndef WRI_BASE_DEVICE_H
#define WRI_BASE_DEVICE_H

#include <wring/plugin.h>

/* On the device: what the kernels of a call found. All zero at its start. */
struct wri_verdict {
    uint32_t nonfinite; /* some input or result was NaN or Inf */
    uint32_t error;     /* 0, or which message was wrong: see verify */
    uint32_t failed;    /* the communicator had failed when state was about to change */
};

/* As struct wring_encode, from any float type of up to 32 bits and with the residual's generations
 * told apart on the device. p = src / divisor + beta * residual. */
struct wri_device_encode {
    const struct wring_stage *stage; /* host memory, read before the call returns */
    wring_dtype src_dtype;
    const void *src;
    size_t count;
    float divisor;      /* 0: none */
    float *residual[2]; /* generation 0 and 1; NULL: none */
    float beta;
    struct wring_random_key random;
    const uint32_t *current; /* which residual counts, on the device; NULL: residual[0] */
    const uint64_t *step;    /* instead of random.step, on the device; NULL: not */
    uint64_t first;
    void *dst;     /* 4-byte aligned */
    void *scratch; /* scratch_nbytes bytes, 16-byte aligned */
    struct wri_verdict *verdict;
    void *stream;
};

/* As struct wring_decode. Malformed bytes set verdict->error to ERROR; where verdict->error is set,
 * what is decoded is NaN. */
struct wri_device_decode {
    const struct wring_stage *stage;
    const void *src;
    wring_dtype dst_dtype; /* float32 if ADD */
    void *dst;
    size_t count;
    bool add;
    void *scratch;
    struct wri_verdict *verdict;
    uint32_t error;
    void *stream;
};

/* dst[i] = src[i] / divisor, types as for wri_array_convert; notes what is written if it is not
 * finite, and writes NaN to float types where verdict->error is set. */
struct wri_device_convert {
    wring_dtype dst_dtype, src_dtype;
    void *dst;
    const void *src;
    size_t count;
    double divisor; /* 0: none */
    struct wri_verdict *verdict;
    void *stream;
};

#define WRI_DEVICE_FRAME_NBYTES 128
#define WRI_DEVICE_FRAME_FLAGS 6 /* offset of its 16 bits of flags; bit 0: non-finite */

/* A frame to write, or the one that is expected, at AT. */
struct wri_device_frame {
    void *at; /* 4-byte aligned */
    uint32_t error;
    unsigned char frame[WRI_DEVICE_FRAME_NBYTES];
};

/* A residual of COUNT elements whose generations change places in [begin, end): by one word if that
 * is all. Done again, it is undone. */
struct wri_device_commit {
    uint32_t *current; /* NULL: there is no residual */
    uint64_t *step;    /* to be counted on; NULL: none */
    float *residual[2];
    size_t begin, end, count;
};

/* Squares are added up in groups of so many elements, in so many lanes. */
#define WRI_SQUARES_GROUP 16384
#define WRI_SQUARES_LANES 128

struct wri_device {
    size_t size; /* sizeof(struct wri_device) */
    const char *name;
    bool host; /* ordinary memory; streams and events are trivially complete */

    /* How many devices this machine has; WRING_E_MODULE says why none can be used. */
    wring_status (*count)(int *count_out);
    /* The calling thread's current device; and make INDEX current. */
    wring_status (*current)(int *index_out);
    wring_status (*select)(int index);
    /* The device that STREAM belongs to; WRING_E_ARGUMENT if it is no stream. */
    wring_status (*stream_device)(void *stream, int *index_out);
    /* Whose memory POINTER is: the index of a device, or -1 for memory of the host. */
    wring_status (*owner)(const void *pointer, int *index_out);

    /* Stream-ordered: the block may be used by work enqueued on STREAM after the call. */
    wring_status (*alloc)(const struct wri_device *, void *stream, size_t nbytes, void **out);
    void (*free)(const struct wri_device *, void *stream, void *block);
    /* Host memory that copies reach without the processor. May wait for the device. */
    wring_status (*alloc_pinned)(size_t nbytes, void **out);
    void (*free_pinned)(void *block);

    /* Enqueue a copy; either side may be host memory (pinned, to be asynchronous). */
    wring_status (*copy)(const struct wri_device *, void *stream, void *dst, const void *src,
                         size_t nbytes);
    wring_status (*zero)(void *stream, void *dst, size_t nbytes);

    wring_status (*stream_open)(void **stream_out);
    void (*stream_close)(void *stream);
    wring_status (*stream_wait)(void *stream); /* blocks until it is empty */

    /* An event marks a point of a stream: record it, let another stream wait for it, ask for it. */
    wring_status (*event_open)(const struct wri_device *, void **event_out);
    void (*event_close)(const struct wri_device *, void *event);
    wring_status (*event_record)(const struct wri_device *, void *event, void *stream);
    wring_status (*event_wait)(const struct wri_device *, void *event, void *stream);
    wring_status (*event_test)(const struct wri_device *, void *event); /* WRING_AGAIN: not yet */
    /* Call FUNCTION, on a thread of the device's, when STREAM has come to here. */
    wring_status (*call_back)(void *stream, void (*function)(void *), void *arg);

    /* WRING_E_UNSUPPORTED if a stage of the chain has no half here; names it. */
    wring_status (*supports)(const struct wring_stage *chain);
    size_t (*scratch_nbytes)(const struct wring_stage *stage, size_t count);
    wring_status (*encode)(const struct wri_device_encode *);
    wring_status (*decode)(const struct wri_device_decode *);

    wring_status (*convert)(const struct wri_device_convert *);
    /* acc[i] = acc[i] OP src[i], as wri_array_reduce, ACC of the accumulator type. */
    wring_status (*reduce)(wring_op op, wring_dtype acc_dtype, void *acc, wring_dtype src_dtype,
                           const void *src, size_t count, void *stream);
    /* acc[i] = scale * acc[i] + weight * src[i], as wri_array_weigh; array[i] = factor * array[i],
     * as wri_array_scale. */
    wring_status (*weigh)(wring_dtype acc_dtype, void *acc, double scale, wring_dtype src_dtype,
                          const void *src, double weight, size_t count, void *stream);
    wring_status (*scale)(wring_dtype dtype, void *array, double factor, size_t count,
                          void *stream);
    /* sums[g] = wri_array_squares of group g of SRC; SUMS is on the device. */
    wring_status (*squares)(wring_dtype dtype, const void *src, size_t count, double *sums,
                            void *stream);

    /* Unless VERDICT has anything: to[i] += weight * from[i], from[i] = 0, of the generations that
     * count; N elements from TO_BEGIN. */
    wring_status (*fold)(float *const to[2], const uint32_t *to_current, size_t to_begin,
                         float *const from[2], const uint32_t *from_current, size_t n, float weight,
                         const struct wri_verdict *, void *stream);

    /* Write N frames, the flag added if VERDICT has it. */
    wring_status (*seal)(const struct wri_device_frame *, size_t n, const struct wri_verdict *,
                         void *stream);
    /* Compare N frames but for their flags with what stands at their places; the first one that
     * differs leaves its `error`. Flags found are added to VERDICT. */
    wring_status (*verify)(const struct wri_device_frame *, size_t n, struct wri_verdict *,
                           void *stream);
    /* Unless VERDICT has anything: commit, and add BY to the steps: 1, or UINT64_MAX to undo. */
    wring_status (*commit)(const struct wri_device_commit *, size_t n, uint64_t by,
                           const struct wri_verdict *, void *stream);
};

extern const struct wri_device wri_device_host;

/* The named device's table ("cuda"), its module loaded from FOLDER (empty: beside the library).
 * WRING_E_MODULE says what is missing. Any thread. */
wring_status wri_device_find(const char *name, const char *folder, const struct wri_device **out);

#endif
