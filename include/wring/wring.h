/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wring: compressed gradient communication.
 *
 * This header is the whole user API, in the order in which one meets it:
 *
 *   1 status        every call returns one; the thread's last error message says more
 *   2 types         element types and reductions
 *   3 codec         how the bytes look: "none", "int8", "ef+topk:0.01+int8"
 *   4 context       modules, settings, one progress thread
 *   5 communicator  a group of ranks and how they find each other
 *   6 collectives   blocking calls on plain buffers: five lines to a drop-in allreduce
 *   7 tensor        a named gradient with state (error feedback)
 *   8 core call     the one asynchronous call that everything above is built on
 *   9 scheduler     buckets, overlap with backward, gradient accumulation
 *  10 information   what is built in, found, set, and what was done to each tensor
 *
 * Conventions. `count` is in elements, `nbytes` in bytes; other units are suffixes (`timeout_ms`).
 * Outputs come last, end in `_out`, and are written only on success. Options structs carry their
 * own size first: start from the matching `WRING_..._INIT`. Buffers belong to the caller; a buffer
 * given to an asynchronous call must stay until its request is done. Destroy functions accept NULL.
 *
 * Threads. Calls on different contexts are independent. Within one context any thread may call, one
 * thread at a time per communicator, tensor or scheduler. All ranks of a communicator must issue
 * the same collectives in the same order. After fork() only the parent may go on using a context.
 */
#ifndef WRING_WRING_H
#define WRING_WRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WRING_VERSION_MAJOR 0
#define WRING_VERSION_MINOR 1
#define WRING_VERSION_PATCH 0

#if defined(__GNUC__)
#define WRING_API __attribute__((visibility("default")))
#else
#define WRING_API
#endif

/* ---- 1 status -------------------------------------------------------------------------------- */

/* The one list of results: X(name, value, text). Values are stable. */
#define WRING_STATUS_LIST(X)                                                                       \
    X(WRING_OK, 0, "success")                                                                      \
    X(WRING_AGAIN, 1, "not finished yet, call again")                                              \
    X(WRING_E_ARGUMENT, 2, "invalid argument")                                                     \
    X(WRING_E_SPEC, 3, "invalid codec specification")                                              \
    X(WRING_E_CONFIG, 4, "invalid setting")                                                        \
    X(WRING_E_UNSUPPORTED, 5, "not supported")                                                     \
    X(WRING_E_STATE, 6, "call out of order")                                                       \
    X(WRING_E_MEMORY, 7, "out of memory")                                                          \
    X(WRING_E_FULL, 8, "destination too small")                                                    \
    X(WRING_E_SYSTEM, 9, "system call failed")                                                     \
    X(WRING_E_MODULE, 10, "module missing or unusable")                                            \
    X(WRING_E_TIMEOUT, 11, "timed out")                                                            \
    X(WRING_E_PEER_LOST, 12, "lost a peer")                                                        \
    X(WRING_E_MISMATCH, 13, "ranks disagree about the operation")                                  \
    X(WRING_E_CORRUPT, 14, "malformed data received")                                              \
    X(WRING_E_ABORTED, 15, "aborted")                                                              \
    X(WRING_E_INTERNAL, 16, "internal error")

typedef enum wring_status {
#define WRING_STATUS_ENUM(name, value, text) name = value,
    WRING_STATUS_LIST(WRING_STATUS_ENUM)
#undef WRING_STATUS_ENUM
} wring_status;

/* Name ("WRING_E_PEER_LOST") and one-line text of a status; never NULL. Any thread. */
WRING_API const char *wring_status_name(wring_status status);
WRING_API const char *wring_status_text(wring_status status);

/* What went wrong in the thread's last failed call, in words, until its next one; "" if nothing. */
WRING_API const char *wring_error_message(void);

/* MAJOR * 10000 + MINOR * 100 + PATCH of the library that is really loaded. */
WRING_API int wring_version(void);

/* ---- 2 types --------------------------------------------------------------------------------- */

/* Element types. Lossy codecs take the first three; the others travel with codec "none". */
typedef enum wring_dtype {
    WRING_FLOAT32,
    WRING_FLOAT16,
    WRING_BFLOAT16,
    WRING_FLOAT64,
    WRING_INT8,
    WRING_UINT8,
    WRING_INT32,
    WRING_INT64,
    WRING_DTYPE_COUNT
} wring_dtype;

/* Reductions. AVG divides the sum by the number of ranks (float types only) before it is rounded to
 * its type, so that averages of large fp16 values stay finite. MIN and MAX want codec "none"; a NaN
 * on any rank wins. Partial sums are float32, for float64 float64; integers wrap. */
typedef enum wring_op { WRING_SUM, WRING_AVG, WRING_MIN, WRING_MAX, WRING_OP_COUNT } wring_op;

/* Bytes per element, and the short name ("bfloat16"); 0 and "?" for a value out of range. */
WRING_API size_t wring_dtype_size(wring_dtype dtype);
WRING_API const char *wring_dtype_name(wring_dtype dtype);

/* ---- 3 codec --------------------------------------------------------------------------------- */

/* A codec made from a specification: stages joined by '+', each `name` or `name:value,key=value`.
 * Immutable once created, so any number of threads may use one. docs/codecs.md lists the stages. */
typedef struct wring_codec wring_codec;

/* Parse SPEC. WRING_E_SPEC names the stage, its position and the accepted form. */
WRING_API wring_status wring_codec_create(const char *spec, wring_codec **codec_out);
WRING_API void wring_codec_destroy(wring_codec *codec);

/* The canonical text of the codec, every parameter that differs from its default written out. */
WRING_API const char *wring_codec_spec(const wring_codec *codec);

/* Exact encoded bytes of COUNT elements of DTYPE; 0 for count 0 or an unsupported dtype. */
WRING_API size_t wring_codec_nbytes(const wring_codec *codec, wring_dtype dtype, size_t count);

/* Encode COUNT elements of DTYPE (host memory) into DST, without state: an `ef` stage is skipped.
 * WRING_E_FULL if DST_NBYTES < wring_codec_nbytes(). */
WRING_API wring_status wring_codec_encode(const wring_codec *codec, wring_dtype dtype,
                                          const void *src, size_t count, void *dst,
                                          size_t dst_nbytes, size_t *nbytes_out);

/* Decode SRC, which is not trusted, into COUNT elements of DTYPE; WRING_E_CORRUPT if it is not a
 * well-formed encoding of exactly that many. With ADD (float32 only), dst[i] += decoded[i]. */
WRING_API wring_status wring_codec_decode(const wring_codec *codec, wring_dtype dtype,
                                          const void *src, size_t src_nbytes, void *dst,
                                          size_t count, bool add);

/* ---- 4 context ------------------------------------------------------------------------------- */

/* Modules, settings, one transport and one progress thread. Most programs create one. */
typedef struct wring_context wring_context;

typedef enum wring_log_level {
    WRING_LOG_ERROR,
    WRING_LOG_WARN,
    WRING_LOG_INFO,
    WRING_LOG_DEBUG
} wring_log_level;

/* Receives one line without newline; may be called from any thread, one call at a time. */
typedef void (*wring_log_fn)(void *arg, wring_log_level level, const char *line);

/* Send log lines to FN instead of standard error; NULL restores it. For the whole process. */
WRING_API void wring_log_set(wring_log_fn fn, void *arg);

typedef struct wring_context_options {
    size_t size;           /* sizeof(wring_context_options) */
    const char *transport; /* NULL: setting WRING_TRANSPORT */
    bool caller_progress;  /* no thread: progress is made only inside wring calls */
} wring_context_options;
#define WRING_CONTEXT_OPTIONS_INIT {.size = sizeof(wring_context_options)}

/* Read all WRING_* settings, open the transport, start the progress thread. OPTIONS may be NULL.
 * WRING_E_CONFIG names a bad setting, WRING_E_MODULE a transport that this machine lacks. */
WRING_API wring_status wring_context_create(const wring_context_options *options,
                                            wring_context **context_out);

/* Every communicator of the context must be destroyed before. */
WRING_API void wring_context_destroy(wring_context *context);

/* Advance everything in flight once, without waiting. For caller_progress. */
WRING_API void wring_context_progress(wring_context *context);

/* ---- 5 communicator -------------------------------------------------------------------------- */

/* A group of ranks 0..size-1, one of them this process. */
typedef struct wring_comm wring_comm;

/* An opaque name of a group to be: made by one process, copied to the others by any means. */
typedef struct wring_unique_id {
    unsigned char bytes[128];
} wring_unique_id;

/* Gather NBYTES from each rank into RECV (rank order) on every rank; 0 on success. May block. */
typedef int (*wring_allgather_fn)(void *arg, const void *send, void *recv, size_t nbytes);

/* Three ways to find each other, first match wins: a callback, a unique id, the environment
 * (WRING_RANK/SIZE/ROOT, or a launcher's variables: wring-info lists them; contradictions are
 * refused). Who belongs to the job has its WRING_SECRET; without one, ranks on several hosts are
 * refused unless WRING_INSECURE=1. The callback needs neither. */
typedef struct wring_comm_options {
    size_t size;                  /* sizeof(wring_comm_options) */
    int rank, nranks;             /* nranks 0: take both from the environment */
    wring_allgather_fn allgather; /* NULL: not this way */
    void *allgather_arg;
    const wring_unique_id *id; /* NULL: not this way */
    void *external; /* transport nccl: your ncclComm_t; sets rank and nranks. It stays yours: after
                     * a failed call only you can end what is enqueued on it: ncclCommAbort it, then
                     * save state, then shrink. Aborted in mid-call it reads as a mismatch */
    const char *codec;     /* of calls that name none; NULL: setting WRING_CODEC, "none" */
    const char *algorithm; /* NULL: setting WRING_ALGORITHM, else the planner chooses */
} wring_comm_options;
#define WRING_COMM_OPTIONS_INIT {.size = sizeof(wring_comm_options)}

/* Make an id in the process that will be rank 0, on the context that it will use; the context
 * listens for the others until the communicator is created. */
WRING_API wring_status wring_unique_id_create(wring_context *context, wring_unique_id *id_out);

/* Join the group; every rank calls. Blocks until all have joined or the setting WRING_JOIN_TIMEOUT
 * has passed, when WRING_E_TIMEOUT names the missing ranks. Where one rank cannot join, all get its
 * error; it waits for the others to tell them. */
WRING_API wring_status wring_comm_create(wring_context *context, const wring_comm_options *options,
                                         wring_comm **comm_out);

/* All NRANKS ranks of a group inside this process, for tests and simulation: fills comms_out[0..n).
 * The context must use transport "self". Only the options' codec and algorithm are read. */
WRING_API wring_status wring_comm_create_local(wring_context *context, int nranks,
                                               const wring_comm_options *options,
                                               wring_comm **comms_out);

/* Waits up to 2 s for the other ranks to get here too, so that nobody misses what was sent last.
 * Unfinished requests end with WRING_E_ABORTED. Tensors may be destroyed before or after. */
WRING_API void wring_comm_destroy(wring_comm *comm);

/* End every call of the communicator, on all ranks, with WRING_E_ABORTED, and refuse later ones.
 * Any thread, also while others are in calls; needs no other rank's help, and does not wait. */
WRING_API wring_status wring_comm_abort(wring_comm *comm);

/* The least VALUE of all ranks that are left, the same on each: for example the last step that this
 * one has committed. Works on a failed communicator, too. Waits until every other rank has called
 * or died, but for WRING_TIMEOUT. */
WRING_API wring_status wring_comm_agree(wring_comm *comm, uint64_t value, uint64_t *least_out);

/* A new communicator of all ranks that are left, in order, also if some die meanwhile; every one of
 * them calls. COMM is still to be destroyed, and what tensors of it hold stays theirs. */
WRING_API wring_status wring_comm_shrink(wring_comm *comm, wring_comm **comm_out);

/* A new communicator of all ranks that give the same COLOR, in order of KEY, then of rank; every
 * rank of COMM calls: WRING_E_PEER_LOST if one is lost. COLOR -1: none, and NULL in *comm_out. */
WRING_API wring_status wring_comm_split(wring_comm *comm, int color, int key,
                                        wring_comm **comm_out);

/* This process's rank, and the number of ranks. */
WRING_API int wring_comm_rank(const wring_comm *comm);
WRING_API int wring_comm_size(const wring_comm *comm);

/* ---- 6 collectives --------------------------------------------------------------------------- */

/* Blocking calls on plain host buffers, stateless (an `ef` stage keeps nothing). SEND may equal
 * RECV (in place). Every rank gets the same bits. If any rank's input holds NaN or Inf, the result
 * does too. A failure poisons the communicator: later calls return the first error at once. */

/* recv[0..count) = reduction over ranks of send[0..count). */
WRING_API wring_status wring_allreduce(wring_comm *comm, const void *send, void *recv, size_t count,
                                       wring_dtype dtype, wring_op op);

/* recv[0..count) = reduction of the rank's part of send[0..count*size). In place: recv =
 * send+rank*count. */
WRING_API wring_status wring_reduce_scatter(wring_comm *comm, const void *send, void *recv,
                                            size_t count, wring_dtype dtype, wring_op op);

/* recv[0..count*size) = all ranks' send[0..count) in order. In place: send = recv+rank*count. */
WRING_API wring_status wring_allgather(wring_comm *comm, const void *send, void *recv, size_t count,
                                       wring_dtype dtype);

/* recv[0..count) = root's send[0..count), on every rank. SEND is read on the root only. */
WRING_API wring_status wring_broadcast(wring_comm *comm, const void *send, void *recv, size_t count,
                                       wring_dtype dtype, int root);

/* Return only after every rank has called. */
WRING_API wring_status wring_barrier(wring_comm *comm);

/* ---- 7 tensor -------------------------------------------------------------------------------- */

/* A named gradient: shape, type, codec, and the codec's state. The name is its identity on every
 * rank and in every run; nothing is ever keyed by address. */
typedef struct wring_tensor wring_tensor;

typedef struct wring_tensor_options {
    size_t size;              /* sizeof(wring_tensor_options) */
    const wring_codec *codec; /* NULL: the communicator's; must outlive the tensor */
    bool device; /* its gradients and state are in device memory: refuses ef:bits=16/8 and single */
    bool single; /* half the state: a step that does not count resets it, with a warning */
} wring_tensor_options;
#define WRING_TENSOR_OPTIONS_INIT {.size = sizeof(wring_tensor_options)}

/* NDIM extents in SHAPE (copied); 0 dimensions is a scalar, an extent of 0 an empty tensor. All
 * memory that the tensor will need is allocated here. OPTIONS may be NULL. */
WRING_API wring_status wring_tensor_create(wring_comm *comm, const char *name, wring_dtype dtype,
                                           int ndim, const size_t *shape,
                                           const wring_tensor_options *options,
                                           wring_tensor **tensor_out);
WRING_API void wring_tensor_destroy(wring_tensor *tensor); /* ends calls that use it: E_ABORTED */

/* Elements of the tensor, and bytes of state that it holds. */
WRING_API size_t wring_tensor_count(const wring_tensor *tensor);
WRING_API size_t wring_tensor_state_nbytes(const wring_tensor *tensor);

/* Copy the local error-feedback residual (count float32) to DST, host memory; zeros if the codec
 * keeps none. */
WRING_API wring_status wring_tensor_residual(const wring_tensor *tensor, float *dst, size_t count);

/* A step is a transaction: what calls between begin and commit change of tensors' state counts all
 * together or not at all. Without one, every call is a step of its own, and every step of a
 * scheduler is one. One at a time in a context; its calls may not share elements of a tensor. */
WRING_API wring_status wring_step_begin(wring_context *context);

/* Every call of the step must have been waited for. If one failed, or met NaN or Inf, the step is
 * rolled back, on every rank alike, and *committed_out (may be NULL) is false. A call that
 * wring_comm_start refused was never part of the step and does not hold this rank's commit back. */
WRING_API wring_status wring_step_commit(wring_context *context, bool *committed_out);
WRING_API wring_status wring_step_rollback(wring_context *context);

/* Take back the last commit, while no call has begun since: where a group failed, some ranks may
 * have committed a step that others have not; wring_comm_agree tells. WRING_E_STATE if too late. */
WRING_API wring_status wring_step_undo(wring_context *context);

/* What became of saved residuals. */
typedef struct wring_state_report {
    size_t nrestored; /* tensors that have every bit back */
    size_t nhanded;   /* that got what other ranks, ranges or codecs had kept, its sum preserved */
    size_t ndropped;  /* saved ones that are not here, or keep no residual: what they had is lost */
    double dropped;   /* sum of the absolute values of that */
} wring_state_report;

/* All state of the communicator's tensors on this rank, as bytes: versioned, with a checksum; freed
 * with free(). WRING_E_STATE while a call or step is unfinished. Works on a failed communicator. */
WRING_API wring_status wring_state_save(wring_comm *comm, void **bytes_out, size_t *nbytes_out);

/* Replace the state of all tensors of the communicator by what N ranks saved, matched by name. With
 * the bytes of this rank from a group of the same size: every bit. For another number of ranks,
 * give rank r of m those of the old ranks r, r + m, r + 2m ... (maybe none): residuals are handed
 * over so that what they still add to the reduction is preserved (a group of one, which sends
 * nothing, keeps them for a larger one). Bytes are not trusted: WRING_E_CORRUPT, or
 * WRING_E_MISMATCH for another shape, before anything is changed. REPORT_OUT may be NULL. */
WRING_API wring_status wring_state_load(wring_comm *comm, const void *const *states,
                                        const size_t *nbytes, size_t n,
                                        wring_state_report *report_out);

/* Go on with another codec (which must outlive the tensor), on every rank between the same calls;
 * the residual is handed over to it. */
WRING_API wring_status wring_tensor_set_codec(wring_tensor *tensor, const wring_codec *codec,
                                              wring_state_report *report_out);

/* ---- 8 core call ----------------------------------------------------------------------------- */

typedef enum wring_kind {
    WRING_ALLREDUCE,
    WRING_REDUCE_SCATTER,
    WRING_ALLGATHER,
    WRING_BROADCAST,
    WRING_BARRIER,
    WRING_KIND_COUNT
} wring_kind;

/* One piece of a call: COUNT elements at OFFSET of a tensor, or a plain buffer. */
typedef struct wring_segment {
    wring_tensor *tensor; /* NULL: stateless, as in all calls but allreduces */
    size_t offset;        /* first element in the tensor; a multiple of the codec's unit */
    const void *send;     /* count elements */
    void *recv;           /* count elements; may equal send */
    size_t count;
} wring_segment;

/* A collective over a list of segments that travel together, as one bucket. */
typedef struct wring_call {
    size_t size; /* sizeof(wring_call) */
    wring_kind kind;
    wring_op op;
    wring_dtype dtype;             /* of all segments */
    int root;                      /* broadcast only */
    const wring_segment *segments; /* copied; more than one for allreduce and broadcast only */
    size_t nsegments;
    const wring_codec *codec; /* NULL: the tensors', else the communicator's */
    const char *algorithm;    /* NULL: the communicator's, else the planner chooses */
    bool overlap; /* work enqueued on the stream later runs beside the call: wait before using it */
    void *stream; /* of device memory: cudaStream_t (not 0: cudaStreamLegacy); NULL: host memory */
} wring_call;
#define WRING_CALL_INIT {.size = sizeof(wring_call)}

/* What a finished call did. */
typedef struct wring_result {
    uint64_t wire_nbytes;  /* bytes this rank handed to the transport, headers included */
    uint64_t dense_nbytes; /* the same with codec "none" */
    bool nonfinite;        /* some rank's data was NaN or Inf: no state was changed, on any rank */
} wring_result;

typedef struct wring_request wring_request;

/* Start CALL and return. State of its tensors changes only if the call succeeds on finite data. A
 * communicator's calls on a device run in order of their start, so behind each other's streams. If
 * this rank's call alone is refused, its next one, or destroy ("barrier"), is a peer's mismatch.
 * Until it is done, segments' memory may not be written to: WRING_CHECK_INPUT=1 finds who does. */
WRING_API wring_status wring_comm_start(wring_comm *comm, const wring_call *call,
                                        wring_request **request_out);

/* Start a group of calls, in order, all of which are checked before any starts: a mistake in one
 * leaves none behind. A tensor may be in one of them. Fills requests_out[0..ncalls). */
WRING_API wring_status wring_comm_start_group(wring_comm *comm, const wring_call *calls,
                                              size_t ncalls, wring_request **requests_out);

/* WRING_AGAIN until done, then the call's status (repeatable). Does not free. */
WRING_API wring_status wring_request_test(wring_request *request);

/* Wait, helping with progress; free the request; return its status. RESULT_OUT may be NULL. A
 * failed call on a device returns when that no longer touches its buffers, or 2 s later. What is
 * enqueued on the call's stream after start on transport nccl finds the results without waiting;
 * of a failed call there, in place, NaN on purpose. */
WRING_API wring_status wring_request_wait(wring_request *request, wring_result *result_out);

/* ---- 9 scheduler ----------------------------------------------------------------------------- */

/* Groups gradients into buckets in reverse order of registration and starts each bucket as soon as
 * all its gradients are ready, in one order on every rank, while backward goes on. */
typedef struct wring_scheduler wring_scheduler;

/* Memory of your own for a scheduler's sums and packed gradients: NBYTES aligned to 64, or NULL if
 * there is none. With STREAM: on its device, for use in its order. Called before the first
 * gradient. */
typedef void *(*wring_alloc_fn)(void *arg, size_t nbytes, void *stream);
typedef void (*wring_free_fn)(void *arg, void *block, size_t nbytes, void *stream);

typedef struct wring_scheduler_options {
    size_t size;                /* sizeof(wring_scheduler_options) */
    size_t bucket_nbytes;       /* 0: setting WRING_BUCKET */
    size_t first_bucket_nbytes; /* 0: setting WRING_FIRST_BUCKET; small, so traffic starts early */
    int accumulate;             /* micro-steps per step; 0 means 1 */
    wring_op op;                /* over ranks and micro-steps: WRING_SUM or WRING_AVG */
    bool weighted;              /* sum(w g), AVG: / sum(w), with w of wring_scheduler_weigh() */
    const wring_codec *codec;   /* of parameters without a rule; NULL: the communicator's */
    const char *rules;          /* codecs by name: "*.bias = none; layer?.* = int8", first match
                                   counts, or "@file"; NULL: setting WRING_RULES */
    size_t min_nbytes;          /* smaller ones travel as they are; 0: setting WRING_MIN_BYTES */
    size_t memory_limit;        /* of state and sums; 0: setting WRING_MEMORY_LIMIT */
    wring_alloc_fn alloc;       /* NULL: the library's */
    wring_free_fn free;
    void *alloc_arg;
    void *stream;               /* gradients are in device memory, and made on this stream */
} wring_scheduler_options;
#define WRING_SCHEDULER_OPTIONS_INIT {.size = sizeof(wring_scheduler_options), .op = WRING_AVG}

/* OPTIONS may be NULL. Destroying waits for what is in flight. */
WRING_API wring_status wring_scheduler_create(wring_comm *comm,
                                              const wring_scheduler_options *options,
                                              wring_scheduler **scheduler_out);
WRING_API void wring_scheduler_destroy(wring_scheduler *scheduler);

/* Register a parameter, in forward order, the same on all ranks; GRAD is where its gradient will
 * stand, and where the reduced one is put. All must be registered before the first `ready`. */
WRING_API wring_status wring_scheduler_add(wring_scheduler *scheduler, const char *name,
                                           wring_dtype dtype, int ndim, const size_t *shape,
                                           void *grad, int *param_out);

/* The same of a gradient that is not in one piece: element (i, j, ...) is STRIDES[0] * i +
 * STRIDES[1] * j + ... elements (which may be negative) from GRAD. Host memory; at most 8
 * dimensions. */
WRING_API wring_status wring_scheduler_add_strided(wring_scheduler *scheduler, const char *name,
                                                   wring_dtype dtype, int ndim,
                                                   const size_t *shape, const ptrdiff_t *strides,
                                                   void *grad, int *param_out);

/* The current micro-step has WEIGHT samples or tokens (1 if not called): once, before its first
 * gradient; before its forward pass is best. 0 (its gradients are not read) or 1e-9..1e15. If no
 * rank's step weighs anything, the reduced gradients are zeros and no state changes. */
WRING_API wring_status wring_scheduler_weigh(wring_scheduler *scheduler, double weight);

/* The gradient of PARAM is complete for this micro-step; once per micro-step, in any order. On the
 * last micro-step GRAD belongs to the scheduler from here until `finish`; on the others it is free
 * again (on a device: in stream order). Never waits for other ranks. What is refused here others
 * are not told of: ask again, or abort the communicator. */
WRING_API wring_status wring_scheduler_ready(wring_scheduler *scheduler, int param);

/* The same of a gradient that was made on STREAM, another than the scheduler's, which waits for
 * it. */
WRING_API wring_status wring_scheduler_ready_on(wring_scheduler *scheduler, int param,
                                                void *stream);

/* Instead of `ready`: this rank has no gradient of PARAM in this micro-step, which counts as zeros.
 * WRING_ALL_PARAMS: of all that were not ready. */
#define WRING_ALL_PARAMS (-1)
WRING_API wring_status wring_scheduler_absent(wring_scheduler *scheduler, int param);

/* Tables that are used by row (embeddings), with numbers of their own: HEIGHT rows of WIDTH
 * elements of a float type, in host memory. Only the rows that some rank used travel, exactly; sums
 * and means are as of dense gradients. */
WRING_API wring_status wring_scheduler_add_table(wring_scheduler *scheduler, const char *name,
                                                 wring_dtype dtype, size_t height, size_t width,
                                                 int *table_out);

/* NROWS rows of the gradient of TABLE, row IDS[i] of it at ROWS + i * width, both in host memory
 * whatever the scheduler's stream: copied. In a micro-step any number of times, none too; an id may
 * come again, and is added up. */
WRING_API wring_status wring_scheduler_ready_rows(wring_scheduler *scheduler, int table,
                                                  const int64_t *ids, const void *rows,
                                                  size_t nrows);

/* After a step's `finish`: the reduced gradient, by ascending id. It stays until the next
 * step's. */
WRING_API wring_status wring_scheduler_rows(wring_scheduler *scheduler, int table,
                                            const int64_t **ids_out, void **rows_out,
                                            size_t *nrows_out);

/* A short last window: the step ends at the next `finish`, with this micro-step; if nothing comes
 * in it, with the one before. A mean is over the micro-steps that there were. */
WRING_API wring_status wring_scheduler_flush(wring_scheduler *scheduler);

/* End of a micro-step. On the last one: wait until every gradient is reduced. RESULT_OUT (may be
 * NULL) receives the step's totals; nonfinite is the same on all ranks. */
WRING_API wring_status wring_scheduler_finish(wring_scheduler *scheduler, wring_result *result_out);

/* wring_step_undo for the last step that finished: too late once a bucket of the next has started,
 * which a barrier after each step keeps from happening before all ranks have committed. */
WRING_API wring_status wring_scheduler_undo(wring_scheduler *scheduler);

/* After a step's `finish`: the 2-norm of all reduced gradients of float types together, in float64,
 * the same bits on every rank and device. NaN or Inf if a gradient has one. May wait for the
 * device. */
WRING_API wring_status wring_scheduler_norm(wring_scheduler *scheduler, double *norm_out);

/* After a step's `finish`: every reduced gradient times FACTOR. To clip: limit / norm, if below
 * 1. */
WRING_API wring_status wring_scheduler_scale(wring_scheduler *scheduler, double factor);

/* ---- 10 information -------------------------------------------------------------------------- */

/* What wring_info_next() walks through. */
typedef enum wring_info_kind {
    WRING_INFO_CODEC,     /* stages, with their parameters as text */
    WRING_INFO_TRANSPORT, /* found, or missing and why */
    WRING_INFO_ALGORITHM, /* when each wins */
    WRING_INFO_SETTING,   /* WRING_* with current value */
    WRING_INFO_CPU,       /* SIMD levels; the chosen one has detail "selected" */
    WRING_INFO_DEVICE,    /* found, or missing and why */
    WRING_INFO_LAUNCHER   /* value: "rank 1 of 4" if it started us; detail: what is wrong */
} wring_info_kind;

typedef struct wring_info {
    const char *name;
    const char *summary; /* one line of help */
    const char *value;   /* setting: current value. Codec: parameters. Else "" */
    const char *detail;  /* setting: default and range. Transport: why it is missing, or "" */
} wring_info;

/* The INDEX-th entry of KIND; false past the end. Strings stay until the thread's next call. */
WRING_API bool wring_info_get(wring_info_kind kind, size_t index, wring_info *info_out);

/* A line about each tensor last sent by the communicator (codec, bytes, algorithm, why), as text
 * that the caller frees with free(). */
WRING_API wring_status wring_comm_explain(wring_comm *comm, char **text_out);

#ifdef __cplusplus
}
#endif
#endif
