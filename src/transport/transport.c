/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport registry. It decides where a transport comes from: the library itself (CORE rows),
 * a module that was linked into this static library, or libwring_<name>.so from the folder of
 * modules.
 *
 * This file alone is compiled once per library and not in the shared object code, because only here
 * the static and the shared library differ: the build writes a linked.def for each, with the
 * transports that it holds.
 */
#include "transport/transport.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/module.h"
#include "base/status.h"
#include "transport/rdma.h"
#include "transport/rendezvous.h"

#define REASON_NBYTES 1024

/* ---- the table ------------------------------------------------------------------------------- */

struct row {
    const char *name, *package;
};

static const struct row rows[] = {
#define WRING_TRANSPORT(name, place, package) {#name, #package},
#include "transport/transports.def"
#undef WRING_TRANSPORT
};
#define NROWS (sizeof rows / sizeof rows[0])

#define WRING_LINKED(name) extern const struct wring_transport_ops wri_transport_##name;
#include "transport/linked.def"
#undef WRING_LINKED

static const struct wring_transport_ops *const linked[] = {
#define WRING_LINKED(name) &wri_transport_##name,
#include "transport/linked.def"
#undef WRING_LINKED
};

static const struct wring_transport_ops *linked_find(const char *name)
{
    for (size_t i = 0; i < sizeof linked / sizeof linked[0]; i++)
        if (strcmp(linked[i]->name, name) == 0)
            return linked[i];
    return NULL;
}

/* Modules that are open, for the life of the process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct wring_transport_ops *loaded[NROWS];

/* ---- environment of a module's dependency ---------------------------------------------------- */

/* Variables that a dependency reads once, when it is loaded. Set for the time of loading, unless
 * the user set them. UCX would otherwise replace the handlers of SIGSEGV and its like, which breaks
 * every host that has its own; write warnings into what the program prints; and patch mmap and its
 * like in memory, which breaks thread sanitizer and others that do the same, and serves only
 * RDMA. */
static const struct {
    const char *module, *variable, *value;
    bool with_rdma; /* also on machines that have RDMA devices */
} load_environment[] = {
    {"ucx", "UCX_HANDLE_ERRORS", "none", true},
    {"ucx", "UCX_LOG_FILE", "stderr", true},
    {"ucx", "UCX_MEM_EVENTS", "n", false},
};
#define NVARIABLES (sizeof load_environment / sizeof load_environment[0])

static void environment_enter(const char *module, bool set[NVARIABLES])
{
    for (size_t i = 0; i < NVARIABLES; i++) {
        set[i] = strcmp(load_environment[i].module, module) == 0 &&
                 !getenv(load_environment[i].variable) &&
                 (load_environment[i].with_rdma || !wri_rdma_present());
        if (set[i])
            setenv(load_environment[i].variable, load_environment[i].value, 0);
    }
}

static void environment_leave(const bool set[NVARIABLES])
{
    for (size_t i = 0; i < NVARIABLES; i++)
        if (set[i])
            unsetenv(load_environment[i].variable);
}

/* ---- modules --------------------------------------------------------------------------------- */

static wring_status module_open(const struct row *row, const char *folder,
                                const struct wring_transport_ops **ops_out)
{
    char what[64], remedy[256];
    bool set[NVARIABLES];
    const struct wring_module *module = NULL;
    snprintf(what, sizeof what, "transport %s", row->name);
    snprintf(remedy, sizeof remedy,
             "It is built where pkg-config knows '%s': install that package and build wring again",
             row->package);
    environment_enter(row->name, set);
    wring_status status = wri_module_open(row->name, folder, what, remedy, &module);
    environment_leave(set);
    WRI_TRY(status);
    const struct wring_transport_ops *ops = module->transport;
    if (!ops || ops->size < sizeof *ops || strcmp(ops->name, row->name) != 0)
        WRI_FAIL(WRING_E_MODULE, "%s: its module holds another transport, '%s'", what,
                 ops ? ops->name : "none");
    *ops_out = ops;
    return WRING_OK;
}

static wring_status row_open(size_t index, const char *folder,
                             const struct wring_transport_ops **ops_out)
{
    const struct row *row = &rows[index];
    wring_status status = WRING_OK;
    const struct wring_transport_ops *inside = linked_find(row->name);
    if (inside != NULL) {
        *ops_out = inside;
        return WRING_OK;
    }
    pthread_mutex_lock(&lock);
    if (!loaded[index])
        status = module_open(row, folder, &loaded[index]);
    if (status == WRING_OK)
        *ops_out = loaded[index];
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The names of all rows, for messages. */
static void list_names(char *text, size_t nbytes)
{
    size_t used = 0;
    for (size_t i = 0; i < NROWS && used < nbytes; i++)
        used += (size_t)snprintf(text + used, nbytes - used, "%s%s", i ? ", " : "", rows[i].name);
}

wring_status wri_transport_find(const char *name, const char *folder,
                                const struct wring_transport_ops **ops_out)
{
    char names[REASON_NBYTES];
    for (size_t i = 0; i < NROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return row_open(i, folder, ops_out);
    list_names(names, sizeof names);
    WRI_FAIL(WRING_E_MODULE, "no transport '%s'; there are: %s", name, names);
}

wring_status wri_transport_open(const struct wri_config *config, const char *name,
                                const struct wring_transport_ops **ops_out, void **self_out)
{
    const struct wring_transport_open options = {.size = sizeof options,
                                                 .host = &wri_host_services,
                                                 .seed = (uint64_t)config->seed,
                                                 .library = config->nccl,
                                                 .local = wri_launch_is_local(config)};
    WRI_TRY(wri_transport_find(name ? name : config->transport, config->modules, ops_out));
    return (*ops_out)->open(&options, self_out);
}

bool wri_transport_info(size_t index, const char *folder, wring_info *info_out)
{
    static _Thread_local char reason[REASON_NBYTES];
    const struct wring_transport_ops *ops = NULL;
    if (index >= NROWS)
        return false;
    wring_status status = row_open(index, folder, &ops);
    snprintf(reason, sizeof reason, "%s", status == WRING_OK ? "" : wring_error_message());
    *info_out = (wring_info){.name = rows[index].name,
                             .summary = ops ? ops->summary : "",
                             .value = "",
                             .detail = reason};
    return true;
}
