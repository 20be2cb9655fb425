/* SPDX-License-Identifier: Apache-2.0 */
/* What the executor promises to algorithms whichever they are: a step waits until its slot is free
 * or full, whatever the order in which messages come; a step or kind that there is not, a codec
 * that fails, and a cut into too many messages are errors that name the algorithm or the call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "collective/collective.h"
#include "collective/exec.h"
#include "self_ranks.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

enum { N = 2, COUNT = 3000, ACC = WRING_BUFFER_ACCUMULATOR };

static float input[N][COUNT], output[N][COUNT];

/* ---- algorithms ------------------------------------------------------------------------------ */

static void recv_step(struct wring_emit *emit, int tag)
{
    wri_emit_transfer(emit, WRING_STEP_RECV, 0, 0, 0, 1 - emit->rank, tag, 0);
}

static void send_step(struct wring_emit *emit, int tag)
{
    wri_emit_transfer(emit, WRING_STEP_SEND, 0, 0, 0, 1 - emit->rank, tag, 0);
}

static void local_step(struct wring_emit *emit, int kind, int buffer, int flags)
{
    wri_emit_local(emit, kind, buffer, 0, 0, 0, flags);
}

static void add_received(struct wring_emit *emit, int tag)
{
    recv_step(emit, tag);
    local_step(emit, WRING_STEP_DECODE_ADD, ACC, 0);
}

static void send_sum(struct wring_emit *emit, int tag)
{
    local_step(emit, WRING_STEP_ENCODE, ACC, 0);
    send_step(emit, tag);
}

/* Nearly all through one slot: what is encoded and received while the last message may still be on
 * its way, received while nobody has looked at the one before, and encoded while one is to come.
 * With s = x0 + x1: */
static wring_status emit_busy_slot(struct wring_emit *emit)
{
    emit->nslots = 2;
    emit->nshards = 1;
    local_step(emit, WRING_STEP_LOAD, ACC, 0);
    send_sum(emit, 6 + emit->rank);
    if (emit->rank == 0) {
        add_received(emit, 7);
        send_sum(emit, 0); /* s */
        local_step(emit, WRING_STEP_LOAD, ACC, WRING_STEP_REDUCE);
        send_sum(emit, 1); /* s + x0 */
        recv_step(emit, 2);
        add_received(emit, 3); /* 5 s + x0 */
        recv_step(emit, 4);
        send_sum(emit, 5);
        local_step(emit, WRING_STEP_STORE, WRING_BUFFER_OUTPUT, 0);
        return WRING_OK;
    }
    wri_emit_transfer(emit, WRING_STEP_RECV, 0, 1, 0, 0, 6, 0); /* or both would wait */
    wri_emit_local(emit, WRING_STEP_DECODE_ADD, ACC, 0, 1, 0, 0);
    add_received(emit, 0);
    add_received(emit, 1);
    send_sum(emit, 2); /* 3 s + x0 */
    local_step(emit, WRING_STEP_LOAD, ACC, WRING_STEP_REDUCE);
    send_sum(emit, 3); /* 4 s */
    send_sum(emit, 4);
    recv_step(emit, 5);
    local_step(emit, WRING_STEP_DECODE_SET, WRING_BUFFER_OUTPUT, 0);
    return WRING_OK;
}

static int odd_kind; /* of a step that no built-in algorithm has */

static wring_status emit_odd_step(struct wring_emit *emit)
{
    emit->nslots = emit->nshards = 1;
    local_step(emit, WRING_STEP_ENCODE, WRING_BUFFER_INPUT, 0);
    local_step(emit, odd_kind, ACC, 0);
    return WRING_OK;
}

static int good_emits; /* before one that refuses */

static wring_status emit_refusing(struct wring_emit *emit)
{
    return good_emits-- > 0 ? emit_odd_step(emit) : WRING_E_UNSUPPORTED;
}

static struct wring_collective_ops algorithm = {.size = sizeof(algorithm), .name = "home-made"};

/* ---- calls ----------------------------------------------------------------------------------- */

static wring_status start(wring_comm *comm, size_t count, size_t piece_count,
                          wring_request **request)
{
    int rank = wring_comm_rank(comm);
    wring_segment segment = {.send = input[rank], .recv = output[rank], .count = count};
    wring_call call = WRING_CALL_INIT;
    struct wri_plan plan = {.codec = comm->context->exact,
                            .algorithm = &algorithm,
                            .piece_count = piece_count,
                            .reason = "a test"};
    call.segments = &segment;
    call.nsegments = 1;
    pthread_mutex_lock(&comm->context->lock);
    wring_status status = wri_request_start(comm, &call, &plan, NULL, request);
    pthread_mutex_unlock(&comm->context->lock);
    return status;
}

static wring_context *open_group(wring_comm *comm[N])
{
    for (size_t i = 0; i < COUNT; i++)
        for (int q = 0; q < N; q++) {
            input[q][i] = (float)(int)((i + (size_t)q * 7) % 101);
            output[q][i] = -1;
        }
    return self_open(N, NULL, comm);
}

/* All end well. Who fails leaves the other waiting: that is not waited for. */
static void finish_all(wring_request *request[N])
{
    wring_status status[N] = {WRING_AGAIN, WRING_AGAIN};
    for (int q = 0; status[0] == WRING_AGAIN || status[1] == WRING_AGAIN; q = !q) {
        status[q] = wring_request_test(request[q]);
        if (status[q] != WRING_AGAIN)
            require(status[q]);
    }
    for (int q = 0; q < N; q++)
        require(wring_request_wait(request[q], NULL));
}

static void steps_wait_for_their_slot(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 40; seed++) {
        wring_comm *comm[N];
        wring_request *request[N];
        char text[16];
        snprintf(text, sizeof(text), "%d", seed);
        setenv("WRING_SEED", text, 1);
        wring_context *context = open_group(comm);
        algorithm.emit = emit_busy_slot;
        for (int q = 0; q < N; q++)
            require(start(comm[q], COUNT, seed % 2 ? 512 : COUNT, &request[q]));
        finish_all(request);
        for (size_t i = 0; i < COUNT; i++)
            for (int q = 0; q < N; q++)
                assert_true(output[q][i] == 6 * input[0][i] + 5 * input[1][i]);
        self_close(context, N, comm);
    }
    unsetenv("WRING_SEED");
}

static void steps_that_there_are_not_fail_the_call(void **state)
{
    (void)state;
    static const int kinds[] = {WRING_STEP_ADD_ENCODED, WRING_STEP_LOCAL, 200};
    for (size_t k = 0; k < LENGTH(kinds); k++) {
        wring_comm *comm[N];
        wring_request *request, *next;
        char words[80];
        wring_context *context = open_group(comm);
        algorithm.emit = emit_odd_step;
        odd_kind = kinds[k];
        require(start(comm[0], COUNT, COUNT, &request));
        assert_int_equal(wring_request_wait(request, NULL), WRING_E_UNSUPPORTED);
        snprintf(words, sizeof(words), "allreduce 0: algorithm home-made asks for step %d",
                 kinds[k]);
        assert_says(words);
        assert_int_equal(wring_comm_start(comm[0], &(wring_call)WRING_CALL_INIT, &next),
                         WRING_E_UNSUPPORTED);
        self_close(context, N, comm);
    }
}

/* The list is asked for twice: to be counted, and to be kept. Neither leaves anything behind. */
static void an_algorithm_may_refuse_a_call(void **state)
{
    (void)state;
    wring_comm *comm[N];
    wring_request *request = NULL;
    wring_context *context = open_group(comm);
    algorithm.emit = emit_refusing;
    for (int good = 0; good < 2; good++) {
        good_emits = good;
        assert_int_equal(start(comm[0], COUNT, COUNT, &request), WRING_E_UNSUPPORTED);
        assert_says("algorithm home-made has no allreduce");
    }
    assert_null(request);
    assert_null(context->active);
    assert_int_equal(comm[0]->operation, 0);
    assert_int_equal(comm[0]->alarm.status, WRING_OK);
    self_close(context, N, comm);
}

/* Tags tell 2^23 messages of a call apart. Nothing is allocated or read before that is known. */
static void too_many_pieces_are_refused(void **state)
{
    (void)state;
    wring_comm *comm[N];
    wring_request *request;
    wring_context *context = open_group(comm);
    algorithm.emit = emit_busy_slot;
    assert_int_equal(start(comm[0], (size_t)1 << 30, 64, &request), WRING_E_UNSUPPORTED);
    assert_says("pieces are too many for one call; raise WRING_PIECE");
    self_close(context, N, comm);
}

/* ---- codecs that fail ------------------------------------------------------------------------ */

static const struct wring_codec_ops *real;
static int good_encodes, good_decodes;

static wring_status encode(struct wring_encode *e)
{
    return good_encodes-- > 0 ? real->encode(e) : wri_fail(WRING_E_SYSTEM, "the codec says no");
}

static wring_status decode(const struct wring_decode *d)
{
    return good_decodes-- > 0 ? real->decode(d) : wri_fail(WRING_E_CORRUPT, "the codec says no");
}

struct life {
    wring_context *context;
    wring_comm *comm[N];
    wring_tensor *tensor[N];
    wring_codec *codec;
    struct wring_codec_ops ops; /* its stage's */
};

static void life_open(struct life *life)
{
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    life->context = open_group(life->comm);
    require(wring_codec_create("ef+int4", &life->codec));
    options.codec = life->codec;
    for (int q = 0; q < N; q++)
        require(wring_tensor_create(life->comm[q], "w", WRING_FLOAT32, 1, &(size_t){COUNT},
                                    &options, &life->tensor[q]));
    real = life->codec->stage[0].ops;
    life->ops = *real;
    life->codec->stage[0].ops = &life->ops;
}

static void life_close(struct life *life)
{
    for (int q = 0; q < N; q++)
        wring_tensor_destroy(life->tensor[q]);
    self_close(life->context, N, life->comm);
    wring_codec_destroy(life->codec);
}

/* The rank that fails, with its status; -1: none does. */
static int reduce(struct life *life, const char *name, wring_status *status_out)
{
    wring_request *request[N];
    wring_status status[N] = {WRING_AGAIN, WRING_AGAIN};
    int failed = -1;
    for (int q = 0; q < N; q++) {
        wring_segment segment = {
            .tensor = life->tensor[q], .send = input[q], .recv = output[q], .count = COUNT};
        wring_call call = WRING_CALL_INIT;
        call.segments = &segment;
        call.nsegments = 1;
        call.algorithm = name;
        require(wring_comm_start(life->comm[q], &call, &request[q]));
    }
    for (int q = 0; failed < 0 && (status[0] == WRING_AGAIN || status[1] == WRING_AGAIN); q = !q) {
        status[q] = wring_request_test(request[q]);
        if (status[q] != WRING_OK && status[q] != WRING_AGAIN)
            failed = q;
    }
    if (failed >= 0)
        wring_comm_abort(life->comm[!failed]); /* it would wait for this one */
    for (int q = 0; q < N; q++)
        status[q] = wring_request_wait(request[q], NULL);
    *status_out = failed >= 0 ? status[failed] : WRING_OK;
    return failed;
}

/* In whichever encode or decode the codec fails, the call does, naming itself, and the residual is
 * the one before. True if it came to that. */
static bool check_codec(const char *name, int encodes, int decodes, wring_status expected)
{
    static float before[N][COUNT], after[COUNT];
    struct life life;
    wring_status status;
    life_open(&life);
    assert_int_equal(reduce(&life, name, &status), -1);
    for (int q = 0; q < N; q++)
        require(wring_tensor_residual(life.tensor[q], before[q], COUNT));
    good_encodes = encodes;
    good_decodes = decodes;
    life.ops.encode = encode;
    life.ops.decode = decode;
    int failed = reduce(&life, name, &status);
    if (failed >= 0) {
        assert_int_equal(status, expected);
        assert_text_says(life.comm[failed]->alarm.message, "allreduce 1: the codec says no");
        require(wring_tensor_residual(life.tensor[failed], after, COUNT));
        assert_memory_equal(before[failed], after, sizeof(after));
    }
    life.ops = *real;
    life_close(&life);
    return failed >= 0;
}

static void codecs_that_fail_fail_the_call(void **state)
{
    (void)state;
    static const char *const names[] = {"direct", "ring", "allgather"};
    for (size_t a = 0; a < LENGTH(names); a++) {
        int encodes = 0, decodes = 0;
        while (check_codec(names[a], encodes, 1000, WRING_E_SYSTEM))
            encodes++;
        while (check_codec(names[a], 1000, decodes, WRING_E_CORRUPT))
            decodes++;
        assert_true(encodes >= N && decodes >= N);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_wait_for_their_slot),
        cmocka_unit_test(steps_that_there_are_not_fail_the_call),
        cmocka_unit_test(an_algorithm_may_refuse_a_call),
        cmocka_unit_test(too_many_pieces_are_refused),
        cmocka_unit_test(codecs_that_fail_fail_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
