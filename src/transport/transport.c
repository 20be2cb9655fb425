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

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "transport/rdma.h"

#define PATH_NBYTES 4096
#define REASON_NBYTES 1024

const char wri_build_hash[] = WRI_BUILD_HASH;

const struct wring_host_services wri_host_services = {
    .size = sizeof(struct wring_host_services),
    .fail = wri_fail,
    .log = wri_log,
};

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
 * every host that has its own; and patch mmap and its like in memory, which breaks thread sanitizer
 * and others that do the same, and serves only RDMA. */
static const struct {
    const char *module, *variable, *value;
    bool with_rdma; /* also on machines that have RDMA devices */
} load_environment[] = {
    {"ucx", "UCX_HANDLE_ERRORS", "none", true},
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

/* PATH of the module: in FOLDER, or beside the object that holds this code. */
static wring_status module_path(const struct row *row, const char *folder, char path[PATH_NBYTES])
{
    Dl_info here;
    int length = (int)strlen(folder);
    if (length == 0 && dladdr(wri_build_hash, &here) && here.dli_fname) {
        const char *slash = strrchr(here.dli_fname, '/');
        folder = slash ? here.dli_fname : ".";
        length = slash ? (int)(slash - here.dli_fname) : 1;
    }
    int written = snprintf(path, PATH_NBYTES, "%.*s/libwring_%s.so", length, folder, row->name);
    if (written < 0 || written >= PATH_NBYTES)
        WRI_FAIL(WRING_E_MODULE, "transport %s: the path of the folder of modules is too long",
                 row->name);
    return WRING_OK;
}

static wring_status module_check(const struct row *row, const char *path,
                                 const struct wring_module *module)
{
    if (!module)
        WRI_FAIL(WRING_E_MODULE, "transport %s: %s is not a module of wring", row->name, path);
    if (module->size < sizeof *module || module->abi != WRING_PLUGIN_ABI)
        WRI_FAIL(WRING_E_MODULE, "transport %s: %s has plugin interface %u, this library %u",
                 row->name, path, module->abi, WRING_PLUGIN_ABI);
    if (strcmp(module->build, wri_build_hash) != 0)
        WRI_FAIL(WRING_E_MODULE,
                 "transport %s: %s is of another build (%.12s, this library is %.12s): "
                 "install both from one build, or set WRING_MODULES",
                 row->name, path, module->build, wri_build_hash);
    if (module->transport->size < sizeof *module->transport ||
        strcmp(module->transport->name, row->name) != 0)
        WRI_FAIL(WRING_E_MODULE, "transport %s: %s holds another transport, '%s'", row->name, path,
                 module->transport->name);
    return WRING_OK;
}

static wring_status module_open(const struct row *row, const char *folder,
                                const struct wring_transport_ops **ops_out)
{
    char path[PATH_NBYTES];
    bool set[NVARIABLES];
    WRI_TRY(module_path(row, folder, path));
    if (access(path, R_OK) != 0)
        WRI_FAIL(WRING_E_MODULE,
                 "transport %s: no module at %s. It is built where pkg-config knows "
                 "'%s': install that package and build wring again, or point WRING_MODULES at the "
                 "folder that holds the module",
                 row->name, path, row->package);
    environment_enter(row->name, set);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    environment_leave(set);
    if (!object)
        WRI_FAIL(WRING_E_MODULE,
                 "transport %s: %s cannot be loaded: %s. It needs the run-time library "
                 "of '%s'",
                 row->name, path, dlerror(), row->package);
    const struct wring_module *module = dlsym(object, "wring_module");
    WRI_TRY(module_check(row, path, module));
    *ops_out = module->transport;
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
