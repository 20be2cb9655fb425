/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launchers that start ranks. It decides which variables of each are believed, and where rank 0
 * is, which only some of them say.
 */
#include "transport/launcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define NUMBER_MAX 1048576
#define STEP_MAX 0xFFFFFFF0u /* larger ones name Slurm's own: batch script, interactive shell */

/* ---- variables ------------------------------------------------------------------------------- */

const char *wri_launch_variable(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value && value[0] ? value : NULL;
}

wring_status wri_launch_parse(const char *name, const char *text, long min, long max, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < min || value > max)
        WRI_FAIL(WRING_E_CONFIG, "%s=%s: expected a number from %ld to %ld", name, text, min, max);
    *out = (int)value;
    return WRING_OK;
}

wring_status wri_launch_number(const char *name, long min, int *out)
{
    const char *text = wri_launch_variable(name);
    return text ? wri_launch_parse(name, text, min, NUMBER_MAX, out) : WRING_OK;
}

static wring_status ask_variables(const struct wri_launcher *launcher, struct wri_launch *launch)
{
    if (!wri_launch_variable(launcher->rank) || !wri_launch_variable(launcher->nranks))
        return WRING_OK;
    WRI_TRY(wri_launch_number(launcher->nranks, 1, &launch->nranks));
    WRI_TRY(wri_launch_number(launcher->rank, 0, &launch->rank));
    WRI_TRY(wri_launch_number(launcher->local_rank, 0, &launch->local_rank));
    return wri_launch_number(launcher->local_nranks, 1, &launch->local_nranks);
}

wring_status wri_launcher_ask(const struct wri_launcher *launcher, struct wri_launch *launch_out)
{
    *launch_out =
        (struct wri_launch){.local_rank = -1, .listen_fd = -1, .launcher = launcher->name};
    return launcher->ask ? launcher->ask(launcher, launch_out)
                         : ask_variables(launcher, launch_out);
}

static bool same_text(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

static wring_status set_host(struct wri_launch *launch, const char *name, const char *host,
                             size_t length)
{
    if (length == 0 || length >= sizeof launch->host)
        WRI_FAIL(WRING_E_CONFIG, "%s: the name of a host has 1 to %zu bytes", name,
                 sizeof launch->host - 1);
    memcpy(launch->host, host, length);
    launch->host[length] = '\0';
    return WRING_OK;
}

/* ---- torchrun -------------------------------------------------------------------------------- */

static wring_status torchrun_root(struct wri_launch *launch)
{
    const char *address = wri_launch_variable("MASTER_ADDR");
    if (!address && launch->nranks > 1)
        WRI_FAIL(WRING_E_CONFIG, "RANK and WORLD_SIZE are set, but MASTER_ADDR is not: set it, or "
                                 "WRING_ROOT as " WRI_ROOT_FORM);
    return address ? set_host(launch, "MASTER_ADDR", address, strlen(address)) : WRING_OK;
}

/* ---- Open MPI, PMIx, PMI --------------------------------------------------------------------- */

/* Open MPI's own variables lack the host; its PMIx server knows it. */
static wring_status open_mpi_root(struct wri_launch *launch)
{
    struct wri_launch answer = *launch;
    if (wri_launch_variable("PMIX_NAMESPACE") && wri_pmix_find(&answer) == WRING_OK)
        memcpy(launch->host, answer.host, sizeof launch->host);
    return WRING_OK;
}

/* Slurm's own PMIx and PMI say less than Slurm's variables, so they leave it to those. */
static wring_status ask_pmix(const struct wri_launcher *launcher, struct wri_launch *launch)
{
    const char *name = wri_launch_variable("PMIX_NAMESPACE");
    if (!name || !wri_launch_variable(launcher->rank) || strncmp(name, "slurm.", 6) == 0)
        return WRING_OK;
    launch->nranks = WRI_NRANKS_UNKNOWN;
    return wri_launch_number(launcher->rank, 0, &launch->rank);
}

static wring_status ask_pmi(const struct wri_launcher *launcher, struct wri_launch *launch)
{
    if (same_text(wri_launch_variable(launcher->rank), wri_launch_variable("SLURM_PROCID")) &&
        same_text(wri_launch_variable(launcher->nranks), wri_launch_variable("SLURM_NTASKS")))
        return WRING_OK;
    return ask_variables(launcher, launch);
}

/* ---- Slurm ----------------------------------------------------------------------------------- */

/* A batch script and an interactive shell have the variables, too, but no step of srun's. */
static wring_status ask_slurm(const struct wri_launcher *launcher, struct wri_launch *launch)
{
    const char *step = wri_launch_variable("SLURM_STEP_ID");
    char *end;
    if (!step || strtoul(step, &end, 10) >= STEP_MAX || *end)
        return WRING_OK;
    WRI_TRY(ask_variables(launcher, launch));
    if (same_text(wri_launch_variable("SLURM_STEP_NUM_NODES"), "1"))
        launch->local_nranks = launch->nranks;
    return WRING_OK;
}

/* The first host of a list like "node[03-05,7],other" has rank 0: "node03". In brackets, only what
 * stands before the first ',', '-' counts. */
static wring_status slurm_root(struct wri_launch *launch)
{
    const char *list = wri_launch_variable("SLURM_STEP_NODELIST");
    char host[sizeof launch->host];
    size_t length = 0;
    bool inside = false, skipping = false;
    for (const char *at = list; at && *at && (inside || *at != ','); at++) {
        if (*at == '[' || *at == ']') {
            inside = *at == '[';
            skipping = false;
            continue;
        }
        skipping |= inside && (*at == ',' || *at == '-');
        if (!skipping && length < sizeof host)
            host[length++] = *at;
    }
    if (inside)
        WRI_FAIL(WRING_E_CONFIG, "SLURM_STEP_NODELIST=%s: a '[' without ']'", list);
    return list ? set_host(launch, "SLURM_STEP_NODELIST", host, length) : WRING_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct wri_launcher launchers[] = {
    {.name = "torchrun",
     .rank = "RANK",
     .nranks = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_nranks = "LOCAL_WORLD_SIZE",
     .identity = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
     .find_root = torchrun_root},
    {.name = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .nranks = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_nranks = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .identity = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     .find_root = open_mpi_root},
    {.name = "PMIx",
     .rank = "PMIX_RANK",
     .identity = {"PMIX_NAMESPACE"},
     .ask = ask_pmix,
     .find_root = wri_pmix_find},
    {.name = "PMI",
     .rank = "PMI_RANK",
     .nranks = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_nranks = "MPI_LOCALNRANKS",
     .identity = {"PMI_JOBID", "I_MPI_HYDRA_UUID"},
     .ask = ask_pmi},
    {.name = "MVAPICH2",
     .rank = "MV2_COMM_WORLD_RANK",
     .nranks = "MV2_COMM_WORLD_SIZE",
     .local_rank = "MV2_COMM_WORLD_LOCAL_RANK",
     .local_nranks = "MV2_COMM_WORLD_LOCAL_SIZE",
     .identity = {"MPIRUN_ID"}},
    {.name = "Slurm",
     .rank = "SLURM_PROCID",
     .nranks = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .identity = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     .ask = ask_slurm,
     .find_root = slurm_root,
     .outer = true},
};

const struct wri_launcher *wri_launcher_at(size_t index)
{
    return index < sizeof launchers / sizeof launchers[0] ? &launchers[index] : NULL;
}
