/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who this process is, from the launcher's environment. It decides whom to believe: the WRING_*
 * settings, torchrun's variables and Open MPI's are asked in this order, and two that both answer
 * must agree on rank and size, because a silent choice between them ends in a hang far from here.
 *
 * Where a launcher gives no port of ours, one is derived from the job's identity, so that all ranks
 * agree without talking and two jobs on one host rarely meet. torchrun's MASTER_PORT itself is
 * taken: its own store listens there.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/status.h"
#include "transport/rendezvous.h"

#define PORT_FIRST 20000
#define PORT_COUNT 12000
#define NUMBER_MAX 1048576
#define ROOT_FORM "host:port, for example 10.0.0.1:29400"

/* What one launcher tells through its variables; the settings have no row. */
struct source {
    const char *launcher;
    const char *rank, *nranks, *local_rank, *local_nranks; /* names of its variables */
    const char *identity[3];                               /* variables that name the job */
};

static const struct source torchrun = {
    "torchrun",         "RANK",
    "WORLD_SIZE",       "LOCAL_RANK",
    "LOCAL_WORLD_SIZE", {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
};
static const struct source open_mpi = {
    "Open MPI",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL},
};

/* The variable's value; NULL if it is unset or empty. */
static const char *variable(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value && value[0] ? value : NULL;
}

static wring_status parse_number(const char *name, const char *text, long min, long max, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < min || value > max)
        WRI_FAIL(WRING_E_CONFIG, "%s=%s: expected a number from %ld to %ld", name, text, min, max);
    *out = (int)value;
    return WRING_OK;
}

/* *OUT keeps its value where the variable is unset. */
static wring_status read_number(const char *name, long min, int *out)
{
    const char *text = variable(name);
    return text ? parse_number(name, text, min, NUMBER_MAX, out) : WRING_OK;
}

/* Rank and size by SOURCE's variables; nranks stays 0 if it does not speak. */
static wring_status ask(const struct source *source, struct wri_launch *launch)
{
    *launch = (struct wri_launch){.local_rank = -1, .listen_fd = -1, .launcher = source->launcher};
    if (!variable(source->rank) || !variable(source->nranks))
        return WRING_OK;
    WRI_TRY(read_number(source->nranks, 1, &launch->nranks));
    WRI_TRY(read_number(source->rank, 0, &launch->rank));
    WRI_TRY(read_number(source->local_rank, 0, &launch->local_rank));
    return read_number(source->local_nranks, 1, &launch->local_nranks);
}

/* The same by the settings. */
static wring_status ask_settings(const struct wri_config *config, struct wri_launch *launch)
{
    *launch = (struct wri_launch){.local_rank = -1, .listen_fd = -1, .launcher = "wring"};
    if (config->rank < 0 && config->nranks == 0)
        return WRING_OK;
    if (config->rank < 0 || config->nranks == 0)
        WRI_FAIL(WRING_E_CONFIG, "WRING_RANK and WRING_SIZE go together; %s is not set",
                 config->rank < 0 ? "WRING_RANK" : "WRING_SIZE");
    launch->rank = (int)config->rank;
    launch->nranks = (int)config->nranks;
    return WRING_OK;
}

/* ---- where rank 0 listens -------------------------------------------------------------------- */

static uint64_t job_identity(const struct source *source)
{
    uint64_t job = wri_hash(source->launcher, strlen(source->launcher), 0);
    for (size_t i = 0; i < sizeof source->identity / sizeof source->identity[0]; i++) {
        const char *text = variable(source->identity[i]);
        job = wri_hash(text ? text : "", text ? strlen(text) : 0, job);
    }
    return job;
}

/* A port that follows from the job's identity and is not FORBIDDEN. */
static int derive_port(uint64_t job, int forbidden)
{
    int port = PORT_FIRST + (int)(job % PORT_COUNT);
    return port == forbidden ? PORT_FIRST + (int)((job + 1) % PORT_COUNT) : port;
}

/* "host", "host:port" or "[v6]:port"; the port stays as it is where the text has none. */
static wring_status parse_root(const char *text, struct wri_launch *launch)
{
    const char *host = text, *end = text + strlen(text), *port = NULL;
    if (text[0] == '[') {
        host = text + 1;
        const char *bracket = strchr(host, ']');
        if (!bracket || (bracket[1] && bracket[1] != ':'))
            WRI_FAIL(WRING_E_CONFIG, "WRING_ROOT=%s: expected [address]:port", text);
        end = bracket;
        port = bracket[1] ? bracket + 2 : NULL;
    } else if (strchr(text, ':') && strchr(text, ':') == strrchr(text, ':')) {
        end = strchr(text, ':');
        port = end + 1;
    } else if (strchr(text, ':')) {
        WRI_FAIL(WRING_E_CONFIG, "WRING_ROOT=%s: expected [address]:port for an IPv6 address",
                 text);
    }
    if (end == host || (size_t)(end - host) >= sizeof launch->host)
        WRI_FAIL(WRING_E_CONFIG, "WRING_ROOT=%s: expected " ROOT_FORM, text);
    memcpy(launch->host, host, (size_t)(end - host));
    launch->host[end - host] = '\0';
    return port ? parse_number("port of WRING_ROOT", port, 1, 65535, &launch->port) : WRING_OK;
}

static wring_status settings_root(const struct wri_config *config, struct wri_launch *launch)
{
    if (launch->nranks > 1 && (!config->root[0] || launch->port == 0))
        WRI_FAIL(WRING_E_CONFIG,
                 "WRING_RANK=%d, WRING_SIZE=%d: WRING_ROOT must say where rank 0 "
                 "listens, as " ROOT_FORM,
                 launch->rank, launch->nranks);
    launch->job = wri_hash(&launch->port, sizeof launch->port, 0);
    return WRING_OK;
}

static wring_status torchrun_root(const struct wri_config *config, struct wri_launch *launch)
{
    const char *address = variable("MASTER_ADDR");
    int master_port = 0;
    (void)config;
    if (!launch->host[0] && launch->nranks > 1 && !address)
        WRI_FAIL(WRING_E_CONFIG, "RANK and WORLD_SIZE are set, but MASTER_ADDR is not: set it, or "
                                 "WRING_ROOT as " ROOT_FORM);
    if (!launch->host[0] && address) {
        if (strlen(address) >= sizeof launch->host)
            WRI_FAIL(WRING_E_CONFIG, "MASTER_ADDR is too long");
        memcpy(launch->host, address, strlen(address) + 1);
    }
    WRI_TRY(read_number("MASTER_PORT", 0, &master_port));
    launch->job = job_identity(&torchrun);
    if (launch->port == 0)
        launch->port = derive_port(launch->job, master_port);
    return WRING_OK;
}

static wring_status open_mpi_root(const struct wri_config *config, struct wri_launch *launch)
{
    (void)config;
    if (!launch->host[0] && launch->nranks > 1 && launch->local_nranks != launch->nranks)
        WRI_FAIL(WRING_E_CONFIG,
                 "Open MPI does not say where rank 0 runs, and %d ranks are on several "
                 "hosts: set WRING_ROOT as " ROOT_FORM " (mpirun -x WRING_ROOT=...)",
                 launch->nranks);
    if (!launch->host[0])
        memcpy(launch->host, "127.0.0.1", sizeof "127.0.0.1");
    launch->job = job_identity(&open_mpi);
    if (launch->port == 0)
        launch->port = derive_port(launch->job, 0);
    return WRING_OK;
}

/* ---- detection ------------------------------------------------------------------------------- */

static wring_status check_agreement(const struct wri_launch *a, const struct wri_launch *b)
{
    if (b->nranks == 0 || (a->rank == b->rank && a->nranks == b->nranks))
        return WRING_OK;
    WRI_FAIL(WRING_E_CONFIG,
             "%s says rank %d of %d, %s says rank %d of %d: unset the variables of one",
             a->launcher, a->rank, a->nranks, b->launcher, b->rank, b->nranks);
}

static wring_status check_ranges(const struct wri_launch *launch)
{
    if (launch->rank >= launch->nranks)
        WRI_FAIL(WRING_E_CONFIG, "%s says rank %d of %d ranks; ranks count from 0",
                 launch->launcher, launch->rank, launch->nranks);
    if (launch->local_nranks && launch->local_rank >= launch->local_nranks)
        WRI_FAIL(WRING_E_CONFIG, "%s says local rank %d of %d; ranks count from 0",
                 launch->launcher, launch->local_rank, launch->local_nranks);
    return WRING_OK;
}

/* Take the listening socket that a parent left to rank 0. Its variable goes, because the socket can
 * be used once and is no longer open when a child of ours could look for it. */
static wring_status take_listen_fd(struct wri_launch *launch)
{
    const char *text = variable("WRING_LISTEN_FD");
    int fd = -1, listens = 0;
    socklen_t nbytes = sizeof listens;
    if (!text || launch->rank != 0)
        return WRING_OK;
    WRI_TRY(parse_number("WRING_LISTEN_FD", text, 0, NUMBER_MAX, &fd));
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &nbytes) != 0 || !listens)
        WRI_FAIL(WRING_E_CONFIG, "WRING_LISTEN_FD=%s is not a listening socket", text);
    unsetenv("WRING_LISTEN_FD");
    launch->listen_fd = fd;
    return WRING_OK;
}

/* The settings that add to any launcher's answer. */
static wring_status apply_settings(const struct wri_config *config, struct wri_launch *launch)
{
    launch->port = (int)config->port;
    if (config->local_rank >= 0)
        launch->local_rank = (int)config->local_rank;
    if (config->local_nranks > 0)
        launch->local_nranks = (int)config->local_nranks;
    return config->root[0] ? parse_root(config->root, launch) : WRING_OK;
}

wring_status wri_launch_detect(const struct wri_config *config, struct wri_launch *launch_out)
{
    static wring_status (*const find_root[])(const struct wri_config *, struct wri_launch *) = {
        settings_root, torchrun_root, open_mpi_root};
    struct wri_launch answers[3];
    int first = 0;
    WRI_TRY(ask_settings(config, &answers[0]));
    WRI_TRY(ask(&torchrun, &answers[1]));
    WRI_TRY(ask(&open_mpi, &answers[2]));
    while (first < 3 && answers[first].nranks == 0)
        first++;
    if (first == 3)
        WRI_FAIL(WRING_E_CONFIG, "no launcher: start the ranks with mpirun or torchrun, or set "
                                 "WRING_RANK, WRING_SIZE and WRING_ROOT (" ROOT_FORM ") for each");
    for (int i = first + 1; i < 3; i++)
        WRI_TRY(check_agreement(&answers[first], &answers[i]));
    WRI_TRY(apply_settings(config, &answers[first]));
    WRI_TRY(check_ranges(&answers[first]));
    WRI_TRY(find_root[first](config, &answers[first]));
    WRI_TRY(take_listen_fd(&answers[first]));
    *launch_out = answers[first];
    return WRING_OK;
}
