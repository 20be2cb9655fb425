/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where saved state goes. Bytes of the same rank of an equally large group give back every bit.
 * Others are handed over: what a rank owned goes into its own residual, residuals of several ranks
 * are added up, and where the reduction is a mean over another number of ranks, they are scaled so
 * that what they still add to it stays the same.
 */
#include "collective/saved.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/transaction.h"

/* States of ranks, checked. */
struct states {
    const wring_comm *comm;
    const struct wri_saved *saved; /* n */
    const struct wri_reader *tensors;
    size_t n;
};

static wring_status step_put(wring_tensor *tensor, uint64_t step)
{
    tensor->step = step;
    if (tensor->step_on_device == NULL)
        return WRING_OK;
    return wri_lane_copy(tensor->comm, tensor->step_on_device, &step, sizeof(step));
}

static bool is_named(const struct wri_record *record, const char *name)
{
    return strlen(name) == record->head.name_nbytes &&
           memcmp(record->name, name, record->head.name_nbytes) == 0;
}

static wring_tensor *tensor_of(const wring_comm *comm, const struct wri_record *record)
{
    wring_tensor *tensor = comm->tensors;
    while (tensor != NULL && !is_named(record, tensor->name))
        tensor = tensor->next;
    return tensor;
}

static float float_at(const unsigned char *values, size_t i)
{
    float value;
    memcpy(&value, values + i * sizeof(value), sizeof(value));
    return value;
}

/* No residual ever holds anything else: what is not finite is never committed. */
static bool is_finite(const struct wri_record *record)
{
    struct wri_reader reader = record->owned;
    bool finite = true;
    for (size_t i = 0; record->local != NULL && i < record->head.count; i++)
        finite = finite && isfinite(float_at(record->local, i));
    for (uint32_t k = 0; k < record->head.nowned; k++) {
        struct wri_owned_head head;
        const unsigned char *values;
        wri_saved_next_owned(&reader, &head, &values);
        for (size_t i = 0; i < head.end - head.begin; i++)
            finite = finite && isfinite(float_at(values, i));
    }
    return finite;
}

static wring_status check_record(const wring_comm *comm, const struct wri_record *record)
{
    const wring_tensor *tensor = tensor_of(comm, record);
    if (tensor == NULL)
        return WRING_OK;
    if (tensor->count != record->head.count || tensor->dtype != (wring_dtype)record->head.dtype)
        WRI_FAIL(WRING_E_MISMATCH,
                 "tensor '%s' has %zu elements of %s, in the saved state %llu of "
                 "%s",
                 tensor->name, tensor->count, wring_dtype_name(tensor->dtype),
                 (unsigned long long)record->head.count,
                 wring_dtype_name((wring_dtype)record->head.dtype));
    if (!is_finite(record))
        WRI_FAIL(WRING_E_CORRUPT, "saved state: the residual of tensor '%s' holds NaN or Inf",
                 tensor->name);
    return WRING_OK;
}

static void drop_owned(wring_tensor *tensor)
{
    while (tensor->owned != NULL)
        wri_residual_drop(tensor, &tensor->owned);
}

/* Every bit as it was. */
static wring_status restore(wring_tensor *tensor, const struct wri_record *record)
{
    struct wri_reader reader = record->owned;
    drop_owned(tensor);
    if (record->local != NULL)
        WRI_TRY(wri_residual_put(tensor, &tensor->local, record->local));
    for (uint32_t i = 0; i < record->head.nowned; i++) {
        struct wri_owned_head head;
        const unsigned char *values;
        struct wri_residual *owned;
        wri_saved_next_owned(&reader, &head, &values);
        WRI_TRY(wri_residual_own(tensor, head.begin, head.end, head.weight, &owned));
        WRI_TRY(wri_residual_put(tensor, owned, values));
    }
    tensor->mean = record->head.flags & WRI_SAVED_MEAN;
    return step_put(tensor, record->head.step);
}

/* SUM += scale * all that the record holds; of a tensor's count. */
static void add_up(const struct wri_record *record, double scale, double *sum)
{
    struct wri_reader reader = record->owned;
    for (size_t i = 0; record->local != NULL && i < record->head.count; i++)
        sum[i] += scale * float_at(record->local, i);
    for (uint32_t k = 0; k < record->head.nowned; k++) {
        struct wri_owned_head head;
        const unsigned char *values;
        wri_saved_next_owned(&reader, &head, &values);
        for (size_t i = head.begin; i < head.end; i++)
            sum[i] += scale * head.weight * float_at(values, i - head.begin);
    }
}

static double mass_of(const double *sum, size_t count)
{
    double mass = 0;
    for (size_t i = 0; i < count; i++)
        mass += fabs(sum[i]);
    return mass;
}

/* SUM, which is used up, becomes the tensor's own residual, and all that it keeps; or is lost. */
static wring_status hand_over(wring_tensor *tensor, double *sum, wring_state_report *report)
{
    char *values = (char *)sum;
    double mass = mass_of(sum, tensor->count);
    drop_owned(tensor);
    if (wri_residual_count(&tensor->local) == 0) {
        report->ndropped += mass > 0;
        report->dropped += mass;
        return WRING_OK;
    }
    report->nhanded++;
    for (size_t i = 0; i < tensor->count; i++) {
        float value = (float)sum[i];
        memcpy(values + i * sizeof(value), &value, sizeof(value));
    }
    return wri_residual_put(tensor, &tensor->local, values);
}

/* Bytes of this rank, in a group as large as this one. */
static bool is_own(const struct states *states)
{
    return states->n == 1 && states->saved[0].rank == (uint32_t)states->comm->rank &&
           states->saved[0].nranks == (uint32_t)states->comm->nranks;
}

/* The tensor's record in state number I. */
static bool find(const struct states *states, size_t i, const char *name, struct wri_record *record)
{
    struct wri_reader reader = states->tensors[i];
    for (uint32_t k = 0; k < states->saved[i].ntensors; k++)
        if (wri_saved_next(&reader, record) && is_named(record, name))
            return true;
    return false;
}

/* Whether the tensor can take the record as it lies. */
static bool fits(const wring_tensor *tensor, const struct wri_record *record)
{
    return strlen(tensor->codec->spec) == record->head.spec_nbytes &&
           memcmp(tensor->codec->spec, record->spec, record->head.spec_nbytes) == 0 &&
           (record->local != NULL) == (wri_residual_count(&tensor->local) > 0);
}

static wring_status load_sum(wring_tensor *tensor, const struct states *states,
                             wring_state_report *report)
{
    double *sum, nranks = states->comm->nranks;
    struct wri_record record;
    uint64_t step = 0;
    WRI_TRY(wri_alloc(tensor->count, sizeof(*sum), (void **)&sum));
    for (size_t i = 0; i < states->n; i++) {
        if (!find(states, i, tensor->name, &record))
            continue;
        tensor->mean = record.head.flags & WRI_SAVED_MEAN;
        add_up(&record, tensor->mean ? nranks / states->saved[i].nranks : 1, sum);
        step = record.head.step > step ? record.head.step : step;
    }
    wring_status status = hand_over(tensor, sum, report);
    wri_free(sum);
    return status == WRING_OK ? step_put(tensor, step) : status;
}

static wring_status load_tensor(wring_tensor *tensor, const struct states *states,
                                wring_state_report *report)
{
    struct wri_record record;
    WRI_TRY(wri_step_pass(tensor));
    if (!is_own(states) || !find(states, 0, tensor->name, &record) || !fits(tensor, &record))
        return load_sum(tensor, states, report);
    report->nrestored++;
    return restore(tensor, &record);
}

/* A tensor that is not here: its residual is lost. */
static wring_status lose(const struct wri_record *record, wring_state_report *report)
{
    double *sum;
    WRI_TRY(wri_alloc((size_t)record->head.count, sizeof(*sum), (void **)&sum));
    add_up(record, 1, sum);
    report->ndropped++;
    report->dropped += mass_of(sum, (size_t)record->head.count);
    wri_free(sum);
    return WRING_OK;
}

/* Whether what is saved fits the tensors here, before any of them is changed. */
static wring_status check_fit(const struct states *states, wring_state_report *report)
{
    for (size_t i = 0; i < states->n; i++) {
        struct wri_reader reader = states->tensors[i];
        struct wri_record record;
        for (uint32_t k = 0; k < states->saved[i].ntensors; k++) {
            wri_saved_next(&reader, &record);
            WRI_TRY(check_record(states->comm, &record));
            if (tensor_of(states->comm, &record) == NULL)
                WRI_TRY(lose(&record, report));
        }
    }
    return WRING_OK;
}

static wring_status load(const struct states *states, wring_state_report *report)
{
    for (const wring_tensor *tensor = states->comm->tensors; tensor; tensor = tensor->next)
        WRI_TRY(wri_state_check_idle(tensor));
    WRI_TRY(check_fit(states, report));
    int was = wri_context_enter(states->comm->context);
    wring_status status = WRING_OK;
    for (wring_tensor *tensor = states->comm->tensors; tensor && status == WRING_OK;
         tensor = tensor->next)
        status = load_tensor(tensor, states, report);
    wri_context_leave(states->comm->context, was);
    return status;
}

wring_status wri_state_load(wring_comm *comm, const void *const *states, const size_t *nbytes,
                            size_t nstates, wring_state_report *report_out)
{
    wring_state_report report = {0};
    struct wri_saved *saved;
    struct wri_reader *tensors = NULL;
    WRI_TRY(wri_alloc(nstates, sizeof(*saved), (void **)&saved));
    wring_status status = wri_alloc(nstates, sizeof(*tensors), (void **)&tensors);
    for (size_t i = 0; i < nstates && status == WRING_OK; i++)
        status = wri_saved_check(states[i], nbytes[i], &saved[i], &tensors[i]);
    if (status == WRING_OK) {
        pthread_mutex_lock(&comm->context->lock);
        status = wri_lane_settle(comm);
        if (status == WRING_OK)
            status = load(&(struct states){comm, saved, tensors, nstates}, &report);
        pthread_mutex_unlock(&comm->context->lock);
    }
    wri_free(saved);
    wri_free(tensors);
    if (status == WRING_OK && report_out != NULL)
        *report_out = report;
    return status;
}

/* ---- another codec --------------------------------------------------------------------------- */

/* The tensor gets CODEC, and with feedback an empty residual as wide as it says. */
static wring_status renew(wring_tensor *tensor, const wring_codec *codec)
{
    struct wri_residual fresh = {0};
    if (codec->feedback && tensor->count > 0)
        WRI_TRY(wri_residual_open(tensor, codec->residual_bits, 0, tensor->count, &fresh));
    wri_residual_close(tensor, &tensor->local);
    tensor->local = fresh;
    tensor->codec = codec;
    return WRING_OK;
}

static wring_status set_codec(wring_tensor *tensor, const wring_codec *codec,
                              wring_state_report *report)
{
    void *bytes;
    double *sum;
    struct wri_record record;
    WRI_TRY(wri_state_check_idle(tensor));
    WRI_TRY(wri_codec_accepts(codec, tensor->dtype, WRING_SUM));
    if (!tensor->device->host)
        WRI_TRY(wri_codec_on_device(codec, tensor->device));
    WRI_TRY(wri_step_pass(tensor));
    WRI_TRY(wri_saved_tensor(tensor, &bytes, &record));
    wring_status status = wri_alloc(tensor->count, sizeof(*sum), (void **)&sum);
    if (status == WRING_OK) {
        add_up(&record, 1, sum);
        status = renew(tensor, codec);
        if (status == WRING_OK)
            status = hand_over(tensor, sum, report);
        wri_free(sum);
    }
    wri_free(bytes);
    return status;
}

wring_status wri_tensor_set_codec(wring_tensor *tensor, const wring_codec *codec,
                                  wring_state_report *report_out)
{
    wring_state_report report = {0};
    wring_context *context = tensor->comm->context;
    pthread_mutex_lock(&context->lock);
    wring_status status = wri_lane_settle(tensor->comm);
    int was = wri_context_enter(context);
    if (status == WRING_OK)
        status = set_codec(tensor, codec, &report);
    wri_context_leave(context, was);
    pthread_mutex_unlock(&context->lock);
    if (status == WRING_OK && report_out != NULL)
        *report_out = report;
    return status;
}
