/* SPDX-License-Identifier: Apache-2.0 */
/* What comes from a hostile peer, message by message, and what a transport that fails does to a
 * call: an error that says where, in time, and neither a result nor a changed residual. Rank 1's
 * messages pass through hands that may change, cut or extend them, with hashes that are right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "collective/exec.h"
#include "self_ranks.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

enum { N = 2, SMALL = 600, LARGE = 9000 }; /* elements: eager messages, and two for each payload */

static float grad[N][LARGE], sum[N][LARGE];

struct world {
    wring_context *context;
    wring_comm *comm[N];
    wring_codec *codec;
    wring_tensor *tensor[N];
    struct wring_transport_ops ops; /* the context's */
};

/* ---- hands on the messages ------------------------------------------------------------------- */

static const struct wring_transport_ops *real;
static int countdown;         /* calls before the one that is hit */
static wring_status broken;   /* what that one says; OK: it is changed */
static int more_nbytes;       /* by how much the message is longer */
static size_t flip;           /* byte that is changed; SIZE_MAX: none */
static bool resealed, struck; /* the header's hash is made right again */
static const void *hostile_peer;
static unsigned char forged[1 << 16];

static wring_status refuse(const char *what)
{
    struck = true;
    return wri_fail(broken, "no %s today", what);
}

static bool is_hit(void)
{
    return countdown-- == 0;
}

static wring_status send_broken(void *peer, uint64_t tag, const void *data, size_t nbytes,
                                void **request_out)
{
    if (is_hit())
        return refuse("sending");
    return real->send(peer, tag, data, nbytes, request_out);
}

static wring_status recv_broken(void *endpoint, void *peer, uint64_t tag, void *data,
                                size_t capacity, void **request_out)
{
    if (is_hit())
        return refuse("receiving");
    return real->recv(endpoint, peer, tag, data, capacity, request_out);
}

static wring_status peer_lost(void *peer)
{
    (void)peer;
    return refuse("peer");
}

static wring_status send_forged(void *peer, uint64_t tag, const void *data, size_t nbytes,
                                void **request_out)
{
    if (peer != hostile_peer || !is_hit())
        return real->send(peer, tag, data, nbytes, request_out);
    struck = true;
    assert_true(nbytes + 64 < sizeof(forged));
    memset(forged, 0, sizeof(forged));
    memcpy(forged, data, nbytes);
    if (flip != SIZE_MAX)
        forged[flip] ^= 0x04;
    if (resealed) {
        struct wri_frame frame;
        memcpy(&frame, forged, sizeof(frame));
        wri_frame_seal(&frame, forged + sizeof(frame));
        memcpy(forged, &frame, sizeof(frame));
    }
    return real->send(peer, tag, forged, nbytes + (size_t)more_nbytes, request_out);
}

/* ---- a call ---------------------------------------------------------------------------------- */

static void world_open(struct world *world, const char *spec)
{
    const size_t shape[] = {LARGE};
    setenv("WRING_TIMEOUT", "20000", 1);
    world->context = self_open(N, NULL, world->comm);
    unsetenv("WRING_TIMEOUT");
    require(wring_codec_create(spec, &world->codec));
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    options.codec = world->codec;
    for (int q = 0; q < N; q++) {
        require(wring_tensor_create(world->comm[q], "w", WRING_FLOAT32, 1, shape, &options,
                                    &world->tensor[q]));
        for (size_t i = 0; i < LARGE; i++)
            grad[q][i] = (float)(int)(i * 2654435761u % 1999) * 0.001f + (float)q;
    }
    real = world->context->transport;
    world->ops = *real;
    world->context->transport = &world->ops;
    hostile_peer = world->comm[1]->peer[0];
    broken = WRING_OK;
    struck = resealed = false;
    more_nbytes = 0;
    flip = SIZE_MAX;
}

static void world_close(struct world *world)
{
    world->ops = *real;
    for (int q = 0; q < N; q++) {
        wring_tensor_destroy(world->tensor[q]);
        wring_comm_destroy(world->comm[q]);
    }
    wring_codec_destroy(world->codec);
    wring_context_destroy(world->context);
}

/* A sum of the first COUNT elements; MESSAGE is rank 0's. */
static void reduce(struct world *world, size_t count, wring_status status[N], char message[600])
{
    wring_request *request[N] = {NULL};
    for (int q = 0; q < N; q++) {
        status[q] = WRING_AGAIN;
        wring_segment segment = {
            .tensor = world->tensor[q], .send = grad[q], .recv = sum[q], .count = count};
        wring_call call = WRING_CALL_INIT;
        call.segments = &segment;
        call.nsegments = 1;
        call.algorithm = "direct";
        require(wring_comm_start(world->comm[q], &call, &request[q]));
    }
    while ((status[0] = wring_request_test(request[0])) == WRING_AGAIN &&
           (status[1] = wring_request_test(request[1])) == WRING_AGAIN)
        ;
    for (int q = 0; q < N; q++) /* the other one would wait */
        if (status[q] != WRING_OK && status[q] != WRING_AGAIN)
            wring_comm_abort(world->comm[1 - q]);
    for (int q = 0; q < N; q++) {
        status[q] = wring_request_wait(request[q], NULL);
        if (q == 0)
            snprintf(message, 600, "%s", wring_error_message());
    }
}

static void residuals_of(const struct world *world, float out[N][LARGE])
{
    for (int q = 0; q < N; q++)
        require(wring_tensor_residual(world->tensor[q], out[q], LARGE));
}

/* ---- hostile messages ------------------------------------------------------------------------ */

/* Rank 1 sends rank 0 two shards of a small tensor in a message each, or of a large one in two. */
static const struct {
    size_t count;
    int at, more;
    size_t flip;
    bool resealed;
    wring_status status;
    const char *says;
} hostile[] = {
    {SMALL, 0, -1, SIZE_MAX, false, WRING_E_CORRUPT, "bytes instead of"},
    {SMALL, 0, 1, SIZE_MAX, false, WRING_E_CORRUPT, "bytes instead of"},
    {SMALL, 1, -4, SIZE_MAX, false, WRING_E_CORRUPT, "bytes instead of"},
    {SMALL, 1, 64, SIZE_MAX, false, WRING_E_CORRUPT, "bytes instead of"},
    {LARGE, 0, 4, SIZE_MAX, false, WRING_E_CORRUPT, "132 bytes instead of 128"},
    {LARGE, 0, -1, SIZE_MAX, false, WRING_E_CORRUPT, "127 bytes that are no wring frame"},
    {LARGE, 0, -128, SIZE_MAX, false, WRING_E_CORRUPT, "0 bytes that are no wring frame"},
    {LARGE, 1, -4, SIZE_MAX, false, WRING_E_CORRUPT, "bytes instead of"},
    {LARGE, 1, -9024, SIZE_MAX, false, WRING_E_CORRUPT, "payload of 0 bytes instead of 9024"},
    {LARGE, 1, 4, SIZE_MAX, false, WRING_E_MISMATCH, "longer than"},
    {LARGE, 2, -4, SIZE_MAX, false, WRING_E_CORRUPT, "no wring frame"},
    {LARGE, 3, -8972, SIZE_MAX, false, WRING_E_CORRUPT, "payload of 4 bytes instead of 8976"},
    {SMALL, 0, 0, 0, true, WRING_E_CORRUPT, "no wring frame"},
    {SMALL, 0, 0, offsetof(struct wri_frame, version), true, WRING_E_MISMATCH, "wire version"},
    {SMALL, 1, 0, offsetof(struct wri_frame, count), true, WRING_E_MISMATCH, "of 604 float32"},
    {SMALL, 1, 0, offsetof(struct wri_frame, source), true, WRING_E_CORRUPT, "out of place"},
    {SMALL, 0, 0, offsetof(struct wri_frame, piece), true, WRING_E_CORRUPT, "out of place"},
    {LARGE, 2, 0, offsetof(struct wri_frame, payload_nbytes), true, WRING_E_CORRUPT, "of place"},
    {LARGE, 0, 0, offsetof(struct wri_frame, nonce), true, WRING_E_CORRUPT, "another job"},
    {SMALL, 0, 0, offsetof(struct wri_frame, nonce), false, WRING_E_CORRUPT, "no wring frame"},
};

static void hostile_messages_are_refused(void **state)
{
    (void)state;
    static float before[N][LARGE], after[N][LARGE];
    for (size_t i = 0; i < LENGTH(hostile); i++) {
        struct world world;
        wring_status status[N];
        char message[600];
        world_open(&world, "ef+bf16");
        reduce(&world, LARGE, status, message);
        assert_true(status[0] == WRING_OK && status[1] == WRING_OK);
        residuals_of(&world, before);
        countdown = hostile[i].at;
        more_nbytes = hostile[i].more;
        flip = hostile[i].flip;
        resealed = hostile[i].resealed;
        world.ops.send = send_forged;
        reduce(&world, hostile[i].count, status, message);
        if (!struck)
            fail_msg("row %zu: not struck; %s", i, message);
        if (status[0] != hostile[i].status || strstr(message, hostile[i].says) == NULL ||
            strstr(message, "allreduce 1, receiving from rank 1") == NULL)
            fail_msg("row %zu: %s: %s", i, wring_status_name(status[0]), message);
        residuals_of(&world, after);
        assert_memory_equal(before[0], after[0], sizeof(before[0]));
        world_close(&world);
    }
}

/* ---- transports that fail -------------------------------------------------------------------- */

/* Whichever message it is that cannot be started, of frames and of payloads: the call fails with
 * what the transport said and where, and what was started before is taken back. */
static void any_message_may_fail_to_start(void **state)
{
    (void)state;
    static const size_t counts[] = {SMALL, LARGE};
    static float before[N][LARGE], after[N][LARGE];
    for (int receives = 0; receives < 2; receives++)
        for (size_t c = 0; c < LENGTH(counts); c++)
            for (int at = 0, more = 1; more; at++) {
                struct world world;
                wring_status status[N];
                char message[600], place[32];
                world_open(&world, "ef+bf16");
                reduce(&world, LARGE, status, message);
                residuals_of(&world, before);
                countdown = at;
                broken = WRING_E_PEER_LOST;
                if (receives)
                    world.ops.recv = recv_broken;
                else
                    world.ops.send = send_broken;
                reduce(&world, counts[c], status, message);
                residuals_of(&world, after);
                more = struck;
                int hit = status[0] == WRING_E_PEER_LOST ? 0 : 1;
                snprintf(place, sizeof(place), "%s rank %d, piece 0",
                         receives ? "receiving from" : "sending to", !hit);
                assert_int_equal(status[hit], struck ? WRING_E_PEER_LOST : WRING_OK);
                if (struck) {
                    assert_text_says(world.comm[hit]->alarm.message, place);
                    assert_text_says(world.comm[hit]->alarm.message, "today");
                    assert_memory_equal(before[hit], after[hit], sizeof(before[hit]));
                } else {
                    assert_int_equal(at, c == 0 ? 4 : 8);
                }
                world_close(&world);
            }
}

/* ---- peers that do not come ------------------------------------------------------------------ */

static void start_alone(struct world *world, wring_request **request)
{
    wring_segment segment = {
        .tensor = world->tensor[0], .send = grad[0], .recv = sum[0], .count = SMALL};
    wring_call call = WRING_CALL_INIT;
    call.segments = &segment;
    call.nsegments = 1;
    call.algorithm = "direct";
    require(wring_comm_start(world->comm[0], &call, request));
}

/* Nothing moves, and the transport knows why. */
static void a_lost_peer_is_asked_for(void **state)
{
    (void)state;
    struct world world;
    wring_request *request;
    world_open(&world, "fp16");
    start_alone(&world, &request);
    assert_int_equal(wring_request_test(request), WRING_AGAIN);
    broken = WRING_E_PEER_LOST;
    world.ops.peer_status = peer_lost;
    assert_int_equal(wring_request_wait(request, NULL), WRING_E_PEER_LOST);
    assert_says("receiving from rank 1, piece 0: no peer today");
    world_close(&world);
}

static char logged[600];
static int nlogged;

static void keep_warnings(void *arg, wring_log_level level, const char *line)
{
    (void)arg;
    if (level == WRING_LOG_WARN) {
        snprintf(logged, sizeof(logged), "%s", line);
        nlogged++;
    }
}

/* Who waits long says for whom, once; and gives up when its time is over. */
static void long_waits_are_warned_of_once(void **state)
{
    (void)state;
    struct world world;
    wring_request *request;
    world_open(&world, "fp16");
    world.context->config.timeout_ms = 60000;
    wring_log_set(keep_warnings, NULL);
    start_alone(&world, &request);
    nlogged = 0;
    static const int64_t idle_ms[] = {29000, 30500, 45000};
    for (size_t i = 0; i < LENGTH(idle_ms); i++) {
        for (int turn = 0; turn < 3; turn++) { /* the first may still move */
            assert_int_equal(wring_request_test(request), WRING_AGAIN);
            request->moved_ns = wri_clock_ns() - idle_ms[i] * 1000000;
        }
        assert_int_equal(wring_request_test(request), WRING_AGAIN);
        assert_int_equal(nlogged, i > 0);
    }
    assert_text_says(logged, "allreduce 0: rank 0 waits for rank 1 since 30 s");
    request->moved_ns -= 16 * 1000000000ll;
    assert_int_equal(wring_request_wait(request, NULL), WRING_E_TIMEOUT);
    assert_says("receiving from rank 1, piece 0: nothing moved for 6");
    wring_log_set(NULL, NULL);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_messages_are_refused),
        cmocka_unit_test(any_message_may_fail_to_start),
        cmocka_unit_test(a_lost_peer_is_asked_for),
        cmocka_unit_test(long_waits_are_warned_of_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
