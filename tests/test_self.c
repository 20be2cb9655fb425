/* SPDX-License-Identifier: Apache-2.0 */
/* What transport self has beyond the contract: the seeded order, and faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/module.h"
#include "transport/transport.h"

#define RANKS 3
#define MESSAGES 40

struct world {
    const struct wring_transport_ops *ops;
    void *self, *endpoint[RANKS], *peer[RANKS][RANKS];
};

static struct world world_open(uint64_t seed)
{
    struct wring_transport_open options = {
        .size = sizeof options, .host = &wri_host_services, .seed = seed};
    struct world world = {.ops = NULL};
    assert_int_equal(wri_transport_find("self", "", &world.ops), WRING_OK);
    assert_int_equal(world.ops->open(&options, &world.self), WRING_OK);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(world.ops->endpoint_open(world.self, &world.endpoint[i]), WRING_OK);
    for (int i = 0; i < RANKS; i++)
        for (int j = 0; j < RANKS; j++) {
            char address[64];
            size_t nbytes = sizeof address;
            world.ops->endpoint_address(world.endpoint[j], address, &nbytes);
            assert_int_equal(
                world.ops->peer_open(world.endpoint[i], address, nbytes, &world.peer[i][j]),
                WRING_OK);
        }
    return world;
}

static void world_close(struct world *world)
{
    for (int i = 0; i < RANKS; i++)
        for (int j = 0; j < RANKS; j++)
            world->ops->peer_close(world->peer[i][j]);
    for (int i = 0; i < RANKS; i++)
        world->ops->endpoint_close(world->endpoint[i]);
    world->ops->close(world->self);
}

static void *send_to(struct world *world, int src, int dst, uint64_t tag, const int *value)
{
    void *request = NULL;
    assert_int_equal(world->ops->send(world->peer[src][dst], tag, value, sizeof *value, &request),
                     WRING_OK);
    return request;
}

static void *recv_from(struct world *world, int src, int dst, uint64_t tag, int *value)
{
    void *request = NULL;
    assert_int_equal(world->ops->recv(world->endpoint[dst], world->peer[dst][src], tag, value,
                                      sizeof *value, &request),
                     WRING_OK);
    return request;
}

static wring_status test(struct world *world, void *request)
{
    size_t nbytes;
    return world->ops->test(world->self, request, &nbytes);
}

static void progress(struct world *world, int calls)
{
    while (calls-- > 0)
        world->ops->progress(world->self);
}

/* Tags in the order in which messages were offered for delivery, and what to do with each. */
struct script {
    uint64_t order[MESSAGES];
    int count;
    enum wri_self_fault fault; /* of messages with an odd tag */
    bool flip;
};

static enum wri_self_fault follow(void *arg, int src, int dst, uint64_t tag, void *data,
                                  size_t nbytes)
{
    struct script *script = arg;
    assert_int_equal(src, 0);
    assert_true(dst == 1 || dst == 2);
    assert_int_equal(nbytes, sizeof(int));
    if (script->count < MESSAGES)
        script->order[script->count] = tag;
    script->count++;
    if (script->flip)
        *(unsigned char *)data ^= 1;
    return tag % 2 ? script->fault : WRI_SELF_DELIVER;
}

static void record_order(uint64_t seed, uint64_t order[MESSAGES])
{
    struct script script = {.count = 0};
    struct world world = world_open(seed);
    int out = 1, in;
    void *requests[2 * MESSAGES];
    wri_self_set_fault(world.self, follow, &script);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        requests[2 * i] = send_to(&world, 0, 1, i, &out);
        requests[2 * i + 1] = recv_from(&world, 0, 1, i, &in);
    }
    progress(&world, MESSAGES);
    for (int i = 0; i < 2 * MESSAGES; i++)
        assert_int_equal(test(&world, requests[i]), WRING_OK);
    assert_int_equal(script.count, MESSAGES);
    memcpy(order, script.order, sizeof script.order);
    world_close(&world);
}

static void a_seed_is_an_order(void **state)
{
    uint64_t first[MESSAGES], again[MESSAGES], other[MESSAGES];
    (void)state;
    record_order(5, first);
    record_order(5, again);
    record_order(6, other);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
}

static void dropped_messages_never_arrive(void **state)
{
    struct script script = {.fault = WRI_SELF_DROP};
    struct world world = world_open(1);
    int out = 1, in = 0;
    (void)state;
    wri_self_set_fault(world.self, follow, &script);
    void *recv = recv_from(&world, 0, 1, 3, &in), *send = send_to(&world, 0, 1, 3, &out);
    progress(&world, 100);
    assert_int_equal(test(&world, send), WRING_OK); /* as on a network: gone is sent */
    assert_int_equal(test(&world, recv), WRING_AGAIN);
    assert_int_equal(script.count, 1);
    script.fault = WRI_SELF_DELIVER;
    out = 7;
    send = send_to(&world, 0, 1, 3, &out);
    progress(&world, 100);
    assert_int_equal(test(&world, recv), WRING_OK);
    assert_int_equal(test(&world, send), WRING_OK);
    assert_int_equal(in, 7);
    world_close(&world);
}

static void delayed_messages_arrive_later(void **state)
{
    struct script script = {.fault = WRI_SELF_DELAY};
    struct world world = world_open(1);
    int out = 1, in = 0;
    (void)state;
    wri_self_set_fault(world.self, follow, &script);
    void *recv = recv_from(&world, 0, 2, 3, &in), *send = send_to(&world, 0, 2, 3, &out);
    progress(&world, 100);
    assert_int_equal(test(&world, send), WRING_AGAIN);
    assert_int_equal(test(&world, recv), WRING_AGAIN);
    assert_int_equal(script.count, 100);
    assert_false(world.ops->arm(world.self)); /* there is something to do */
    script.fault = WRI_SELF_DELIVER;
    progress(&world, 1);
    assert_int_equal(test(&world, send), WRING_OK);
    assert_int_equal(test(&world, recv), WRING_OK);
    assert_int_equal(in, 1);
    assert_true(world.ops->arm(world.self));
    world_close(&world);
}

static void a_cut_loses_the_two_to_each_other(void **state)
{
    struct script script = {.fault = WRI_SELF_CUT};
    struct world world = world_open(1);
    int out = 1, in[4];
    (void)state;
    wri_self_set_fault(world.self, follow, &script);
    void *lost[] = {recv_from(&world, 0, 1, 3, &in[0]), send_to(&world, 0, 1, 3, &out),
                    recv_from(&world, 1, 0, 8, &in[1]), send_to(&world, 1, 0, 9, &out)};
    progress(&world, 10);
    for (int i = 0; i < 4; i++)
        assert_int_equal(test(&world, lost[i]), WRING_E_PEER_LOST);
    assert_int_equal(world.ops->peer_status(world.peer[0][1]), WRING_E_PEER_LOST);
    assert_int_equal(world.ops->peer_status(world.peer[1][0]), WRING_E_PEER_LOST);
    assert_int_equal(world.ops->peer_status(world.peer[0][2]), WRING_OK);
    assert_int_equal(world.ops->peer_status(world.peer[2][1]), WRING_OK);
    assert_int_equal(test(&world, send_to(&world, 0, 1, 4, &out)), WRING_E_PEER_LOST);
    void *recv = recv_from(&world, 0, 2, 4, &in[2]), *send = send_to(&world, 0, 2, 4, &out);
    progress(&world, 10);
    assert_int_equal(test(&world, recv), WRING_OK);
    assert_int_equal(test(&world, send), WRING_OK);
    world_close(&world);
}

static void damage_is_done_to_the_receivers_copy(void **state)
{
    struct script script = {.flip = true};
    struct world world = world_open(1);
    int out = 4, in = 0;
    (void)state;
    wri_self_set_fault(world.self, follow, &script);
    void *recv = recv_from(&world, 0, 1, 2, &in), *send = send_to(&world, 0, 1, 2, &out);
    progress(&world, 1);
    assert_int_equal(test(&world, recv), WRING_OK);
    assert_int_equal(test(&world, send), WRING_OK);
    assert_int_equal(out, 4);
    assert_int_equal(in, 5);
    world_close(&world);
}

/* A cancelled receive leaves its message to the next one; a cancelled send still goes out. */
static void half_a_pair_may_be_cancelled(void **state)
{
    struct world world = world_open(1);
    int out = 1, gone = 0, in = 0;
    (void)state;
    void *send = send_to(&world, 0, 1, 2, &out), *recv = recv_from(&world, 0, 1, 2, &gone);
    world.ops->cancel(world.self, recv);
    recv = recv_from(&world, 0, 1, 2, &in);
    world.ops->cancel(world.self, send);
    progress(&world, 10);
    assert_int_equal(test(&world, recv), WRING_OK);
    assert_int_equal(gone, 0);
    assert_int_equal(in, 1);
    world_close(&world);
}

static void another_contexts_address_is_refused(void **state)
{
    struct world world = world_open(1), other = world_open(1);
    char address[64];
    size_t nbytes = sizeof address;
    void *peer = NULL;
    (void)state;
    other.ops->endpoint_address(other.endpoint[0], address, &nbytes);
    assert_int_equal(world.ops->peer_open(world.endpoint[0], address, nbytes, &peer),
                     WRING_E_ARGUMENT);
    assert_null(peer);
    world_close(&world);
    world_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_is_an_order),
        cmocka_unit_test(dropped_messages_never_arrive),
        cmocka_unit_test(delayed_messages_arrive_later),
        cmocka_unit_test(a_cut_loses_the_two_to_each_other),
        cmocka_unit_test(damage_is_done_to_the_receivers_copy),
        cmocka_unit_test(half_a_pair_may_be_cancelled),
        cmocka_unit_test(another_contexts_address_is_refused),
    };
    return cmocka_run_group_tests_name("self", tests, NULL, NULL);
}
