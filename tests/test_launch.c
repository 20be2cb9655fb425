/* SPDX-License-Identifier: Apache-2.0 */
/* Launch detection: a table of environments and what must come of each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/config.h"
#include "transport/rendezvous.h"
#include "transport/socket.h"

extern char **environ;

#define DERIVED (-2) /* any port from 20000 to 31999 */

struct launch_case {
    const char *environment; /* NAME=value, separated by spaces */
    const char *trouble;     /* part of the message, or NULL: must work out */
    int rank, nranks, local_rank, local_nranks;
    const char *host;
    int port;
    const char *launcher;
};

#define WRING2 "WRING_RANK=1 WRING_SIZE=2 "
#define TORCH                                                                                      \
    "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=29500 "
#define OMPI                                                                                       \
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "                  \
    "PMIX_NAMESPACE=17 "
#define OMPI_LOCAL OMPI "OMPI_COMM_WORLD_LOCAL_SIZE=2 "
#define OMPI_APART OMPI "OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "

static const struct launch_case cases[] = {
    {WRING2 "WRING_ROOT=10.0.0.1:123", NULL, 1, 2, -1, 0, "10.0.0.1", 123, "wring"},
    {WRING2 "WRING_ROOT=[fe80::1]:123", NULL, 1, 2, -1, 0, "fe80::1", 123, "wring"},
    {WRING2 "WRING_ROOT=node WRING_PORT=7", NULL, 1, 2, -1, 0, "node", 7, "wring"},
    {WRING2 "WRING_ROOT=node:9 WRING_LOCAL_RANK=1 WRING_LOCAL_SIZE=2", NULL, 1, 2, 1, 2, "node", 9,
     "wring"},
    {"WRING_RANK=0 WRING_SIZE=1", NULL, 0, 1, -1, 0, "", 0, "wring"},
    {TORCH, NULL, 3, 8, 1, 2, "node0", DERIVED, "torchrun"},
    {TORCH "WRING_PORT=4000", NULL, 3, 8, 1, 2, "node0", 4000, "torchrun"},
    {TORCH "WRING_ROOT=other:5000", NULL, 3, 8, 1, 2, "other", 5000, "torchrun"},
    {"RANK=0 WORLD_SIZE=1", NULL, 0, 1, -1, 0, "", DERIVED, "torchrun"},
    {OMPI_LOCAL, NULL, 1, 2, 1, 2, "127.0.0.1", DERIVED, "Open MPI"},
    {OMPI_APART "WRING_ROOT=10.0.0.1:77", NULL, 1, 2, 0, 1, "10.0.0.1", 77, "Open MPI"},
    {OMPI_APART "WRING_ROOT=10.0.0.1", NULL, 1, 2, 0, 1, "10.0.0.1", DERIVED, "Open MPI"},
    {OMPI_LOCAL "RANK=1 WORLD_SIZE=2 MASTER_ADDR=m", NULL, 1, 2, -1, 0, "m", DERIVED, "torchrun"},
    {WRING2 "WRING_ROOT=a:1 " OMPI_LOCAL, NULL, 1, 2, -1, 0, "a", 1, "wring"},
    {"RANK=5 " OMPI_LOCAL, NULL, 1, 2, 1, 2, "127.0.0.1", DERIVED,
     "Open MPI"}, /* RANK alone is no launcher */
    {"", "no launcher", .launcher = NULL},
    {"RANK=3", "no launcher", .launcher = NULL},
    {"WRING_RANK=0", "WRING_SIZE is not set", .launcher = NULL},
    {"WRING_SIZE=2", "WRING_RANK is not set", .launcher = NULL},
    {WRING2, "WRING_ROOT", .launcher = NULL},
    {WRING2 "WRING_ROOT=node", "WRING_ROOT", .launcher = NULL},
    {WRING2 "WRING_ROOT=:1", "WRING_ROOT=:1", .launcher = NULL},
    {WRING2 "WRING_ROOT=node:0", "port of WRING_ROOT=0", .launcher = NULL},
    {WRING2 "WRING_ROOT=node:x", "port of WRING_ROOT=x", .launcher = NULL},
    {WRING2 "WRING_ROOT=node:65536", "65535", .launcher = NULL},
    {WRING2 "WRING_ROOT=fe80::1", "[address]", .launcher = NULL},
    {WRING2 "WRING_ROOT=[fe80::1", "[address]", .launcher = NULL},
    {WRING2 "WRING_ROOT=[fe80::1]9", "[address]", .launcher = NULL},
    {"WRING_RANK=2 WRING_SIZE=2 WRING_ROOT=a:1", "rank 2 of 2", .launcher = NULL},
    {WRING2 "WRING_ROOT=a:1 WRING_LOCAL_RANK=3 WRING_LOCAL_SIZE=2", "local rank 3",
     .launcher = NULL},
    {WRING2 "WRING_ROOT=a:1 RANK=0 WORLD_SIZE=2", "torchrun says rank 0 of 2", .launcher = NULL},
    {"RANK=1 WORLD_SIZE=4 " OMPI_LOCAL, "Open MPI says rank 1 of 2", .launcher = NULL},
    {"RANK=1x WORLD_SIZE=4 MASTER_ADDR=m", "RANK=1x", .launcher = NULL},
    {"RANK=-1 WORLD_SIZE=4 MASTER_ADDR=m", "RANK=-1", .launcher = NULL},
    {"RANK=0 WORLD_SIZE=0 MASTER_ADDR=m", "WORLD_SIZE=0", .launcher = NULL},
    {"RANK=0 WORLD_SIZE=99999999999999999999 MASTER_ADDR=m", "WORLD_SIZE=9", .launcher = NULL},
    {"RANK=0 WORLD_SIZE=2", "MASTER_ADDR", .launcher = NULL},
    {OMPI_APART, "set WRING_ROOT", .launcher = NULL},
    {"WRING_RANK=0 WRING_SIZE=1 WRING_LISTEN_FD=9999", "WRING_LISTEN_FD=9999", .launcher = NULL},
    {"WRING_RANK=0 WRING_SIZE=1 WRING_LISTEN_FD=2", "not a listening socket", .launcher = NULL},
};

/* Nothing but ENVIRONMENT. */
static void set_environment(const char *environment)
{
    char text[1024];
    assert_int_equal(clearenv(), 0);
    snprintf(text, sizeof text, "%s", environment);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        assert_int_equal(setenv(word, equals + 1, 1), 0);
    }
}

static wring_status detect(const char *environment, struct wri_launch *launch)
{
    struct wri_config config;
    set_environment(environment);
    assert_int_equal(wri_config_load(&config), WRING_OK);
    return wri_launch_detect(&config, launch);
}

static void check_case(const struct launch_case *c)
{
    struct wri_launch launch = {.launcher = NULL};
    wring_status status = detect(c->environment, &launch);
    if (c->trouble) {
        if (status != WRING_E_CONFIG || !strstr(wring_error_message(), c->trouble))
            fail_msg("'%s': %s, '%s'", c->environment, wring_status_name(status),
                     wring_error_message());
        return;
    }
    if (status != WRING_OK)
        fail_msg("'%s': %s", c->environment, wring_error_message());
    bool port_fits =
        c->port == DERIVED ? launch.port >= 20000 && launch.port < 32000 : launch.port == c->port;
    if (launch.rank != c->rank || launch.nranks != c->nranks ||
        launch.local_rank != c->local_rank || launch.local_nranks != c->local_nranks ||
        strcmp(launch.host, c->host) || !port_fits || strcmp(launch.launcher, c->launcher) ||
        launch.listen_fd != -1)
        fail_msg("'%s': rank %d of %d, local %d of %d, at %s:%d, by %s", c->environment,
                 launch.rank, launch.nranks, launch.local_rank, launch.local_nranks, launch.host,
                 launch.port, launch.launcher);
}

static void every_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_case(&cases[i]);
}

/* Ranks of one job agree on port and job; another run, port or restart is another job. */
static void the_port_follows_from_the_job(void **state)
{
    static const char *const jobs[] = {
        "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x",
        "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=1",
        "MASTER_PORT=29501 TORCHELASTIC_RUN_ID=x",
        "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=y",
    };
    struct wri_launch first[4];
    (void)state;
    for (int job = 0; job < 4; job++)
        for (int rank = 0; rank < 8; rank++) {
            char text[256];
            struct wri_launch launch;
            snprintf(text, sizeof text, "WORLD_SIZE=8 MASTER_ADDR=a RANK=%d %s", rank, jobs[job]);
            assert_int_equal(detect(text, &launch), WRING_OK);
            if (rank == 0)
                first[job] = launch;
            assert_int_equal(launch.port, first[job].port);
            assert_true(launch.job == first[job].job);
        }
    for (int job = 1; job < 4; job++)
        assert_true(first[job].job != first[0].job);
}

/* torchrun listens on MASTER_PORT itself. */
static void the_port_is_never_the_masters(void **state)
{
    (void)state;
    for (int port = 20000; port < 32000; port++) {
        char text[128];
        struct wri_launch launch;
        snprintf(text, sizeof text, "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=%d", port);
        assert_int_equal(detect(text, &launch), WRING_OK);
        assert_int_not_equal(launch.port, port);
    }
}

static void an_inherited_socket_is_handed_out_once(void **state)
{
    char text[128];
    int fd = -1, port = 0;
    struct wri_launch launch;
    struct wri_config config;
    (void)state;
    assert_int_equal(wri_socket_listen("127.0.0.1", &port, &fd), WRING_OK);
    snprintf(text, sizeof text,
             "WRING_RANK=1 WRING_SIZE=2 WRING_ROOT=127.0.0.1:%d WRING_LISTEN_FD=%d", port, fd);
    assert_int_equal(detect(text, &launch), WRING_OK);
    assert_int_equal(launch.listen_fd, -1); /* not for rank 1 */
    text[11] = '0';
    assert_int_equal(detect(text, &launch), WRING_OK);
    assert_int_equal(launch.listen_fd, fd);
    assert_int_equal(wri_config_load(&config), WRING_OK);
    assert_int_equal(wri_launch_detect(&config, &launch), WRING_OK);
    assert_int_equal(launch.listen_fd, -1);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case),
        cmocka_unit_test(the_port_follows_from_the_job),
        cmocka_unit_test(the_port_is_never_the_masters),
        cmocka_unit_test(an_inherited_socket_is_handed_out_once),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
