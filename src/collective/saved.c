/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a communicator's tensors as bytes:
 *
 *      header   8 magic, 4 version, 4 rank, 4 ranks, 4 tensors, 8 bytes in all, 8 hash
 *      tensor   8 count, 8 step, 4 type, 4 flags, 4 owned ranges, 4 + 4 lengths, name, spec,
 *               count float32 if flags say so, the owned ranges
 *      owned    8 begin, 8 end, 4 weight, 4 zero, end - begin float32
 *
 * All little-endian, nothing aligned. The hash is that of all other bytes.
 */
#include "collective/saved.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/transaction.h"

#define MAGIC "WRINGST1"
#define VERSION 1u
#define TENSOR_NBYTES 36
#define STEP (8 * WRI_RESIDUAL_BLOCK) /* elements on the stack at a time */
#define FLAGS (WRI_SAVED_LOCAL | WRI_SAVED_MEAN)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they lie");
_Static_assert(offsetof(struct wri_saved_head, spec_nbytes) + 4 == TENSOR_NBYTES, "no holes");

struct header {
    char magic[8];
    uint32_t version, rank, nranks, ntensors;
    uint64_t nbytes, hash;
};
_Static_assert(sizeof(struct header) == 40, "no holes");

static uint64_t hash_of(const void *bytes, size_t nbytes)
{
    uint64_t hash = wri_hash(bytes, offsetof(struct header, hash), 0);
    return wri_hash((const char *)bytes + sizeof(struct header), nbytes - sizeof(struct header),
                    hash);
}

/* ---- residuals to and from host memory ------------------------------------------------------- */

/* The bytes of a state are not aligned. */
static void widen_unaligned(const struct wri_residual *residual, size_t count, void *dst)
{
    float values[STEP];
    for (size_t i = 0; i < count; i += STEP) {
        size_t n = wri_min(STEP, count - i);
        wri_residual_widen(residual, residual->current, residual->begin + i, n, values);
        memcpy((char *)dst + i * sizeof(float), values, n * sizeof(float));
    }
}

static void narrow_unaligned(struct wri_residual *residual, size_t count, const void *src)
{
    float values[STEP];
    for (size_t i = 0; i < count; i += STEP) {
        size_t n = wri_min(STEP, count - i);
        memcpy(values, (const char *)src + i * sizeof(float), n * sizeof(float));
        wri_residual_narrow(residual, residual->current, residual->begin + i, n, values);
    }
}

wring_status wri_residual_get(const wring_tensor *tensor, const struct wri_residual *residual,
                              void *dst)
{
    uint32_t current;
    size_t count = wri_residual_count(residual);
    if (residual->on_device == NULL) {
        widen_unaligned(residual, count, dst);
        return WRING_OK;
    }
    WRI_TRY(wri_lane_copy(tensor->comm, &current, residual->on_device, sizeof(current)));
    return wri_lane_copy(tensor->comm, dst, residual->generation[current & 1],
                         count * sizeof(float));
}

wring_status wri_residual_put(const wring_tensor *tensor, struct wri_residual *residual,
                              const void *src)
{
    static const uint32_t first;
    size_t count = wri_residual_count(residual);
    residual->current = 0;
    if (residual->on_device == NULL) {
        narrow_unaligned(residual, count, src);
        return WRING_OK;
    }
    WRI_TRY(wri_lane_copy(tensor->comm, residual->on_device, &first, sizeof(first)));
    return wri_lane_copy(tensor->comm, residual->generation[0], src, count * sizeof(float));
}

static wring_status step_get(const wring_tensor *tensor, uint64_t *step_out)
{
    *step_out = tensor->step;
    if (tensor->step_on_device == NULL)
        return WRING_OK;
    return wri_lane_copy(tensor->comm, step_out, tensor->step_on_device, sizeof(*step_out));
}

wring_status wri_state_check_idle(const wring_tensor *tensor)
{
    if (tensor->calls > 0)
        WRI_FAIL(WRING_E_STATE, "tensor '%s' is in a call that is not finished", tensor->name);
    if (tensor->listed != NULL && tensor->listed->open)
        WRI_FAIL(WRING_E_STATE, "tensor '%s' is in a step that is not committed", tensor->name);
    return WRING_OK;
}

/* ---- save ------------------------------------------------------------------------------------ */

static size_t saved_nbytes(const wring_tensor *tensor)
{
    size_t nbytes = TENSOR_NBYTES + strlen(tensor->name) + strlen(tensor->codec->spec);
    nbytes += wri_residual_count(&tensor->local) * sizeof(float);
    for (const struct wri_residual *owned = tensor->owned; owned; owned = owned->next)
        nbytes += sizeof(struct wri_owned_head) + wri_residual_count(owned) * sizeof(float);
    return nbytes;
}

static unsigned char *put(unsigned char *at, const void *src, size_t nbytes)
{
    memcpy(at, src, nbytes);
    return at + nbytes;
}

static wring_status save_residual(const wring_tensor *tensor, const struct wri_residual *residual,
                                  unsigned char **at)
{
    WRI_TRY(wri_residual_get(tensor, residual, *at));
    *at += wri_residual_count(residual) * sizeof(float);
    return WRING_OK;
}

static wring_status save_tensor(const wring_tensor *tensor, unsigned char **at)
{
    struct wri_saved_head head = {.count = tensor->count,
                                  .dtype = tensor->dtype,
                                  .flags =
                                      (wri_residual_count(&tensor->local) ? WRI_SAVED_LOCAL : 0) |
                                      (tensor->mean ? WRI_SAVED_MEAN : 0),
                                  .name_nbytes = (uint32_t)strlen(tensor->name),
                                  .spec_nbytes = (uint32_t)strlen(tensor->codec->spec)};
    for (const struct wri_residual *owned = tensor->owned; owned; owned = owned->next)
        head.nowned++;
    WRI_TRY(step_get(tensor, &head.step));
    *at = put(*at, &head, TENSOR_NBYTES);
    *at = put(*at, tensor->name, head.name_nbytes);
    *at = put(*at, tensor->codec->spec, head.spec_nbytes);
    WRI_TRY(save_residual(tensor, &tensor->local, at));
    for (const struct wri_residual *owned = tensor->owned; owned; owned = owned->next) {
        struct wri_owned_head part = {owned->begin, owned->end, owned->weight, 0};
        *at = put(*at, &part, sizeof(part));
        WRI_TRY(save_residual(tensor, owned, at));
    }
    return WRING_OK;
}

wring_status wri_saved_tensor(const wring_tensor *tensor, void **bytes_out,
                              struct wri_record *record_out)
{
    size_t nbytes = saved_nbytes(tensor);
    void *bytes;
    WRI_TRY(wri_alloc(nbytes, 1, &bytes));
    unsigned char *at = bytes;
    wring_status status = save_tensor(tensor, &at);
    if (status != WRING_OK) {
        wri_free(bytes);
        return status;
    }
    struct wri_reader reader = {bytes, nbytes};
    wri_saved_next(&reader, record_out);
    *bytes_out = bytes;
    return WRING_OK;
}

static wring_status save(wring_comm *comm, void **bytes_out, size_t *nbytes_out)
{
    struct header header = {.version = VERSION,
                            .rank = (uint32_t)comm->rank,
                            .nranks = (uint32_t)comm->nranks,
                            .nbytes = sizeof(header)};
    memcpy(header.magic, MAGIC, sizeof(header.magic));
    for (const wring_tensor *tensor = comm->tensors; tensor; tensor = tensor->next) {
        WRI_TRY(wri_state_check_idle(tensor));
        header.ntensors++;
        header.nbytes += saved_nbytes(tensor);
    }
    unsigned char *bytes = malloc(header.nbytes);
    if (bytes == NULL)
        WRI_FAIL(WRING_E_MEMORY, "no memory for %llu bytes of state",
                 (unsigned long long)header.nbytes);
    unsigned char *at = put(bytes, &header, sizeof(header));
    wring_status status = WRING_OK;
    for (wring_tensor *tensor = comm->tensors; tensor && status == WRING_OK; tensor = tensor->next)
        status = save_tensor(tensor, &at);
    if (status != WRING_OK) {
        free(bytes);
        return status;
    }
    header.hash = hash_of(bytes, header.nbytes);
    put(bytes, &header, sizeof(header));
    *bytes_out = bytes;
    *nbytes_out = header.nbytes;
    return WRING_OK;
}

wring_status wri_state_save(wring_comm *comm, void **bytes_out, size_t *nbytes_out)
{
    pthread_mutex_lock(&comm->context->lock);
    wring_status status = wri_lane_settle(comm);
    int was = wri_context_enter(comm->context);
    if (status == WRING_OK)
        status = save(comm, bytes_out, nbytes_out);
    wri_context_leave(comm->context, was);
    pthread_mutex_unlock(&comm->context->lock);
    return status;
}

/* ---- read ------------------------------------------------------------------------------------ */

static const void *take(struct wri_reader *reader, uint64_t nbytes)
{
    const unsigned char *at = reader->at;
    if (nbytes > reader->left)
        return NULL;
    reader->at += nbytes;
    reader->left -= (size_t)nbytes;
    return at;
}

static const void *take_floats(struct wri_reader *reader, uint64_t count)
{
    return count > SIZE_MAX / sizeof(float) ? NULL : take(reader, count * sizeof(float));
}

bool wri_saved_next_owned(struct wri_reader *reader, struct wri_owned_head *head,
                          const unsigned char **values_out)
{
    const void *bytes = take(reader, sizeof(*head));
    if (bytes == NULL)
        return false;
    memcpy(head, bytes, sizeof(*head));
    if (head->begin >= head->end || head->zero != 0 || !isfinite(head->weight))
        return false;
    *values_out = take_floats(reader, head->end - head->begin);
    return *values_out != NULL;
}

bool wri_saved_next(struct wri_reader *reader, struct wri_record *record)
{
    struct wri_owned_head owned;
    const unsigned char *values, *bytes = take(reader, TENSOR_NBYTES);
    if (bytes == NULL)
        return false;
    *record = (struct wri_record){0};
    memcpy(&record->head, bytes, TENSOR_NBYTES);
    struct wri_saved_head *head = &record->head;
    record->name = take(reader, head->name_nbytes);
    record->spec = take(reader, head->spec_nbytes);
    if (record->name == NULL || record->spec == NULL || head->flags & ~(uint32_t)FLAGS ||
        memchr(record->name, '\0', head->name_nbytes) != NULL)
        return false;
    if (head->flags & WRI_SAVED_LOCAL) {
        record->local = take_floats(reader, head->count);
        if (record->local == NULL)
            return false;
    }
    record->owned = *reader;
    for (uint32_t i = 0; i < head->nowned; i++)
        if (!wri_saved_next_owned(reader, &owned, &values) || owned.end > head->count)
            return false;
    return true;
}

wring_status wri_saved_check(const void *bytes, size_t nbytes, struct wri_saved *saved_out,
                             struct wri_reader *reader_out)
{
    struct wri_record record;
    struct header found, *header = &found;
    if (nbytes < sizeof(*header))
        WRI_FAIL(WRING_E_CORRUPT, "saved state: %zu bytes are less than its header", nbytes);
    memcpy(header, bytes, sizeof(*header));
    if (memcmp(header->magic, MAGIC, sizeof(header->magic)) != 0)
        WRI_FAIL(WRING_E_CORRUPT, "saved state: these bytes are something else");
    if (header->version != VERSION)
        WRI_FAIL(WRING_E_CORRUPT, "saved state: version %u, this library reads %u", header->version,
                 VERSION);
    if (header->nbytes != nbytes)
        WRI_FAIL(WRING_E_CORRUPT, "saved state: %zu bytes of %llu", nbytes,
                 (unsigned long long)header->nbytes);
    if (header->hash != hash_of(bytes, nbytes))
        WRI_FAIL(WRING_E_CORRUPT, "saved state: bytes were changed, its hash does not fit");
    struct wri_reader reader = {(const unsigned char *)bytes + sizeof(*header),
                                nbytes - sizeof(*header)};
    *reader_out = reader;
    for (uint32_t i = 0; i < header->ntensors; i++)
        if (!wri_saved_next(&reader, &record))
            WRI_FAIL(WRING_E_CORRUPT, "saved state: tensor %u of %u is malformed", i,
                     header->ntensors);
    if (reader.left > 0 || header->nranks == 0 || header->rank >= header->nranks)
        WRI_FAIL(WRING_E_CORRUPT, "saved state: malformed header");
    *saved_out = (struct wri_saved){header->rank, header->nranks, header->ntensors};
    return WRING_OK;
}
