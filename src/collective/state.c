/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals of tensors, and the commit; see state.h. */
#include "collective/state.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"

#define COMMITS 64 /* of a launch */

/* A block holds the generations and, on a device, the word that tells which counts. */
wring_status wri_residual_open(const wring_tensor *tensor, int bits, size_t begin, size_t end,
                               struct wri_residual *residual)
{
    const struct wri_device *device = tensor->device;
    if (end - begin > SIZE_MAX / 16)
        WRI_FAIL(WRING_E_MEMORY, "tensor '%s': a residual of %zu elements is larger than memory",
                 tensor->name, end - begin);
    size_t each = wri_round_up(wri_residual_nbytes(bits, end - begin), sizeof(uint32_t));
    size_t nbytes = (tensor->single ? 1 : 2) * each + sizeof(uint32_t);
    void *stream = tensor->comm->lane.stream, *block;
    WRI_TRY(device->alloc(device, stream, nbytes, &block));
    wring_status status = WRING_OK;
    if (!device->host) /* its memory comes zeroed */
        status = device->zero(stream, block, nbytes);
    if (status != WRING_OK) {
        device->free(device, stream, block);
        return status;
    }
    char *first = block, *other = tensor->single ? first : first + each;
    *residual = (struct wri_residual){
        .generation = {first, other}, .bits = bits, .begin = begin, .end = end};
    if (!device->host)
        residual->on_device = (uint32_t *)(other + each);
    return WRING_OK;
}

void wri_residual_close(const wring_tensor *tensor, struct wri_residual *residual)
{
    char *one = residual->generation[0], *other = residual->generation[1];
    tensor->device->free(tensor->device, tensor->comm->lane.stream, one < other ? one : other);
    *residual = (struct wri_residual){0};
}

wring_status wri_residual_own(wring_tensor *tensor, size_t begin, size_t end, float weight,
                              struct wri_residual **owned_out)
{
    struct wri_residual *owned = tensor->owned;
    while (owned != NULL && (owned->begin != begin || owned->end != end))
        owned = owned->next;
    if (owned == NULL && begin < end) {
        WRI_TRY(wri_alloc(1, sizeof(*owned), (void **)&owned));
        wring_status status =
            wri_residual_open(tensor, tensor->codec->residual_bits, begin, end, owned);
        if (status != WRING_OK) {
            wri_free(owned);
            return status;
        }
        owned->next = tensor->owned;
        tensor->owned = owned;
    }
    if (owned != NULL)
        owned->weight = weight;
    *owned_out = owned;
    return WRING_OK;
}

/* ---- commit ---------------------------------------------------------------------------------- */

/* Another range than the one that the change owns, within the changed elements. */
static bool is_stale(const struct wri_change *change, const struct wri_residual *owned)
{
    return owned != change->owned && owned->begin < change->offset + change->count &&
           change->offset < owned->end;
}

static void exchange_on_host(const struct wri_change *change, size_t n, uint64_t by)
{
    for (size_t i = 0; i < n; i++) {
        if (change[i].tensor == NULL)
            continue;
        change[i].tensor->step += by;
        wri_residual_exchange(&change[i].tensor->local, change[i].offset,
                              change[i].offset + change[i].count);
        if (change[i].owned != NULL)
            wri_residual_exchange(change[i].owned, change[i].owned->begin, change[i].owned->end);
    }
}

static void fold_on_host(const struct wri_change *change)
{
    struct wri_residual *local = &change->tensor->local;
    for (struct wri_residual *owned = change->tensor->owned; owned; owned = owned->next)
        if (is_stale(change, owned))
            wri_residual_fold(local, owned);
}

/* The same for one residual, as what the device is to do. */
static struct wri_device_commit commit_of(const struct wri_residual *residual, size_t begin,
                                          size_t end)
{
    if (wri_residual_count(residual) == 0)
        return (struct wri_device_commit){0};
    return (struct wri_device_commit){
        .current = residual->on_device,
        .residual = {residual->generation[0], residual->generation[1]},
        .begin = begin - residual->begin,
        .end = end - residual->begin,
        .count = residual->end - residual->begin};
}

static wring_status fold_on_device(const struct wri_change *change,
                                   const struct wri_verdict *verdict, void *stream)
{
    const struct wri_residual *local = &change->tensor->local;
    for (struct wri_residual *owned = change->tensor->owned; owned; owned = owned->next)
        if (is_stale(change, owned)) {
            float *to[2] = {local->generation[0], local->generation[1]};
            float *from[2] = {owned->generation[0], owned->generation[1]};
            WRI_TRY(change->tensor->device->fold(to, local->on_device, owned->begin, from,
                                                 owned->on_device, owned->end - owned->begin,
                                                 owned->weight, verdict, stream));
        }
    return WRING_OK;
}

static wring_status exchange_on_device(const struct wri_lane *lane, const struct wri_change *change,
                                       size_t n, uint64_t by, const struct wri_verdict *verdict)
{
    struct wri_device_commit commits[COMMITS];
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const struct wri_residual *owned = change[i].owned;
        if (change[i].tensor == NULL)
            continue;
        commits[used] = commit_of(&change[i].tensor->local, change[i].offset,
                                  change[i].offset + change[i].count);
        commits[used++].step = change[i].tensor->step_on_device;
        commits[used++] = commit_of(owned, owned ? owned->begin : 0, owned ? owned->end : 0);
        if (used == COMMITS) {
            WRI_TRY(lane->device->commit(commits, used, by, verdict, lane->stream));
            used = 0;
        }
    }
    return used > 0 ? lane->device->commit(commits, used, by, verdict, lane->stream) : WRING_OK;
}

wring_status wri_state_commit(wring_comm *comm, const struct wri_change *change, size_t n,
                              const struct wri_verdict *verdict)
{
    if (verdict == NULL)
        exchange_on_host(change, n, 1);
    else
        WRI_TRY(exchange_on_device(&comm->lane, change, n, 1, verdict));
    for (size_t i = 0; i < n; i++)
        if (change[i].tensor != NULL && verdict == NULL)
            fold_on_host(&change[i]);
        else if (change[i].tensor != NULL)
            WRI_TRY(fold_on_device(&change[i], verdict, comm->lane.stream));
    return WRING_OK;
}

wring_status wri_state_undo(wring_comm *comm, const struct wri_change *change, size_t n,
                            const struct wri_verdict *verdict)
{
    if (verdict != NULL)
        return exchange_on_device(&comm->lane, change, n, UINT64_MAX, verdict);
    exchange_on_host(change, n, UINT64_MAX);
    return WRING_OK;
}

bool wri_state_moves(const struct wri_change *change, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (change[i].tensor && change[i].tensor->single)
            return true;
        for (const struct wri_residual *owned = change[i].tensor ? change[i].tensor->owned : NULL;
             owned; owned = owned->next)
            if (is_stale(&change[i], owned))
                return true;
    }
    return false;
}

void wri_state_abandon(const struct wri_change *change, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        wring_tensor *tensor = change[i].tensor;
        if (tensor == NULL || !tensor->single)
            continue;
        tensor->resets++;
        wri_log(WRING_LOG_WARN, "tensor '%s' keeps one generation of its residual: it was reset",
                tensor->name);
        wri_residual_reset(&tensor->local, change[i].offset, change[i].offset + change[i].count);
        if (change[i].owned != NULL)
            wri_residual_reset(change[i].owned, change[i].owned->begin, change[i].owned->end);
    }
}

void wri_residual_drop(wring_tensor *tensor, struct wri_residual **link)
{
    struct wri_residual *owned = *link;
    *link = owned->next;
    wri_residual_close(tensor, owned);
    wri_free(owned);
}

void wri_state_sweep(const struct wri_change *change, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        wring_tensor *tensor = change[i].tensor;
        struct wri_residual **link = tensor ? &tensor->owned : NULL;
        while (link != NULL && *link != NULL)
            if (is_stale(&change[i], *link) && (*link)->calls == 0)
                wri_residual_drop(tensor, link);
            else
                link = &(*link)->next;
    }
}

void wri_state_close(wring_tensor *tensor)
{
    wri_residual_close(tensor, &tensor->local);
    while (tensor->owned != NULL)
        wri_residual_drop(tensor, &tensor->owned);
    if (tensor->step_on_device != NULL)
        tensor->device->free(tensor->device, tensor->comm->lane.stream, tensor->step_on_device);
    tensor->step_on_device = NULL;
}
