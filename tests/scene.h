/* SPDX-License-Identifier: Apache-2.0 */
/* A scene: a few calls in a row on two tensors, with all that can differ about them. It is played
 * in host memory and in device memory, over whatever transport; the same bits must come out. The
 * second call and the third are on a part of the first tensor, so that other ranges become a rank's
 * own, and the third is not committed. */
#ifndef TESTS_SCENE_H
#define TESTS_SCENE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/device.h"
#include "collective/collective.h"
#include "self_ranks.h"
#include "simd/array.h"

#define RANKS_MAX 8
#define CALLS 4
#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

struct scene {
    int nranks;
    wring_kind kind;
    wring_op op;
    wring_dtype dtype;
    const char *spec, *algorithm, *piece;
    size_t count[2]; /* of the tensors; by-rank kinds take one plain buffer of the first */
    bool in_place;
};

static inline size_t scene_nsegments(const struct scene *s)
{
    return s->kind == WRING_ALLREDUCE || s->kind == WRING_BROADCAST ? 2 : 1;
}

static inline void scene_name(const struct scene *s, char name[128])
{
    snprintf(name, 128, "%s %s %s %s %s, %d ranks, %zu+%zu", s->algorithm, s->spec,
             wri_kind_name(s->kind), wri_op_name(s->op), wring_dtype_name(s->dtype), s->nranks,
             s->count[0], s->count[1]);
}

static inline void ok(wring_status status)
{
    if (status != WRING_OK)
        fail_msg("%s", wring_error_message());
}

/* Point the settings at the emulated device and the mock of NCCL that WRING_LIB holds; false, and
 * says so, if this build has none. */
static inline bool scene_emulated(void)
{
    char library[4096];
    const char *folder = getenv("WRING_LIB") ? getenv("WRING_LIB") : ".";
    snprintf(library, sizeof(library), "%s/libmocknccl.so", folder);
    if (access(library, R_OK) != 0) {
        printf("skipped: no %s: it belongs to builds with WRING_CUDA=EMULATED\n", library);
        return false;
    }
    setenv("WRING_NCCL", library, 1);
    setenv("WRING_MODULES", folder, 1);
    return true;
}

/* ---- memory of either kind ------------------------------------------------------------------- */

static const struct wri_device *there; /* NULL: scenes are played on the host */
static void *there_stream;

static inline void *block_open(size_t nbytes)
{
    void *block;
    if (there == NULL)
        return calloc(nbytes + 1, 1);
    ok(there->alloc(there, there_stream, nbytes + 1, &block));
    return block;
}

static inline void block_close(void *block)
{
    if (there == NULL)
        free(block);
    else
        there->free(there, there_stream, block);
}

static inline void block_copy(void *dst, const void *src, size_t nbytes)
{
    if (there == NULL) {
        memcpy(dst, src, nbytes);
        return;
    }
    ok(there->copy(there, there_stream, dst, src, nbytes));
    ok(there->stream_wait(there_stream));
}

/* ---- one rank's part ------------------------------------------------------------------------- */

struct actor {
    const struct scene *scene;
    wring_comm *comm;
    wring_codec *codec;
    wring_tensor *tensor[2];
    size_t send_count[2], recv_count[2];
    void *send[2], *recv[2], *host; /* HOST: a buffer of the largest size */
    wring_request *request;
    wring_result result;
};

/* Values of very different size, as gradients are. */
static inline float scene_value(int rank, int call, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)call * 977u;
    x ^= x >> 15;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    return ((float)(x >> 8) * 0x1p-23f - 1) * (x & 63 ? 0.01f : 1.0f);
}

static inline void actor_open(struct actor *actor, const struct scene *s, wring_comm *comm)
{
    *actor = (struct actor){.scene = s, .comm = comm};
    ok(wring_codec_create(s->spec, &actor->codec));
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    options.codec = actor->codec;
    options.device = there != NULL;
    size_t size = wring_dtype_size(s->dtype), n = (size_t)s->nranks, largest = 0;
    for (size_t i = 0; i < scene_nsegments(s); i++) {
        size_t count = s->count[i];
        actor->send_count[i] = s->kind == WRING_REDUCE_SCATTER ? count * n : count;
        actor->recv_count[i] = s->kind == WRING_ALLGATHER ? count * n : count;
        actor->send[i] = block_open(actor->send_count[i] * size);
        actor->recv[i] = s->in_place ? actor->send[i] : block_open(actor->recv_count[i] * size);
        largest = actor->send_count[i] > largest ? actor->send_count[i] : largest;
        largest = actor->recv_count[i] > largest ? actor->recv_count[i] : largest;
        char name[2] = {(char)('a' + i), 0};
        if (s->kind == WRING_ALLREDUCE)
            ok(wring_tensor_create(comm, name, s->dtype, 1, &count, &options, &actor->tensor[i]));
    }
    actor->host = calloc(largest + 1, sizeof(double));
}

static inline void actor_close(struct actor *actor)
{
    for (int i = 0; i < 2; i++) {
        wring_tensor_destroy(actor->tensor[i]);
        if (actor->recv[i] != actor->send[i])
            block_close(actor->recv[i]);
        block_close(actor->send[i]);
    }
    free(actor->host);
    wring_codec_destroy(actor->codec);
}

/* Elements of tensor I that the call is on. */
static inline size_t part_of(const struct scene *s, int call, size_t i)
{
    static const size_t parts[CALLS] = {SIZE_MAX, 1024, 2048, SIZE_MAX};
    bool whole = i > 0 || s->kind != WRING_ALLREDUCE || strstr(s->spec, "unit=tensor") != NULL;
    return whole || s->count[i] < parts[call] ? s->count[i] : parts[call];
}

static inline void fill_buffer(struct actor *actor, int call, size_t i)
{
    const struct scene *s = actor->scene;
    size_t size = wring_dtype_size(s->dtype);
    for (size_t j = 0; j < actor->send_count[i]; j++) {
        int rank = wring_comm_rank(actor->comm);
        float value = scene_value(rank, call, j + 1000 * i);
        if (call == 2 && rank == 1 && j == 5 && s->dtype < WRING_INT8)
            value = NAN;
        void *at = (char *)actor->host + j * size;
        if (s->dtype == WRING_FLOAT64)
            *(double *)at = (double)value * 1.1;
        else if (s->dtype >= WRING_INT8)
            *(unsigned char *)at = (unsigned char)(int)(value * 100);
        else
            wri_array_convert(s->dtype, at, WRING_FLOAT32, &value, 1);
    }
    block_copy(actor->send[i], actor->host, actor->send_count[i] * size);
}

/* Start the call on what the buffers hold. */
static inline void actor_go(struct actor *actor, int call_number)
{
    const struct scene *s = actor->scene;
    wring_segment segment[2] = {{0}};
    size_t n = scene_nsegments(s);
    for (size_t i = 0; i < n; i++)
        segment[i] = (wring_segment){.tensor = actor->tensor[i],
                                     .send = actor->send[i],
                                     .recv = actor->recv[i],
                                     .count = part_of(s, call_number, i)};
    wring_call call = WRING_CALL_INIT;
    call.kind = s->kind;
    call.op = s->op;
    call.dtype = s->dtype;
    call.root = s->nranks - 1;
    call.segments = segment;
    call.nsegments = n;
    call.codec = actor->codec;
    call.algorithm = s->algorithm;
    call.stream = there_stream;
    ok(wring_comm_start(actor->comm, &call, &actor->request));
}

static inline void actor_start(struct actor *actor, int call_number)
{
    for (size_t i = 0; i < scene_nsegments(actor->scene); i++)
        fill_buffer(actor, call_number, i);
    actor_go(actor, call_number);
}

static inline void actor_wait(struct actor *actor)
{
    ok(wring_request_wait(actor->request, &actor->result));
}

/* What the rank has in the end: all outputs and residuals. Freed by the caller. */
static inline unsigned char *actor_outcome(struct actor *actor, size_t *nbytes_out)
{
    const struct scene *s = actor->scene;
    size_t size = wring_dtype_size(s->dtype), nbytes = 0;
    unsigned char *all = calloc(1, 2 * ((actor->recv_count[0] + actor->recv_count[1]) * 12 + 64));
    for (size_t i = 0; i < scene_nsegments(s); i++) {
        block_copy(all + nbytes, actor->recv[i], actor->recv_count[i] * size);
        nbytes += actor->recv_count[i] * size;
        nbytes = (nbytes + 7) / 8 * 8;
        if (actor->tensor[i] == NULL)
            continue;
        ok(wring_tensor_residual(actor->tensor[i], (float *)(void *)(all + nbytes), s->count[i]));
        nbytes += s->count[i] * sizeof(float);
        nbytes = (nbytes + 7) / 8 * 8;
    }
    *nbytes_out = nbytes;
    return all;
}

/* ---- all ranks in this process, over transport self ------------------------------------------ */

struct outcome {
    unsigned char *bytes[RANKS_MAX];
    size_t nbytes[RANKS_MAX];
    uint64_t wire_nbytes[RANKS_MAX];
};

static inline void outcome_close(struct outcome *outcome)
{
    for (int q = 0; q < RANKS_MAX; q++)
        free(outcome->bytes[q]);
}

/* A scene's ranks, over transport `self`. */
struct cast {
    wring_context *context;
    int nranks;
    wring_comm *comm[RANKS_MAX];
    struct actor actor[RANKS_MAX];
};

static inline void cast_open(struct cast *cast, const struct scene *s)
{
    cast->nranks = s->nranks;
    setenv("WRING_PIECE", s->piece, 1);
    cast->context = self_open(s->nranks, NULL, cast->comm);
    for (int q = 0; q < s->nranks; q++)
        actor_open(&cast->actor[q], s, cast->comm[q]);
}

static inline void cast_close(struct cast *cast)
{
    for (int q = 0; q < cast->nranks; q++)
        actor_close(&cast->actor[q]);
    self_close(cast->context, cast->nranks, cast->comm);
}

static inline void cast_play(struct cast *cast, int call)
{
    for (int q = 0; q < cast->nranks; q++)
        actor_start(&cast->actor[q], call);
    for (int q = 0; q < cast->nranks; q++)
        actor_wait(&cast->actor[q]);
}

static inline void play_here(const struct scene *s, struct outcome *outcome)
{
    struct cast cast;
    *outcome = (struct outcome){0};
    cast_open(&cast, s);
    for (int call = 0; call < CALLS; call++)
        cast_play(&cast, call);
    for (int q = 0; q < s->nranks; q++) {
        outcome->bytes[q] = actor_outcome(&cast.actor[q], &outcome->nbytes[q]);
        outcome->wire_nbytes[q] = cast.actor[q].result.wire_nbytes;
    }
    cast_close(&cast);
}

/* Run TEST on the host, and on a device where this build and machine have one. */
static inline void everywhere(void (*test)(void))
{
    const struct wri_device *device;
    test();
    if (wri_device_find("cuda", getenv("WRING_MODULES"), &device) != WRING_OK)
        return;
    void *stream;
    ok(device->stream_open(&stream));
    there = device;
    there_stream = stream;
    test();
    there = NULL;
    there_stream = NULL;
    device->stream_close(stream);
}

/* ---- which scenes ---------------------------------------------------------------------------- */

static const struct {
    const char *spec;
    bool exact;
} scene_specs[] = {{"none", true},
                   {"bf16", false},
                   {"fp16", false},
                   {"int8", false},
                   {"ef+int4", false},
                   {"ef+sign", false},
                   {"int8:block=64,round=stochastic", false},
                   {"ef+topk:0.05,chunk=512+int8", false},
                   {"ef+topk:0.02,unit=tensor", false}};

static inline bool scene_exists(const struct scene *s, bool whole_unit, bool exact)
{
    const struct wring_collective_ops *ops = wri_collective_find(s->algorithm);
    bool lossy_type = s->dtype > WRING_BFLOAT16;
    if (s->kind != WRING_ALLREDUCE && strstr(s->spec, "stochastic"))
        return false; /* without a tensor it draws by the number of the operation */
    if (!(ops->kinds & 1u << s->kind) || (whole_unit && !ops->whole_units))
        return false;
    return exact || !(lossy_type || s->op == WRING_MIN || s->op == WRING_MAX);
}

/* Call PLAY for every algorithm, codec and kind with NRANKS ranks, types in turn. */
static inline void for_each_scene(int nranks, void (*play)(const struct scene *))
{
    static const wring_dtype types[] = {WRING_FLOAT32, WRING_BFLOAT16, WRING_FLOAT32,
                                        WRING_FLOAT16};
    const struct wring_collective_ops *ops;
    unsigned number = 0;
    for (size_t a = 0; (ops = wri_collective_at(a)) != NULL; a++)
        for (size_t c = 0; c < LENGTH(scene_specs); c++)
            for (int kind = 0; kind < WRING_BARRIER; kind++) {
                struct scene s = {.nranks = nranks,
                                  .kind = (wring_kind)kind,
                                  .op = number % 2 ? WRING_AVG : WRING_SUM,
                                  .dtype = types[number % LENGTH(types)],
                                  .spec = scene_specs[c].spec,
                                  .algorithm = ops->name,
                                  .piece = number % 3 ? "2K" : "0",
                                  .count = {3000 + number % 7, number % 5 ? 129 : 0},
                                  .in_place = number % 2 && kind == WRING_ALLREDUCE};
                number++;
                if (scene_exists(&s, strstr(s.spec, "tensor") != NULL, scene_specs[c].exact))
                    play(&s);
            }
}

#endif
