/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three plugin tables of wring: codec, transport, collective algorithm. The built-in plugins
 * use exactly these. CONTRIBUTING.md says how to add one.
 *
 * Every table and argument struct begins with its own size, so that fields can be appended. Plugins
 * never call up: they receive no handle to their caller, report completion when asked, and answer
 * WRING_AGAIN instead of blocking.
 */
#ifndef WRING_PLUGIN_H
#define WRING_PLUGIN_H

#include <wring/wring.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WRING_PLUGIN_ABI 1

/* ---- codec ----------------------------------------------------------------------------------- */

/* Where a stage stands in a chain; stages must come in this order. */
enum wring_codec_order {
    WRING_ORDER_FEEDBACK,  /* ef: keeps what the rest of the chain lost */
    WRING_ORDER_ROTATION,  /* dense float32 -> dense float32 */
    WRING_ORDER_SELECTION, /* dense float32 -> indices + fewer float32 */
    WRING_ORDER_QUANTISER, /* dense float32 -> bytes; ends a chain */
    WRING_ORDER_LOSSLESS   /* bytes -> fewer bytes */
};

/* FIXED: the size follows from the count. CAPPED: at most a bound that does, the rest stays in the
 * residual. VARIABLE: any size up to a bound, host transports only. */
enum wring_size_class { WRING_SIZE_FIXED, WRING_SIZE_CAPPED, WRING_SIZE_VARIABLE };

enum wring_codec_caps {
    WRING_CODEC_LOSSLESS = 1, /* decode(encode(x)) == x, any dtype */
    WRING_CODEC_SUMMABLE = 2, /* encoded forms add without decoding */
    WRING_CODEC_STAGED = 4    /* needs small reductions before or after encoding */
};

/* A parameter of a stage. Values are kept as doubles; choices as the index of the word. */
struct wring_param {
    const char *name;    /* key in `stage:key=value`; the first one may stand without its key */
    const char *help;    /* one line */
    const char *choices; /* "nearest stochastic", or NULL for a number */
    double def, min, max;
    bool integer;
};
#define WRING_PARAMS_MAX 6

/* A stage as it stands in a parsed chain. */
struct wring_stage {
    const struct wring_codec_ops *ops;
    double param[WRING_PARAMS_MAX]; /* in the order of ops->params */
    const struct wring_stage *next; /* what encodes this stage's output; NULL for a quantiser */
};

/* The words that seed random rounding: the same on every device, never a clock. */
struct wring_random_key {
    uint64_t seed, tensor, step;
    uint32_t rank;
};

/* One encode call: COUNT float32 that start on a unit boundary of their tensor.
 * With p[i] = src[i] + beta * residual_in[i], writes the encoding of p to DST and, where
 * RESIDUAL_OUT is given, p - decoded(encoding) to it. */
struct wring_encode {
    size_t size;
    const struct wring_stage *stage;
    const float *src;
    size_t count;
    const float *residual_in; /* NULL: none */
    float *residual_out;      /* NULL: not wanted; may equal residual_in, never src */
    float beta;
    struct wring_random_key random;
    uint64_t first; /* index in the tensor of src[0] */
    void *dst;      /* 4-byte aligned; nbytes(stage, count) bytes, all of them written */
    void *scratch;  /* scratch_nbytes(stage, count) bytes, 64-byte aligned */
    bool nonfinite; /* out: set to true if p, or what was encoded of it, holds NaN or Inf */
    void *stream;   /* device variants: launch here and return */
};

/* One decode call. SRC is hostile: check everything before use; WRING_E_CORRUPT. */
struct wring_decode {
    size_t size;
    const struct wring_stage *stage;
    const void *src; /* 4-byte aligned */
    size_t nbytes;
    float *dst; /* count float32 */
    size_t count;
    bool add; /* dst[i] += instead of dst[i] = */
    void *scratch;
    void *stream;
};

/* A stage of the codec registry. All functions are pure apart from what they are given to write,
 * may be called from several threads at once, and neither block nor allocate. */
struct wring_codec_ops {
    size_t size;
    const char *name, *summary;
    uint16_t wire_id; /* frozen; 1-999 built in, 0x8000 and up for users */
    uint16_t order;   /* enum wring_codec_order */
    uint32_t caps;    /* enum wring_codec_caps */
    uint32_t size_class;
    const struct wring_param *params;
    size_t nparams;

    /* Elements that are encoded independently of all others: tensors are only cut at multiples of
     * it. SIZE_MAX: the whole tensor. */
    size_t (*unit)(const struct wring_stage *);

    /* Encoded bytes of COUNT elements (worst case unless FIXED), a multiple of 4; 0 for 0. */
    size_t (*nbytes)(const struct wring_stage *, size_t count);

    /* Working memory of one encode or decode call of COUNT elements; may be NULL for none. */
    size_t (*scratch_nbytes)(const struct wring_stage *, size_t count);

    wring_status (*encode)(struct wring_encode *);
    wring_status (*decode)(const struct wring_decode *);

    /* Optional: refuse parameters that are each in range but not together. */
    wring_status (*check)(const struct wring_stage *);
};

/* ---- transport ------------------------------------------------------------------------------- */

/* What a module may use of the library. Functions may be called from any thread. */
struct wring_host_services {
    size_t size;
    /* Store the thread's error message and return STATUS. */
    wring_status (*fail)(wring_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    void (*log)(wring_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
};

enum wring_transport_caps {
    WRING_TRANSPORT_HOST = 1,           /* moves host memory */
    WRING_TRANSPORT_DEVICE = 2,         /* moves device memory */
    WRING_TRANSPORT_STREAM_ORDERED = 4, /* completion is ordered by a stream, not polled */
    WRING_TRANSPORT_IN_PROCESS = 8,     /* all ranks live in this process */
    WRING_TRANSPORT_CHECKSUM = 16       /* bytes may be damaged on the way: hash payloads */
};

struct wring_transport_open {
    size_t size;
    const struct wring_host_services *host;
    uint64_t seed;       /* for transports with an order of their own choice */
    const char *library; /* what transport nccl loads */
    bool local;          /* all ranks are known to be on this machine: listen on loopback only */
};

#define WRING_ADDRESS_MAX 2048 /* bytes of one rank's transport address */

/* One message of a stream-ordered exchange. */
struct wring_exchange {
    int peer;
    bool sends; /* else receives */
    void *data; /* device memory */
    size_t nbytes;
};

/* A transport moves byte messages between endpoints. One opened instance (`self` in the comments)
 * serves a context; its functions are called by one thread at a time. Stream-ordered transports
 * have open, close, endpoint_close and the functions from group_id on, polled ones all others.
 *
 * A message is matched by its exact 64-bit tag at the receiving endpoint; the tag names
 * communicator, source and message, so tags in flight are unique per receiver. Buffers belong to
 * the transport from send/recv until `test` stops answering WRING_AGAIN. */
struct wring_transport_ops {
    size_t size;
    const char *name, *summary;
    uint32_t caps;

    wring_status (*open)(const struct wring_transport_open *, void **self_out);
    void (*close)(void *self); /* accepts NULL */

    /* Make an endpoint: the receiving side of one rank, and its address (*nbytes in: capacity). */
    wring_status (*endpoint_open)(void *self, void **endpoint_out);
    wring_status (*endpoint_address)(void *endpoint, void *address, size_t *nbytes);
    void (*endpoint_close)(void *endpoint);

    /* Make a sending side towards a peer's address. Does not block; errors may show at first
     * use. */
    wring_status (*peer_open)(void *endpoint, const void *address, size_t nbytes, void **peer_out);
    /* What was sent still goes out, as far as the peer takes it before this process ends. */
    void (*peer_close)(void *peer);

    /* WRING_OK while the peer is not known to be lost; else its status, with message. */
    wring_status (*peer_status)(void *peer);

    /* Start a message. On WRING_OK with *request_out == NULL it is done already. */
    wring_status (*send)(void *peer, uint64_t tag, const void *data, size_t nbytes,
                         void **request_out);
    /* Post a receive of at most CAPACITY bytes from PEER. */
    wring_status (*recv)(void *endpoint, void *peer, uint64_t tag, void *data, size_t capacity,
                         void **request_out);

    /* WRING_AGAIN while in flight; else its result, and the request is freed. nbytes_out:
     * received. */
    wring_status (*test)(void *self, void *request, size_t *nbytes_out);
    /* Give up a request: its buffer is free after the transport's close. A send that was given up
     * may still arrive: peers learn from it why. */
    void (*cancel)(void *self, void *request);

    /* Make progress; true if anything moved. Never blocks. */
    bool (*progress)(void *self);
    /* Prepare to sleep: true if nothing can be done until `wait` returns, false to go on
     * polling. */
    bool (*arm)(void *self);
    /* After arm answered true: sleep until there may be something to do, `wake` is called, or
     * TIMEOUT_MS has passed. The one slot called without the context's lock, so concurrently with
     * any other but `close`; it may touch nothing but file descriptors. */
    void (*wait)(void *self, int timeout_ms);
    void (*wake)(void *self); /* any thread */

    /* Make the name of a group, on rank 0; the address of its card. *nbytes in: capacity. */
    wring_status (*group_id)(void *self, void *id, size_t *nbytes);
    /* Join the group of that name, or wrap EXTERNAL, the caller's communicator of this transport.
     * Does not block: group_status answers WRING_AGAIN until all are there. */
    wring_status (*group_open)(void *self, int rank, int nranks, const void *id, size_t nbytes,
                               void *external, void **endpoint_out);
    wring_status (*group_external)(void *self, void *external, int *rank_out, int *nranks_out);
    /* WRING_OK, WRING_AGAIN, or what went wrong on any rank since, with the transport's words. */
    wring_status (*group_status)(void *endpoint);
    /* Enqueue N messages on a stream, as one group: they all move, in whatever order. Messages
     * between two ranks match in order. WRING_AGAIN: nothing else may go on the stream before
     * group_status answers WRING_OK. */
    wring_status (*exchange)(void *endpoint, const struct wring_exchange *, size_t n, void *stream);
    /* End everything that is enqueued, without the other ranks' help; only close comes after. Of
     * the caller's own communicator what is enqueued stays: ending it is the caller's. */
    void (*group_abort)(void *endpoint);
};

/* What a module exports: one object with this type, named `wring_module`. */
struct wring_module {
    size_t size;
    uint32_t abi;                                /* WRING_PLUGIN_ABI */
    const char *build;                           /* must equal the library's build hash */
    const struct wring_transport_ops *transport; /* or NULL */
    /* Or NULL: make the device table, which is internal to one build of wring. */
    const struct wri_device *(*device)(const struct wring_host_services *);
};

/* ---- collective algorithm -------------------------------------------------------------------- */

/* An algorithm is a pure function that writes the steps of one rank for one piece. All shards are
 * cut into the same number of pieces; every piece runs the same list on its part of each shard. */
enum wring_step_kind {
    WRING_STEP_ENCODE,      /* buffer[shard] -> slot */
    WRING_STEP_DECODE_SET,  /* slot -> buffer[shard] */
    WRING_STEP_DECODE_ADD,  /* slot reduced into accumulator[shard] */
    WRING_STEP_ADD_ENCODED, /* slot `peer` added to slot without decoding (summable codecs) */
    WRING_STEP_SEND,        /* slot -> peer */
    WRING_STEP_RECV,        /* slot <- peer */
    WRING_STEP_LOAD,        /* input[shard] reduced into, or copied to, the accumulator */
    WRING_STEP_STORE,       /* accumulator[shard] -> output[shard] */
    WRING_STEP_LOCAL        /* the codec's own step */
};

enum wring_buffer { WRING_BUFFER_INPUT, WRING_BUFFER_ACCUMULATOR, WRING_BUFFER_OUTPUT };

enum wring_step_flags {
    WRING_STEP_SCALE = 1,          /* ENCODE, STORE: divide by the rank count first if op is AVG */
    WRING_STEP_LOCAL_RESIDUAL = 2, /* ENCODE: with this rank's residual of that range */
    WRING_STEP_OWNER_RESIDUAL = 4, /* ENCODE: with the residual of the reduced range that it owns */
    WRING_STEP_REDUCE = 8,         /* LOAD: add to what is there instead of replacing it */
    WRING_STEP_PARTIAL = 16        /* all but LOAD, STORE: partial sum, in the accumulator's type */
};

/* Steps run in list order. RECV and SEND only start; a step that reads a slot waits until its bytes
 * are there, one that writes a slot until its sends are done. Steps of one round with SEND or RECV
 * form one group on stream-ordered transports; nothing in a round may read what it receives. */
struct wring_step {
    uint8_t kind;   /* enum wring_step_kind */
    uint8_t buffer; /* enum wring_buffer: source of ENCODE, target of DECODE_SET */
    uint8_t flags;
    uint8_t round;
    uint16_t slot;
    uint16_t tag;  /* SEND, RECV: equal on both sides, unique per (piece, source, destination) */
    int32_t shard; /* which part of the data the slot holds */
    int32_t peer;  /* SEND, RECV: rank. ADD_ENCODED: source slot */
};

struct wring_emit {
    size_t size;
    wring_kind kind;
    int rank, nranks, root;
    bool exact;               /* the codec is lossless: hops may forward sums at no loss */
    struct wring_step *steps; /* out: at most max_steps */
    size_t max_steps, nsteps; /* nsteps out; may exceed max_steps: call again with more room */
    size_t nslots;            /* out */
    size_t nshards;           /* out: parts that the data is cut into (nranks or 1) */
};

/* What a cost may depend on. Seconds and bytes are per rank. */
struct wring_cost {
    size_t size;
    wring_kind kind;
    int nranks;
    double dense_nbytes;       /* of the whole data, in its own type */
    double encoded_nbytes;     /* of the whole data, after the codec */
    double latency_s;          /* of one message */
    double s_per_byte;         /* of the link, each way */
    double encode_s, decode_s; /* of the whole data once */
};

struct wring_collective_ops {
    size_t size;
    const char *name;
    const char *when;    /* one line: where it wins */
    uint32_t kinds;      /* bit (1 << enum wring_kind) */
    uint32_t needs;      /* enum wring_codec_caps the codec must have */
    bool whole_units;    /* can carry codecs whose unit is the whole tensor */
    bool rounds_per_hop; /* a lossy codec loses something at every hop, not twice */
    double (*cost_s)(const struct wring_cost *); /* pure */
    wring_status (*emit)(struct wring_emit *);   /* pure */
};

#ifdef __cplusplus
}
#endif
#endif
