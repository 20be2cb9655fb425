/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a PMIx server knows about this rank. The library is opened at run time and the few functions
 * used are declared here: the PMIx standard fixes them, and building then needs nothing of PMIx's.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "transport/launcher.h"

#define LIBRARY "libpmix.so.2"
#define SUCCESS 0
#define RANK_WILDCARD (UINT32_MAX - 1)
enum { TYPE_STRING = 3, TYPE_UINT16 = 13, TYPE_UINT32 = 14 };

struct proc {
    char nspace[256];
    uint32_t rank;
};

struct value {
    uint16_t type;
    union {
        char *string;
        uint16_t uint16;
        uint32_t uint32;
    } data;
};

struct pmix {
    void *library;
    int (*init)(struct proc *self, void *info, size_t ninfo);
    int (*get)(const struct proc *proc, const char *key, const void *info, size_t ninfo,
               struct value **value);
    int (*finalize)(const void *info, size_t ninfo);
    struct proc self;
};

static wring_status pmix_open(struct pmix *pmix)
{
    pmix->library = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    if (!pmix->library)
        WRI_FAIL(WRING_E_CONFIG,
                 "PMIX_RANK is set, but PMIx's library cannot be opened (%s): set "
                 "WRING_RANK, WRING_SIZE and WRING_ROOT as " WRI_ROOT_FORM,
                 dlerror());
    *(void **)&pmix->init = dlsym(pmix->library, "PMIx_Init");
    *(void **)&pmix->get = dlsym(pmix->library, "PMIx_Get");
    *(void **)&pmix->finalize = dlsym(pmix->library, "PMIx_Finalize");
    if (!pmix->init || !pmix->get || !pmix->finalize)
        WRI_FAIL(WRING_E_CONFIG, LIBRARY " lacks a function of PMIx's");
    int error = pmix->init(&pmix->self, NULL, 0);
    if (error != SUCCESS)
        WRI_FAIL(WRING_E_CONFIG,
                 "PMIX_RANK is set, but no PMIx server answers (error %d): start "
                 "the rank with a launcher, or set WRING_RANK, WRING_SIZE and "
                 "WRING_ROOT as " WRI_ROOT_FORM,
                 error);
    return WRING_OK;
}

/* KEY of RANK as a string or a number of its own type; false if the server does not know it. The
 * value's memory is the C library's. */
static bool get(const struct pmix *pmix, uint32_t rank, const char *key, uint16_t type,
                struct value *value_out)
{
    struct proc proc = {.rank = rank};
    struct value *value = NULL;
    memcpy(proc.nspace, pmix->self.nspace, sizeof proc.nspace);
    if (pmix->get(&proc, key, NULL, 0, &value) != SUCCESS || !value)
        return false;
    bool fits = value->type == type;
    *value_out = *value;
    if (!fits && value->type == TYPE_STRING)
        free(value->data.string);
    free(value);
    return fits;
}

static wring_status read_all(const struct pmix *pmix, struct wri_launch *launch)
{
    struct value value;
    if (!get(pmix, RANK_WILDCARD, "pmix.job.size", TYPE_UINT32, &value) || value.data.uint32 < 1 ||
        value.data.uint32 > INT32_MAX)
        WRI_FAIL(WRING_E_CONFIG, "PMIx does not say how many ranks there are: set WRING_RANK, "
                                 "WRING_SIZE and WRING_ROOT as " WRI_ROOT_FORM);
    launch->nranks = (int)value.data.uint32;
    if (launch->local_rank < 0 && get(pmix, pmix->self.rank, "pmix.lrank", TYPE_UINT16, &value))
        launch->local_rank = value.data.uint16;
    if (launch->local_nranks == 0 &&
        get(pmix, RANK_WILDCARD, "pmix.local.size", TYPE_UINT32, &value))
        launch->local_nranks = (int)value.data.uint32;
    if (get(pmix, 0, "pmix.hname", TYPE_STRING, &value)) {
        snprintf(launch->host, sizeof launch->host, "%s", value.data.string);
        free(value.data.string);
    }
    return WRING_OK;
}

/* The library stays: a thread of its own may still be on the way out. */
wring_status wri_pmix_find(struct wri_launch *launch)
{
    struct pmix pmix = {0};
    WRI_TRY(pmix_open(&pmix));
    wring_status status = read_all(&pmix, launch);
    pmix.finalize(NULL, 0);
    return status;
}
