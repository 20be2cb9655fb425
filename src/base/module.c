/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which file a module is, and whether it belongs to this library. */
#include "base/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"

#define PATH_NBYTES 4096

const char wri_build_hash[] = WRI_BUILD_HASH;

const struct wring_host_services wri_host_services = {
    .size = sizeof(struct wring_host_services),
    .fail = wri_fail,
    .log = wri_log,
};

static wring_status module_path(const char *name, const char *folder, const char *what,
                                char path[PATH_NBYTES])
{
    Dl_info here;
    int length = (int)strlen(folder);
    if (length == 0 && dladdr(wri_build_hash, &here) && here.dli_fname) {
        const char *slash = strrchr(here.dli_fname, '/');
        folder = slash ? here.dli_fname : ".";
        length = slash ? (int)(slash - here.dli_fname) : 1;
    }
    int written = snprintf(path, PATH_NBYTES, "%.*s/libwring_%s.so", length, folder, name);
    if (written < 0 || written >= PATH_NBYTES)
        WRI_FAIL(WRING_E_MODULE, "%s: the path of the folder of modules is too long", what);
    return WRING_OK;
}

static wring_status module_check(const char *what, const char *path,
                                 const struct wring_module *module)
{
    if (!module)
        WRI_FAIL(WRING_E_MODULE, "%s: %s is not a module of wring", what, path);
    if (module->size < sizeof *module || module->abi != WRING_PLUGIN_ABI)
        WRI_FAIL(WRING_E_MODULE, "%s: %s has plugin interface %u, this library %u", what, path,
                 module->abi, WRING_PLUGIN_ABI);
    if (strcmp(module->build, wri_build_hash) != 0)
        WRI_FAIL(WRING_E_MODULE,
                 "%s: %s is of another build (%.12s, this library is %.12s): "
                 "install both from one build, or set WRING_MODULES",
                 what, path, module->build, wri_build_hash);
    return WRING_OK;
}

wring_status wri_module_open(const char *name, const char *folder, const char *what,
                             const char *remedy, const struct wring_module **module_out)
{
    char path[PATH_NBYTES];
    WRI_TRY(module_path(name, folder, what, path));
    if (access(path, R_OK) != 0)
        WRI_FAIL(WRING_E_MODULE,
                 "%s: no module at %s. %s, or point WRING_MODULES at the folder that holds the "
                 "module",
                 what, path, remedy);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!object)
        WRI_FAIL(WRING_E_MODULE, "%s: %s cannot be loaded: %s. Is what it needs installed?", what,
                 path, dlerror());
    const struct wring_module *module = dlsym(object, "wring_module");
    WRI_TRY(module_check(what, path, module));
    *module_out = module;
    return WRING_OK;
}
