/* SPDX-License-Identifier: Apache-2.0 */
/* Every transport of the registry against the contract of plugin.h. Three ranks live in this
 * process, each with an instance of its own unless the transport wants them in one; only the test
 * of a killed peer makes a second process. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/module.h"
#include "transport/transport.h"

#define RANKS 3
#define DEADLINE_MS 20000
#define MANY 64

typedef const struct wring_transport_ops ops_t;

struct world {
    ops_t *ops;
    void *self[RANKS]; /* the same one three times if the transport is in-process */
    void *endpoint[RANKS];
    void *peer[RANKS][RANKS];
};

static void *open_instance(ops_t *ops, uint64_t seed)
{
    struct wring_transport_open options = {
        .size = sizeof options, .host = &wri_host_services, .seed = seed};
    void *self = NULL;
    assert_int_equal(ops->open(&options, &self), WRING_OK);
    return self;
}

static void *open_peer(ops_t *ops, void *endpoint, void *target)
{
    char address[WRING_ADDRESS_MAX];
    size_t nbytes = sizeof address;
    void *peer = NULL;
    assert_int_equal(ops->endpoint_address(target, address, &nbytes), WRING_OK);
    assert_true(nbytes <= WRING_ADDRESS_MAX);
    assert_int_equal(ops->peer_open(endpoint, address, nbytes, &peer), WRING_OK);
    return peer;
}

static struct world world_open(ops_t *ops, uint64_t seed)
{
    struct world world = {.ops = ops};
    for (int i = 0; i < RANKS; i++) {
        bool shared = i > 0 && (ops->caps & WRING_TRANSPORT_IN_PROCESS);
        world.self[i] = shared ? world.self[0] : open_instance(ops, seed);
        assert_int_equal(ops->endpoint_open(world.self[i], &world.endpoint[i]), WRING_OK);
    }
    for (int i = 0; i < RANKS; i++)
        for (int j = 0; j < RANKS; j++)
            world.peer[i][j] = open_peer(ops, world.endpoint[i], world.endpoint[j]);
    return world;
}

static void world_close(struct world *world)
{
    for (int i = 0; i < RANKS; i++)
        for (int j = 0; j < RANKS; j++)
            world->ops->peer_close(world->peer[i][j]);
    for (int i = 0; i < 1000; i++) /* each of a real group's processes does so while it closes */
        for (int k = 0; k < RANKS; k++)
            world->ops->progress(world->self[k]);
    for (int i = 0; i < RANKS; i++)
        world->ops->endpoint_close(world->endpoint[i]);
    for (int i = 0; i < RANKS; i++)
        if (i == 0 || world->self[i] != world->self[0])
            world->ops->close(world->self[i]);
    world->ops->close(NULL);
}

static bool progress_all(struct world *world)
{
    bool moved = false;
    for (int i = 0; i < RANKS; i++)
        moved |= world->ops->progress(world->self[i]);
    return moved;
}

/* Result of a request that must end before the deadline. */
static wring_status finish(struct world *world, int rank, void *request, size_t *nbytes_out)
{
    int64_t end = wri_clock_ns() + DEADLINE_MS * 1000000LL;
    size_t nbytes = 0;
    wring_status status = WRING_OK;
    while (request &&
           (status = world->ops->test(world->self[rank], request, &nbytes)) == WRING_AGAIN) {
        assert_true(wri_clock_ns() < end);
        progress_all(world);
    }
    if (nbytes_out)
        *nbytes_out = nbytes;
    return status;
}

static void *start_send(struct world *world, int src, int dst, uint64_t tag, const void *data,
                        size_t n)
{
    void *request = NULL;
    assert_int_equal(world->ops->send(world->peer[src][dst], tag, data, n, &request), WRING_OK);
    return request;
}

static void *start_recv(struct world *world, int src, int dst, uint64_t tag, void *data, size_t n)
{
    void *request = NULL;
    assert_int_equal(
        world->ops->recv(world->endpoint[dst], world->peer[dst][src], tag, data, n, &request),
        WRING_OK);
    return request;
}

/* Byte I of message TAG. */
static unsigned char byte_of(uint64_t tag, size_t i)
{
    uint64_t x = (tag + 1) * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u;
    return (unsigned char)(x >> 56);
}

static void *message(uint64_t tag, size_t nbytes)
{
    unsigned char *data = malloc(nbytes + 1);
    assert_non_null(data);
    for (size_t i = 0; i < nbytes; i++)
        data[i] = byte_of(tag, i);
    return data;
}

static void check_message(const unsigned char *data, uint64_t tag, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if (data[i] != byte_of(tag, i))
            fail_msg("message 0x%llx: byte %zu of %zu differs", (unsigned long long)tag, i, nbytes);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const size_t sizes[] = {0, 1, 7, 8, 255, 4096, 8191, 65536, 262144, 1000003, 8u << 20};
#define NSIZES (sizeof sizes / sizeof sizes[0])

static void exchange(struct world *world, int src, int dst, size_t nbytes, bool posted_first)
{
    uint64_t tag = 0xABCD00000000u + nbytes;
    unsigned char *out = message(tag, nbytes), *in = calloc(1, nbytes + 1);
    void *send = NULL, *recv = NULL;
    size_t received = 99;
    if (posted_first)
        recv = start_recv(world, src, dst, tag, in, nbytes);
    send = start_send(world, src, dst, tag, out, nbytes);
    for (int i = 0; i < 20; i++)
        progress_all(world);
    if (!posted_first)
        recv = start_recv(world, src, dst, tag, in, nbytes);
    assert_int_equal(finish(world, dst, recv, &received), WRING_OK);
    assert_int_equal(finish(world, src, send, NULL), WRING_OK);
    assert_int_equal(received, nbytes);
    check_message(in, tag, nbytes);
    assert_int_equal(in[nbytes], 0);
    free(out);
    free(in);
}

static void every_size_posted_or_unexpected(void **state)
{
    struct world world = world_open(*state, 1);
    for (size_t i = 0; i < NSIZES; i++)
        for (int posted_first = 0; posted_first < 2; posted_first++)
            for (int dst = 0; dst < RANKS; dst++) /* 0 to itself, 1, 2 */
                exchange(&world, 0, dst, sizes[i], posted_first);
    world_close(&world);
}

static void a_receive_may_have_room_to_spare(void **state)
{
    struct world world = world_open(*state, 1);
    for (size_t i = 0; i < NSIZES; i++) {
        unsigned char *out = message(i, sizes[i]), *in = calloc(1, sizes[i] + 100);
        size_t received = 0;
        void *recv = start_recv(&world, 0, 1, i, in, sizes[i] + 100);
        void *send = start_send(&world, 0, 1, i, out, sizes[i]);
        assert_int_equal(finish(&world, 1, recv, &received), WRING_OK);
        assert_int_equal(finish(&world, 0, send, NULL), WRING_OK);
        assert_int_equal(received, sizes[i]);
        check_message(in, i, sizes[i]);
        for (size_t k = 0; k < 100; k++)
            assert_int_equal(in[sizes[i] + k], 0);
        free(out);
        free(in);
    }
    world_close(&world);
}

/* Equal tags keep the order of sending; different tags find their receives in any order. */
static void order_is_kept_within_a_tag(void **state)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct world world = world_open(*state, seed);
        uint32_t out[MANY], in[MANY];
        void *send[MANY], *recv[MANY];
        for (uint32_t i = 0; i < MANY; i++) {
            out[i] = i * 2654435761u;
            send[i] = start_send(&world, 0, 1, i % 2 ? 5 : 1000 + i, &out[i], sizeof out[i]);
        }
        for (uint32_t i = MANY; i-- > 0;)
            if (i % 2 == 0)
                recv[i] = start_recv(&world, 0, 1, 1000 + i, &in[i], sizeof in[i]);
        for (uint32_t i = 1; i < MANY; i += 2)
            recv[i] = start_recv(&world, 0, 1, 5, &in[i], sizeof in[i]);
        for (uint32_t i = 0; i < MANY; i++) {
            assert_int_equal(finish(&world, 1, recv[i], NULL), WRING_OK);
            assert_int_equal(finish(&world, 0, send[i], NULL), WRING_OK);
        }
        assert_memory_equal(out, in, sizeof out);
        world_close(&world);
    }
}

/* All ranks to all ranks, MANY messages each, sizes mixed, half of them posted late. */
static void many_in_flight(void **state)
{
    struct world world = world_open(*state, 7);
    static void *send[RANKS][RANKS][MANY], *recv[RANKS][RANKS][MANY];
    static unsigned char *out[RANKS][RANKS][MANY], *in[RANKS][RANKS][MANY];
    for (int pass = 0; pass < 3; pass++)
        for (int a = 0; a < RANKS; a++)
            for (int b = 0; b < RANKS; b++)
                for (int i = 0; i < MANY; i++) {
                    size_t nbytes = sizes[(size_t)(i + a + b) % 9] / (1 + (size_t)i % 3);
                    uint64_t tag = ((uint64_t)a << 32) + (uint64_t)i;
                    if (pass == 0)
                        in[a][b][i] = calloc(1, nbytes + 1);
                    if (pass == 0)
                        out[a][b][i] = message(tag, nbytes);
                    if (pass == 1)
                        send[a][b][i] = start_send(&world, a, b, tag, out[a][b][i], nbytes);
                    if (pass == i % 2 * 2)
                        recv[a][b][i] = start_recv(&world, a, b, tag, in[a][b][i], nbytes);
                }
    for (int a = 0; a < RANKS; a++)
        for (int b = 0; b < RANKS; b++)
            for (int i = 0; i < MANY; i++) {
                size_t received = 0;
                assert_int_equal(finish(&world, b, recv[a][b][i], &received), WRING_OK);
                assert_int_equal(finish(&world, a, send[a][b][i], NULL), WRING_OK);
                check_message(in[a][b][i], ((uint64_t)a << 32) + (uint64_t)i, received);
                assert_int_equal(received, sizes[(size_t)(i + a + b) % 9] / (1 + (size_t)i % 3));
                free(in[a][b][i]);
                free(out[a][b][i]);
            }
    world_close(&world);
}

/* A message longer than its receive is an error on the receiving side, and writes nothing
 * behind. */
static void truncation_is_an_error(void **state)
{
    struct world world = world_open(*state, 1);
    for (size_t i = 2; i < NSIZES; i++)
        for (int posted_first = 0; posted_first < 2; posted_first++) {
            size_t capacity = sizes[i] / 2;
            unsigned char *out = message(i, sizes[i]), *in = calloc(1, sizes[i]);
            void *recv = posted_first ? start_recv(&world, 0, 1, i, in, capacity) : NULL;
            void *send = start_send(&world, 0, 1, i, out, sizes[i]);
            for (int k = 0; k < 20; k++)
                progress_all(&world);
            if (!posted_first)
                recv = start_recv(&world, 0, 1, i, in, capacity);
            assert_int_equal(finish(&world, 1, recv, NULL), WRING_E_MISMATCH);
            assert_true(strlen(wring_error_message()) > 0);
            finish(&world, 0, send, NULL);
            for (size_t k = capacity; k < sizes[i]; k++)
                assert_int_equal(in[k], 0);
            free(out);
            free(in);
        }
    exchange(&world, 0, 1, 4096, true);
    world_close(&world);
}

/* A cancelled receive takes no message; the one posted after it does. */
static void cancelled_receives_take_nothing(void **state)
{
    struct world world = world_open(*state, 1);
    uint64_t first = 0, second = 0, value = 0x1122334455667788u;
    void *gone = start_recv(&world, 0, 1, 9, &first, sizeof first);
    world.ops->cancel(world.self[1], gone);
    for (int k = 0; k < 20; k++)
        progress_all(&world);
    void *recv = start_recv(&world, 0, 1, 9, &second, sizeof second);
    void *send = start_send(&world, 0, 1, 9, &value, sizeof value);
    assert_int_equal(finish(&world, 1, recv, NULL), WRING_OK);
    assert_int_equal(finish(&world, 0, send, NULL), WRING_OK);
    assert_int_equal(first, 0);
    assert_true(second == value);
    world_close(&world);
}

/* Everything may be left lying around at close. */
static void closing_with_requests_in_flight(void **state)
{
    struct world world = world_open(*state, 1);
    unsigned char *big = message(1, 1 << 20), *in = malloc(1 << 20);
    void *requests[3] = {start_recv(&world, 2, 1, 1, in, 1 << 20),
                         start_send(&world, 0, 1, 2, big, 100),
                         start_send(&world, 0, 1, 3, big, 1 << 20)};
    const int owner[3] = {1, 0, 0};
    for (int i = 0; i < 3; i++)
        if (requests[i])
            world.ops->cancel(world.self[owner[i]], requests[i]);
    world_close(&world);
    free(big);
    free(in);
}

static void bad_addresses_are_refused(void **state)
{
    struct world world = world_open(*state, 1);
    char address[WRING_ADDRESS_MAX] = {0};
    void *peer = NULL;
    size_t nbytes = 1;
    assert_int_equal(world.ops->endpoint_address(world.endpoint[0], address, &nbytes),
                     WRING_E_FULL);
    assert_int_not_equal(world.ops->peer_open(world.endpoint[0], address, 0, &peer), WRING_OK);
    assert_int_not_equal(world.ops->peer_open(world.endpoint[0], address, 3, &peer), WRING_OK);
    assert_null(peer);
    world_close(&world);
}

/* Arm and sleep as the progress thread does, until the request is done; returns sleeps. */
static int sleep_until_done(struct world *world, int rank, void *request)
{
    size_t nbytes;
    int sleeps = 0;
    int64_t end = wri_clock_ns() + DEADLINE_MS * 1000000LL;
    while (world->ops->test(world->self[rank], request, &nbytes) == WRING_AGAIN) {
        assert_true(wri_clock_ns() < end);
        for (int i = 0; i < RANKS; i++)
            if (i != rank)
                world->ops->progress(world->self[i]);
        while (world->ops->progress(world->self[rank]))
            continue;
        if (!world->ops->arm(world->self[rank]))
            continue;
        world->ops->wait(world->self[rank], 1);
        sleeps++;
    }
    return sleeps;
}

static void sleeping_ends_at_timeout_wake_and_message(void **state)
{
    struct world world = world_open(*state, 1);
    exchange(&world, 0, 1, 8, true); /* connected, so that nothing moves below */
    int64_t begin = wri_clock_ns();
    while (progress_all(&world) || !world.ops->arm(world.self[1]) ||
           wri_clock_ns() - begin < 50000000)
        assert_true(wri_clock_ns() - begin < DEADLINE_MS * 1000000LL);

    begin = wri_clock_ns();
    world.ops->wait(world.self[1], 30);
    assert_true(wri_clock_ns() - begin >= 20 * 1000000LL);

    world.ops->wake(world.self[1]); /* before the sleep: must not be lost */
    begin = wri_clock_ns();
    world.ops->wait(world.self[1], 5000);
    assert_true(wri_clock_ns() - begin < 1000 * 1000000LL);

    for (uint64_t i = 0; i < 50; i++) {
        uint64_t in = 0;
        void *recv = start_recv(&world, 0, 1, i, &in, sizeof in);
        void *send = start_send(&world, 0, 1, i, &i, sizeof i);
        sleep_until_done(&world, 1, recv);
        assert_int_equal(finish(&world, 0, send, NULL), WRING_OK);
        assert_true(in == i);
    }
    world_close(&world);
}

/* ---- a peer dies ----------------------------------------------------------------------------- */

/* What must follow in rank 0 of the world when PEER is gone: the posted receive ends, peer_status
 * says so, a new send does not hang. */
static void check_lost(ops_t *ops, void *self, void *peer, void *recv)
{
    static uint64_t value;
    size_t nbytes;
    void *send = NULL;
    wring_status status;
    int64_t end = wri_clock_ns() + DEADLINE_MS * 1000000LL;
    while ((status = ops->test(self, recv, &nbytes)) == WRING_AGAIN) {
        assert_true(wri_clock_ns() < end);
        ops->progress(self);
    }
    assert_int_equal(status, WRING_E_PEER_LOST);
    assert_true(strlen(wring_error_message()) > 0);
    assert_int_equal(ops->peer_status(peer), WRING_E_PEER_LOST);
    assert_true(strlen(wring_error_message()) > 0);
    status = ops->send(peer, 77, &value, sizeof value, &send);
    while (status == WRING_OK && send && (status = ops->test(self, send, &nbytes)) == WRING_AGAIN) {
        assert_true(wri_clock_ns() < end);
        ops->progress(self);
    }
    assert_int_equal(status, WRING_E_PEER_LOST);
}

static void an_endpoint_dies(ops_t *ops)
{
    struct world world = world_open(ops, 1);
    uint64_t in = 0;
    void *recv = start_recv(&world, 1, 0, 3, &in, sizeof in);
    for (int i = 0; i < RANKS; i++)
        ops->peer_close(world.peer[1][i]);
    ops->endpoint_close(world.endpoint[1]);
    check_lost(ops, world.self[0], world.peer[0][1], recv);
    exchange(&world, 0, 2, 1000, true);
    for (int i = 0; i < RANKS; i++)
        world.peer[1][i] = NULL;
    world.endpoint[1] = NULL;
    world_close(&world);
}

static void swap_addresses(ops_t *ops, void *endpoint, int in, int out, void **peer_out)
{
    char address[WRING_ADDRESS_MAX] = {0};
    size_t nbytes = sizeof address;
    assert_int_equal(ops->endpoint_address(endpoint, address, &nbytes), WRING_OK);
    assert_int_equal(write(out, &nbytes, sizeof nbytes), sizeof nbytes);
    assert_int_equal(write(out, address, nbytes), nbytes);
    assert_int_equal(read(in, &nbytes, sizeof nbytes), sizeof nbytes);
    assert_int_equal(read(in, address, nbytes), nbytes);
    assert_int_equal(ops->peer_open(endpoint, address, nbytes, peer_out), WRING_OK);
}

/* The other process: says hello by message 1, then answers until it is killed, or, if POLITE,
 * closes right after the hello. */
static void other_process(ops_t *ops, int in, int out, bool polite)
{
    void *self = open_instance(ops, 2), *endpoint = NULL, *peer = NULL, *send = NULL;
    uint64_t hello[1000] = {4711};
    size_t nbytes;
    ops->endpoint_open(self, &endpoint);
    swap_addresses(ops, endpoint, in, out, &peer);
    wring_status status = ops->send(peer, 1, hello, sizeof hello, &send);
    while (status == WRING_OK && send && (status = ops->test(self, send, &nbytes)) == WRING_AGAIN)
        ops->progress(self);
    while (!polite)
        ops->progress(self);
    ops->peer_close(peer);
    ops->endpoint_close(endpoint);
    ops->close(self);
    _exit(0);
}

static pid_t start_other(ops_t *ops, bool polite, void **self_out, void **endpoint_out,
                         void **peer_out)
{
    int there[2], back[2];
    assert_int_equal(pipe(there), 0);
    assert_int_equal(pipe(back), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        other_process(ops, there[0], back[1], polite);
    *self_out = open_instance(ops, 1);
    assert_int_equal(ops->endpoint_open(*self_out, endpoint_out), WRING_OK);
    swap_addresses(ops, *endpoint_out, back[0], there[1], peer_out);
    for (int i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
    return child;
}

static void receive_hello(ops_t *ops, void *self, void *endpoint, void *peer)
{
    uint64_t hello[1000] = {0};
    void *recv = NULL;
    size_t nbytes;
    wring_status status;
    int64_t end = wri_clock_ns() + DEADLINE_MS * 1000000LL;
    assert_int_equal(ops->recv(endpoint, peer, 1, hello, sizeof hello, &recv), WRING_OK);
    while ((status = ops->test(self, recv, &nbytes)) == WRING_AGAIN) {
        assert_true(wri_clock_ns() < end);
        ops->progress(self);
    }
    if (status != WRING_OK)
        fail_msg("hello: %s", wring_error_message());
    assert_int_equal(hello[0], 4711);
}

static void a_process_dies(ops_t *ops)
{
    void *self, *endpoint, *peer, *recv = NULL;
    uint64_t in = 0;
    pid_t child = start_other(ops, false, &self, &endpoint, &peer);
    receive_hello(ops, self, endpoint, peer);
    assert_int_equal(ops->recv(endpoint, peer, 2, &in, sizeof in, &recv), WRING_OK);
    assert_int_equal(ops->peer_status(peer), WRING_OK);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    check_lost(ops, self, peer, recv);
    ops->peer_close(peer);
    ops->endpoint_close(endpoint);
    ops->close(self);
}

static void a_dead_peer_is_reported(void **state)
{
    ops_t *ops = *state;
    if (ops->caps & WRING_TRANSPORT_IN_PROCESS)
        an_endpoint_dies(ops);
    else
        a_process_dies(ops);
}

/* A peer that leaves right after its last send was done must not turn that message into an error,
 * even if the receive is posted long after it left. Over sockets: shared memory goes with its
 * owner, which is why communicators part by a barrier. */
static void the_last_message_of_a_peer_arrives(void **state)
{
    ops_t *ops = *state;
    const char *given = getenv("UCX_TLS");
    if (given == NULL)
        setenv("UCX_TLS", "tcp,self", 1);
    for (int late = 0; late < 2 && !(ops->caps & WRING_TRANSPORT_IN_PROCESS); late++) {
        void *self, *endpoint, *peer;
        int status = -1;
        pid_t child = start_other(ops, true, &self, &endpoint, &peer);
        for (int64_t end = wri_clock_ns() + late * 300000000LL; wri_clock_ns() < end;)
            ops->progress(self);
        receive_hello(ops, self, endpoint, peer);
        ops->peer_close(peer);
        ops->endpoint_close(endpoint);
        ops->close(self);
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
    }
    if (given == NULL)
        unsetenv("UCX_TLS");
}

/* ---- every test for every transport ---------------------------------------------------------- */

#define TEST(function)                                                                             \
    {                                                                                              \
#function, function                                                                        \
    }
static const struct {
    const char *name;
    CMUnitTestFunction function;
} tests[] = {
    TEST(every_size_posted_or_unexpected),
    TEST(a_receive_may_have_room_to_spare),
    TEST(order_is_kept_within_a_tag),
    TEST(many_in_flight),
    TEST(truncation_is_an_error),
    TEST(cancelled_receives_take_nothing),
    TEST(closing_with_requests_in_flight),
    TEST(bad_addresses_are_refused),
    TEST(sleeping_ends_at_timeout_wake_and_message),
    TEST(a_dead_peer_is_reported),
    TEST(the_last_message_of_a_peer_arrives),
};
#define NTESTS (sizeof tests / sizeof tests[0])

int main(void)
{
    static char names[16 * NTESTS][128];
    static struct CMUnitTest units[16 * NTESTS];
    size_t count = 0;
    wring_info info;
    for (size_t i = 0; i < 16 && wri_transport_info(i, "", &info); i++) {
        ops_t *ops = NULL;
        if (wri_transport_find(info.name, "", &ops) != WRING_OK) {
            print_message("transport %s skipped: %s\n", info.name, wring_error_message());
            continue;
        }
        if (ops->caps & WRING_TRANSPORT_STREAM_ORDERED)
            continue; /* test_nccl.c */
        for (size_t k = 0; k < NTESTS; k++, count++) {
            snprintf(names[count], sizeof names[count], "%s: %s", info.name, tests[k].name);
            units[count] = (struct CMUnitTest){
                .name = names[count], .test_func = tests[k].function, .initial_state = (void *)ops};
        }
    }
    return _cmocka_run_group_tests("transport", units, count, NULL, NULL);
}
