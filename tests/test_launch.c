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

/* PMIx's library forgets four bytes when no server answers. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libpmix";
}

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

#define PMI "PMI_RANK=1 PMI_SIZE=4 PMI_FD=7 PMI_JOBID=9 MPI_LOCALRANKID=1 "
#define MV2 "MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=1 MPIRUN_ID=3 "
#define SLURM                                                                                      \
    "SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_JOB_ID=77 SLURM_STEP_ID=0 "               \
    "SLURM_STEP_NUM_NODES=4 "
#define SLURM_AT(list) SLURM "SLURM_STEP_NODELIST=" list

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
    /* all ranks on this machine meet on loopback, unless told where */
    {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=m", NULL, 1, 2, 1, 2,
     "127.0.0.1", DERIVED, "torchrun"},
    {"RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2", NULL, 1, 2, -1, 2, "127.0.0.1", DERIVED, "torchrun"},
    {"RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=m WRING_ROOT=a", NULL, 1, 2, -1, 2, "a",
     DERIVED, "torchrun"},
    /* PMI, MVAPICH2 */
    {PMI "MPI_LOCALNRANKS=4", NULL, 1, 4, 1, 4, "127.0.0.1", DERIVED, "PMI"},
    {PMI "MPI_LOCALNRANKS=2 WRING_ROOT=a", NULL, 1, 4, 1, 2, "a", DERIVED, "PMI"},
    {PMI "MPI_LOCALNRANKS=2", "PMI does not say where rank 0 runs, and 4 ranks", .launcher = NULL},
    {"PMI_RANK=4 PMI_SIZE=4 MPI_LOCALNRANKS=4", "PMI says rank 4 of 4", .launcher = NULL},
    {MV2 "MV2_COMM_WORLD_LOCAL_SIZE=2", NULL, 1, 2, 1, 2, "127.0.0.1", DERIVED, "MVAPICH2"},
    {MV2 "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2", NULL, 1, 2, -1, 2, "127.0.0.1", DERIVED, "PMI"},
    {MV2 "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2",
     "PMI says rank 0 of 2, MVAPICH2 says rank 1 of 2", .launcher = NULL},
    {MV2, "MVAPICH2 does not say where", .launcher = NULL},
    /* Slurm: the first host of the step's list has rank 0 */
    {SLURM_AT("node7"), NULL, 3, 8, 1, 0, "node7", DERIVED, "Slurm"},
    {SLURM_AT("node-a,node-b"), NULL, 3, 8, 1, 0, "node-a", DERIVED, "Slurm"},
    {SLURM_AT("node[03-05,7],x"), NULL, 3, 8, 1, 0, "node03", DERIVED, "Slurm"},
    {SLURM_AT("node[7,3-5]"), NULL, 3, 8, 1, 0, "node7", DERIVED, "Slurm"},
    {SLURM_AT("rack[1-2]n[4-9]-ib,x"), NULL, 3, 8, 1, 0, "rack1n4-ib", DERIVED, "Slurm"},
    {SLURM_AT("node[1-2] WRING_ROOT=other:9"), NULL, 3, 8, 1, 0, "other", 9, "Slurm"},
    {SLURM_AT("node[1-2] WRING_PORT=9"), NULL, 3, 8, 1, 0, "node1", 9, "Slurm"},
    {SLURM_AT("node[1-2"), "a '[' without ']'", .launcher = NULL},
    {SLURM_AT(","), "SLURM_STEP_NODELIST: the name of a host has 1 to 255 bytes", .launcher = NULL},
    {SLURM, "Slurm does not say where", .launcher = NULL},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_STEP_NUM_NODES=1", NULL, 1,
     2, -1, 2, "127.0.0.1", DERIVED, "Slurm"},
    /* a batch script, an interactive shell: no step of srun's */
    {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=7", "no launcher", .launcher = NULL},
    {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=4294967290", "no launcher", .launcher = NULL},
    {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=batch", "no launcher", .launcher = NULL},
    /* others inside Slurm's tasks; Slurm's own PMI and PMIx */
    {SLURM_AT("node[1-2] ") TORCH, NULL, 3, 8, 1, 2, "node0", DERIVED, "torchrun"},
    {SLURM_AT("n1 ") "RANK=5 WORLD_SIZE=16 MASTER_ADDR=m", NULL, 5, 16, -1, 0, "m", DERIVED,
     "torchrun"},
    {SLURM_AT("n1 ") OMPI_LOCAL, NULL, 1, 2, 1, 2, "127.0.0.1", DERIVED, "Open MPI"},
    {SLURM_AT("n1 ") "PMI_RANK=3 PMI_SIZE=8", NULL, 3, 8, 1, 0, "n1", DERIVED, "Slurm"},
    {SLURM_AT("n1 ") "PMIX_RANK=3 PMIX_NAMESPACE=slurm.pmix.77.0", NULL, 3, 8, 1, 0, "n1", DERIVED,
     "Slurm"},
    {SLURM_AT("n1 ") PMI "MPI_LOCALNRANKS=4", NULL, 1, 4, 1, 4, "127.0.0.1", DERIVED, "PMI"},
    {SLURM_AT(
         "n1 ") "RANK=5 WORLD_SIZE=16 MASTER_ADDR=m PMIX_RANK=3 PMIX_NAMESPACE=slurm.pmix.77.0",
     NULL, 5, 16, -1, 0, "m", DERIVED, "torchrun"},
    {SLURM_AT("n1 ") WRING2 "WRING_ROOT=a:1", "wring says rank 1 of 2, Slurm says rank 3 of 8",
     .launcher = NULL},
    /* PMIx without a server; its rank contradicts */
    {"PMIX_RANK=1 PMIX_NAMESPACE=x", "no PMIx server answers", .launcher = NULL},
    {"PMIX_RANK=x PMIX_NAMESPACE=x", "PMIX_RANK=x", .launcher = NULL},
    {"PMIX_RANK=1", "no launcher", .launcher = NULL},
    {OMPI_LOCAL "PMIX_RANK=0", "Open MPI says rank 1 of 2, PMIx says rank 0", .launcher = NULL},
    {"PMIX_RANK=1 PMIX_NAMESPACE=x PMI_RANK=0 PMI_SIZE=2", "PMIx says rank 1, PMI says rank 0 of 2",
     .launcher = NULL},
    {"", "no launcher", .launcher = NULL},
    {"RANK=3", "no launcher", .launcher = NULL},
    {"WRING_RANK=0", "WRING_SIZE is not set", .launcher = NULL},
    {"WRING_SIZE=2", "WRING_RANK is not set", .launcher = NULL},
    {"WRING_RANK=0 WRING_SIZE=0", "WRING_SIZE is not set, or 0", .launcher = NULL},
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

/* What need not be reached from elsewhere does not listen there. */
static void ranks_of_one_machine_are_known_as_such(void **state)
{
    static const struct {
        const char *environment;
        bool local;
    } rows[] = {{"", false},
                {WRING2 "WRING_ROOT=127.0.0.1:9", true},
                {WRING2 "WRING_ROOT=[::1]:9", true},
                {WRING2 "WRING_ROOT=10.0.0.1:9", false},
                {WRING2 "WRING_ROOT=no.such.host.invalid:9", false},
                {"WRING_RANK=0 WRING_SIZE=1", false},
                {OMPI_LOCAL, true},
                {OMPI_LOCAL "WRING_ROOT=10.0.0.1", false},
                {SLURM_AT("n1"), false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wri_config config;
        set_environment(rows[i].environment);
        assert_int_equal(wri_config_load(&config), WRING_OK);
        if (wri_launch_is_local(&config) != rows[i].local)
            fail_msg("'%s'", rows[i].environment);
    }
}

/* A program asks so whether it is one of several ranks. */
static void who_speaks_can_be_asked(void **state)
{
    static const struct {
        const char *environment, *name, *value, *detail;
    } rows[] = {
        {"SLURM_NTASKS=4 PMIX_NAMESPACE=x RANK=1", NULL, "", ""},
        {"WRING_RANK=1 WRING_SIZE=4", "wring", "rank 1 of 4", ""},
        {"WRING_RANK=1", "wring", "", "WRING_SIZE is not set"},
        {"WRING_RANK=x", "wring", "", "WRING_RANK=x"},
        {"RANK=1 WORLD_SIZE=4", "torchrun", "rank 1 of 4", ""},
        {"WORLD_SIZE=4", "torchrun", "", "RANK is not"},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=x", "Open MPI", "", "expected a number"},
        {"PMIX_RANK=1 PMIX_NAMESPACE=x", "PMIx", "rank 1", ""},
        {"PMI_RANK=0 PMI_SIZE=4", "PMI", "rank 0 of 4", ""},
        {MV2, "MVAPICH2", "rank 1 of 2", ""},
        {SLURM, "Slurm", "rank 3 of 8", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        wring_info info;
        int found = 0;
        set_environment(rows[i].environment);
        for (size_t n = 0; wring_info_get(WRING_INFO_LAUNCHER, n, &info); n++) {
            if (!info.value[0] && !info.detail[0])
                continue;
            found++;
            if (!rows[i].name || strcmp(info.name, rows[i].name) ||
                strcmp(info.value, rows[i].value) || !strstr(info.detail, rows[i].detail))
                fail_msg("'%s': %s, '%s', '%s'", rows[i].environment, info.name, info.value,
                         info.detail);
        }
        assert_int_equal(found, rows[i].name != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case),
        cmocka_unit_test(the_port_follows_from_the_job),
        cmocka_unit_test(the_port_is_never_the_masters),
        cmocka_unit_test(ranks_of_one_machine_are_known_as_such),
        cmocka_unit_test(who_speaks_can_be_asked),
        cmocka_unit_test(an_inherited_socket_is_handed_out_once),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
