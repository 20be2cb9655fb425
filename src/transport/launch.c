/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who this process is. It decides whom to believe: the WRING_* settings, then the launchers in the
 * order of their table; two that both answer must agree on rank and size, because a silent choice
 * between them ends in a hang far from here. Only Slurm may differ from another launcher: torchrun
 * and mpirun run inside its tasks, and their ranks inherit variables that describe the task.
 *
 * Ranks that are all on this machine meet on loopback. Where nobody gives a port, one is derived
 * from the job's identity, so that all ranks agree without talking and two jobs on one host rarely
 * meet. torchrun's MASTER_PORT itself is taken: its own store listens there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/status.h"
#include "transport/launcher.h"
#include "transport/rendezvous.h"
#include "transport/socket.h"

#define PORT_FIRST 20000
#define PORT_COUNT 12000
#define FD_MAX 1048576

/* ---- the settings ---------------------------------------------------------------------------- */

static wring_status ask_settings(const struct wri_config *config, struct wri_launch *launch)
{
    *launch = (struct wri_launch){.local_rank = -1, .listen_fd = -1, .launcher = "wring"};
    if (config->rank < 0 && config->nranks == 0)
        return WRING_OK;
    if (config->rank < 0 || config->nranks == 0)
        WRI_FAIL(WRING_E_CONFIG, "WRING_RANK and WRING_SIZE go together; %s",
                 config->rank < 0 ? "WRING_RANK is not set" : "WRING_SIZE is not set, or 0");
    launch->rank = (int)config->rank;
    launch->nranks = (int)config->nranks;
    return WRING_OK;
}

wring_status wri_launch_root(const char *text, struct wri_launch *launch)
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
        WRI_FAIL(WRING_E_CONFIG, "WRING_ROOT=%s: expected " WRI_ROOT_FORM, text);
    memcpy(launch->host, host, (size_t)(end - host));
    launch->host[end - host] = '\0';
    return port ? wri_launch_parse("port of WRING_ROOT", port, 1, 65535, &launch->port) : WRING_OK;
}

/* The settings that add to any launcher's answer. */
static wring_status apply_settings(const struct wri_config *config, struct wri_launch *launch)
{
    launch->port = (int)config->port;
    if (config->local_rank >= 0)
        launch->local_rank = (int)config->local_rank;
    if (config->local_nranks > 0)
        launch->local_nranks = (int)config->local_nranks;
    return config->root[0] ? wri_launch_root(config->root, launch) : WRING_OK;
}

/* ---- where rank 0 listens -------------------------------------------------------------------- */

static uint64_t job_identity(const struct wri_launcher *launcher)
{
    uint64_t job = wri_hash(launcher->name, strlen(launcher->name), 0);
    for (size_t i = 0; i < sizeof launcher->identity / sizeof launcher->identity[0]; i++) {
        const char *text = wri_launch_variable(launcher->identity[i]);
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

static wring_status settings_root(const struct wri_config *config, struct wri_launch *launch)
{
    if (launch->nranks > 1 && (!config->root[0] || launch->port == 0))
        WRI_FAIL(WRING_E_CONFIG,
                 "WRING_RANK=%d, WRING_SIZE=%d: WRING_ROOT must say where rank 0 "
                 "listens, as " WRI_ROOT_FORM,
                 launch->rank, launch->nranks);
    launch->job = wri_hash(&launch->port, sizeof launch->port, 0);
    return WRING_OK;
}

static wring_status launcher_root(const struct wri_launcher *launcher, struct wri_launch *launch)
{
    int master_port = 0;
    bool given = launch->host[0] != '\0';
    bool open = launch->nranks == WRI_NRANKS_UNKNOWN;
    if (open || (!given && launch->local_nranks != launch->nranks)) {
        struct wri_launch found = *launch;
        if (launcher->find_root)
            WRI_TRY(launcher->find_root(&found));
        if (given)
            memcpy(found.host, launch->host, sizeof found.host);
        *launch = found;
    }
    if (!given && launch->local_nranks == launch->nranks)
        memcpy(launch->host, "127.0.0.1", sizeof "127.0.0.1");
    if (!launch->host[0] && launch->nranks > 1)
        WRI_FAIL(WRING_E_CONFIG,
                 "%s does not say where rank 0 runs, and %d ranks are on several hosts: set "
                 "WRING_ROOT for all ranks as " WRI_ROOT_FORM,
                 launch->launcher, launch->nranks);
    /* torch may be in use whoever launched, and then listens there. */
    WRI_TRY(wri_launch_number("MASTER_PORT", 0, &master_port));
    launch->job = job_identity(launcher);
    if (launch->port == 0)
        launch->port = derive_port(launch->job, master_port);
    return WRING_OK;
}

/* ---- detection ------------------------------------------------------------------------------- */

/* "rank 1 of 4", or "rank 1" where the size is not known yet. */
static const char *describe(const struct wri_launch *launch, char text[40])
{
    snprintf(text, 40, launch->nranks > 0 ? "rank %d of %d" : "rank %d", launch->rank,
             launch->nranks);
    return text;
}

static wring_status check_agreement(const struct wri_launch *a, const struct wri_launch *b)
{
    char text_a[40], text_b[40];
    bool sizes_known = a->nranks > 0 && b->nranks > 0;
    if (b->nranks == 0 || (a->rank == b->rank && (!sizes_known || a->nranks == b->nranks)))
        return WRING_OK;
    WRI_FAIL(WRING_E_CONFIG, "%s says %s, %s says %s: unset the variables of one", a->launcher,
             describe(a, text_a), b->launcher, describe(b, text_b));
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
    const char *text = wri_launch_variable("WRING_LISTEN_FD");
    int fd = -1, listens = 0;
    socklen_t nbytes = sizeof listens;
    if (!text || launch->rank != 0)
        return WRING_OK;
    WRI_TRY(wri_launch_parse("WRING_LISTEN_FD", text, 0, FD_MAX, &fd));
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &nbytes) != 0 || !listens)
        WRI_FAIL(WRING_E_CONFIG, "WRING_LISTEN_FD=%s is not a listening socket", text);
    unsetenv("WRING_LISTEN_FD");
    launch->listen_fd = fd;
    return WRING_OK;
}

/* The first that answers is believed, and the others must agree with it. *LAUNCHER_OUT NULL: the
 * settings. */
static wring_status ask_all(const struct wri_config *config, struct wri_launch *launch_out,
                            const struct wri_launcher **launcher_out)
{
    const struct wri_launcher *launcher;
    struct wri_launch first, next;
    WRI_TRY(ask_settings(config, &first));
    *launcher_out = NULL;
    for (size_t i = 0; (launcher = wri_launcher_at(i)) != NULL; i++) {
        WRI_TRY(wri_launcher_ask(launcher, &next));
        if (first.nranks != 0) {
            bool inside = launcher->outer && *launcher_out;
            WRI_TRY(inside ? WRING_OK : check_agreement(&first, &next));
        } else {
            first = next;
            *launcher_out = launcher;
        }
    }
    if (first.nranks == 0)
        WRI_FAIL(WRING_E_CONFIG,
                 "no launcher: start the ranks with mpirun, torchrun or srun, or "
                 "set WRING_RANK, WRING_SIZE and WRING_ROOT (" WRI_ROOT_FORM ") for each");
    *launch_out = first;
    return WRING_OK;
}

static wring_status find(const struct wri_config *config, struct wri_launch *launch)
{
    const struct wri_launcher *launcher;
    WRI_TRY(ask_all(config, launch, &launcher));
    WRI_TRY(apply_settings(config, launch));
    if (launch->nranks > 0)
        WRI_TRY(check_ranges(launch));
    WRI_TRY(launcher ? launcher_root(launcher, launch) : settings_root(config, launch));
    return check_ranges(launch);
}

bool wri_launch_is_local(const struct wri_config *config)
{
    struct wri_launch launch;
    return find(config, &launch) == WRING_OK && launch.host[0] &&
           wri_socket_is_loopback(launch.host);
}

wring_status wri_launch_detect(const struct wri_config *config, struct wri_launch *launch_out)
{
    struct wri_launch launch;
    WRI_TRY(find(config, &launch));
    WRI_TRY(take_listen_fd(&launch));
    *launch_out = launch;
    return WRING_OK;
}

bool wri_launch_info(size_t index, wring_info *info_out)
{
    static _Thread_local char value[40], reason[256];
    const struct wri_launcher *launcher = index ? wri_launcher_at(index - 1) : NULL;
    struct wri_config config;
    struct wri_launch launch;
    if (index && !launcher)
        return false;
    wring_status status = launcher ? WRING_OK : wri_config_load(&config);
    if (status == WRING_OK)
        status = launcher ? wri_launcher_ask(launcher, &launch) : ask_settings(&config, &launch);
    bool speaks = status == WRING_OK && launch.nranks != 0;
    snprintf(reason, sizeof reason, "%s", status == WRING_OK ? "" : wring_error_message());
    if (status == WRING_OK && !speaks && launcher && !launcher->ask &&
        wri_launch_variable(launcher->nranks))
        snprintf(reason, sizeof reason, "%s is set, %s is not", launcher->nranks, launcher->rank);
    *info_out =
        (wring_info){launcher ? launcher->name : "wring", launcher ? launcher->rank : "WRING_RANK",
                     speaks ? describe(&launch, value) : "", reason};
    return true;
}
