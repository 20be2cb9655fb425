/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step. A bucket starts in the last micro-step, once all its parameters are settled (ready, or
 * said to be absent) and the bucket before it has started, so every rank issues the same
 * collectives in the same order, whatever order its gradients come in and whatever it lacks.
 * Nothing is allocated here.
 */
#include <stdio.h>

#include "base/status.h"
#include "collective/comm.h"
#include "collective/request.h"
#include "planner/planner.h"
#include "scheduler/scheduler.h"

/* ---- failures -------------------------------------------------------------------------------- */

/* Keep the first failure with its message, which later calls on this thread would overwrite. */
static void remember(wring_scheduler *scheduler, wring_status status)
{
    if (status == WRING_OK || scheduler->failure != WRING_OK)
        return;
    scheduler->failure = status;
    snprintf(scheduler->message, sizeof scheduler->message, "%s", wring_error_message());
}

/* The same of what this rank may have met by itself: the others must not wait for it. */
static void give_up(wring_scheduler *scheduler, wring_status status)
{
    remember(scheduler, status);
    if (status != WRING_OK)
        wri_comm_poison(scheduler->comm, status);
}

static wring_status failure(const wring_scheduler *scheduler)
{
    if (scheduler->failure != WRING_OK)
        WRI_FAIL(scheduler->failure, "%s", scheduler->message);
    return WRING_OK;
}

/* ---- buckets leave --------------------------------------------------------------------------- */

static bool is_last(const wring_scheduler *scheduler)
{
    return scheduler->flushed || scheduler->micro + 1 == scheduler->options.accumulate;
}

static bool is_mean(const wring_scheduler *scheduler)
{
    return scheduler->options.op == WRING_AVG;
}

/* Only a mean needs to know the others' weights. */
static bool needs_total(const wring_scheduler *scheduler)
{
    return scheduler->options.weighted && is_mean(scheduler);
}

static bool weighs_nothing(const wring_scheduler *scheduler)
{
    return needs_total(scheduler) && scheduler->weights.total == 0;
}

/* What this rank's sum is divided by, so that the mean over ranks is the mean over all. */
static double divisor_of(const wring_scheduler *scheduler)
{
    if (!is_mean(scheduler))
        return 0;
    if (scheduler->options.weighted)
        return scheduler->weights.total / scheduler->comm->nranks;
    return scheduler->ncounted > 0 ? scheduler->ncounted : 1;
}

static wring_status start_bucket(wring_scheduler *scheduler, struct wri_bucket *bucket)
{
    for (size_t i = 0; i < bucket->nsegments; i++)
        WRI_TRY(wri_accumulate_end(&scheduler->site, &scheduler->params[bucket->first - i],
                                   divisor_of(scheduler)));
    if (weighs_nothing(scheduler))
        return WRING_OK; /* on every rank: zeros are the result, and no state changes */
    wring_call call = WRING_CALL_INIT;
    call.kind = WRING_ALLREDUCE;
    call.op = scheduler->options.op;
    call.dtype = bucket->dtype;
    call.segments = bucket->segments;
    call.nsegments = bucket->nsegments;
    call.stream = scheduler->options.stream;
    call.overlap = true; /* with the rest of backward; `finish` waits */
    return wri_planner_start(scheduler->comm, &call, &scheduler->transaction, &bucket->request);
}

/* The weight of the micro-step cannot change any more. In the last one, WRING_AGAIN until all know
 * what they weigh together. */
static wring_status settle_weight(wring_scheduler *scheduler, bool wait)
{
    if (!needs_total(scheduler))
        return WRING_OK;
    WRI_TRY(wri_weights_start(&scheduler->weights, scheduler->comm));
    return wri_weights_test(&scheduler->weights, scheduler->comm, wait);
}

/* All buckets whose turn it is. WAIT: until the weights are known. */
static wring_status start_buckets(wring_scheduler *scheduler, bool wait)
{
    if (!is_last(scheduler) || scheduler->failure != WRING_OK)
        return failure(scheduler);
    wring_status status = settle_weight(scheduler, wait);
    if (status == WRING_AGAIN)
        return WRING_OK;
    give_up(scheduler, status);
    while (scheduler->failure == WRING_OK && scheduler->nstarted < scheduler->nbuckets) {
        struct wri_bucket *bucket = &scheduler->buckets[scheduler->nstarted];
        if (bucket->nsettled < bucket->nsegments)
            break;
        give_up(scheduler, start_bucket(scheduler, bucket));
        scheduler->nstarted++;
    }
    return failure(scheduler);
}

/* ---- parameters settle ----------------------------------------------------------------------- */

static wring_status check_param(const wring_scheduler *scheduler, int param)
{
    if (param < 0 || (size_t)param >= scheduler->nparams)
        WRI_FAIL(WRING_E_ARGUMENT, "parameter %d is not among the %zu registered", param,
                 scheduler->nparams);
    if (scheduler->params[param].settled)
        WRI_FAIL(WRING_E_STATE, "parameter '%s' is ready or absent already in micro-step %d",
                 scheduler->params[param].name, scheduler->micro);
    return WRING_OK;
}

static wring_status seal(wring_scheduler *scheduler)
{
    return scheduler->arena.base ? WRING_OK : wri_scheduler_seal(scheduler);
}

/* Something comes in the micro-step: it counts, and its weight is fixed. */
static void open_micro(wring_scheduler *scheduler)
{
    scheduler->reduced = false;
    if (scheduler->opened)
        return;
    scheduler->opened = true;
    scheduler->ncounted++;
    if (!scheduler->weights.fixed)
        wri_weights_fix(&scheduler->weights, 1);
}

static void settle(wring_scheduler *scheduler, struct wri_parameter *param)
{
    open_micro(scheduler);
    param->settled = true;
    scheduler->nsettled++;
    scheduler->buckets[param->bucket].nsettled++;
}

/* The gradient joins the step's sum; or is the sum, if nothing is ever added to it. */
static wring_status take_gradient(wring_scheduler *scheduler, struct wri_parameter *param)
{
    if (param->strided && scheduler->weights.current != 0)
        wri_strided_pack(param->strided, param->grad);
    if (param->accumulator)
        return wri_accumulate_add(&scheduler->site, param, scheduler->weights.current);
    param->unit = 1;
    return WRING_OK;
}

/* A gradient was made on another stream than the scheduler's. */
static wring_status wait_for_stream(wring_scheduler *scheduler, void *stream)
{
    pthread_mutex_t *lock = &scheduler->comm->context->lock;
    pthread_mutex_lock(lock);
    wring_status status = wri_context_check_stream(scheduler->comm->context, stream);
    if (status == WRING_OK)
        status = wri_lane_order(scheduler->comm, stream, scheduler->options.stream);
    pthread_mutex_unlock(lock);
    return status;
}

wring_status wri_scheduler_ready(wring_scheduler *scheduler, int param, void *stream)
{
    void *own = scheduler->options.stream;
    WRI_TRY(failure(scheduler));
    WRI_TRY(check_param(scheduler, param));
    if (stream && !own)
        WRI_FAIL(WRING_E_ARGUMENT, "gradients of this scheduler are in host memory, not on a "
                                   "stream: set wring_scheduler_options.stream");
    WRI_TRY(seal(scheduler));
    if (stream && stream != own)
        WRI_TRY(wait_for_stream(scheduler, stream));
    settle(scheduler, &scheduler->params[param]);
    give_up(scheduler, take_gradient(scheduler, &scheduler->params[param]));
    return start_buckets(scheduler, false);
}

static wring_status check_table(const wring_scheduler *scheduler, int table)
{
    if (table < 0 || (size_t)table >= scheduler->ntables)
        WRI_FAIL(WRING_E_ARGUMENT, "table %d is not among the %zu registered", table,
                 scheduler->ntables);
    return WRING_OK;
}

/* A table is in host memory, also that of a scheduler with a stream. */
static wring_status check_rows(wring_context *context, const int64_t *ids, const void *rows)
{
    pthread_mutex_lock(&context->lock);
    wring_status status = wri_context_check_host(context, "IDS", ids);
    if (status == WRING_OK)
        status = wri_context_check_host(context, "ROWS", rows);
    pthread_mutex_unlock(&context->lock);
    return status;
}

wring_status wri_scheduler_ready_rows(wring_scheduler *scheduler, int table, const int64_t *ids,
                                      const void *rows, size_t nrows)
{
    WRI_TRY(failure(scheduler));
    WRI_TRY(check_table(scheduler, table));
    if (nrows > 0)
        WRI_TRY(check_rows(scheduler->comm->context, ids, rows));
    WRI_TRY(seal(scheduler));
    double weight = scheduler->weights.fixed ? scheduler->weights.current : 1;
    WRI_TRY(wri_table_add(&scheduler->tables[table], ids, rows, nrows, weight));
    open_micro(scheduler);
    return start_buckets(scheduler, false);
}

wring_status wri_scheduler_rows(wring_scheduler *scheduler, int table, const int64_t **ids_out,
                                void **rows_out, size_t *nrows_out)
{
    WRI_TRY(failure(scheduler));
    WRI_TRY(check_table(scheduler, table));
    const struct wri_rows *reduced = &scheduler->tables[table].reduced;
    *ids_out = reduced->id;
    *rows_out = reduced->row;
    *nrows_out = reduced->count;
    return WRING_OK;
}

static void settle_rest(wring_scheduler *scheduler)
{
    for (size_t i = 0; i < scheduler->nparams; i++)
        if (!scheduler->params[i].settled)
            settle(scheduler, &scheduler->params[i]);
}

wring_status wri_scheduler_absent(wring_scheduler *scheduler, int param)
{
    WRI_TRY(failure(scheduler));
    if (param != WRING_ALL_PARAMS)
        WRI_TRY(check_param(scheduler, param));
    WRI_TRY(seal(scheduler));
    if (param == WRING_ALL_PARAMS)
        settle_rest(scheduler);
    else
        settle(scheduler, &scheduler->params[param]);
    return start_buckets(scheduler, false);
}

wring_status wri_scheduler_weigh(wring_scheduler *scheduler, double weight)
{
    WRI_TRY(failure(scheduler));
    if (!scheduler->options.weighted)
        WRI_FAIL(WRING_E_STATE,
                 "the scheduler takes no weights: set wring_scheduler_options.weighted");
    if (scheduler->weights.fixed)
        WRI_FAIL(WRING_E_STATE,
                 "micro-step %d has its weight: it comes once, and before its first gradient",
                 scheduler->micro);
    WRI_TRY(seal(scheduler));
    wri_weights_fix(&scheduler->weights, weight);
    return start_buckets(scheduler, false);
}

wring_status wri_scheduler_flush(wring_scheduler *scheduler)
{
    WRI_TRY(failure(scheduler));
    WRI_TRY(seal(scheduler));
    scheduler->flushed = true;
    return scheduler->weights.fixed ? start_buckets(scheduler, false) : WRING_OK;
}

/* ---- end of a micro-step --------------------------------------------------------------------- */

static wring_status check_all_settled(const wring_scheduler *scheduler)
{
    if (scheduler->nsettled == scheduler->nparams)
        return WRING_OK;
    char names[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < scheduler->nparams && length < sizeof names; i++)
        if (!scheduler->params[i].settled)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s'%s'",
                                       length ? ", " : "", scheduler->params[i].name);
    WRI_FAIL(WRING_E_STATE,
             "%zu of %zu parameters are neither ready nor absent in micro-step %d: %s%s",
             scheduler->nparams - scheduler->nsettled, scheduler->nparams, scheduler->micro, names,
             length < sizeof names ? "" : " ...");
}

/* After a flush, a micro-step in which nothing came is none. */
static void drop_empty_micro(wring_scheduler *scheduler)
{
    if (!scheduler->flushed || scheduler->opened)
        return;
    if (!scheduler->weights.fixed)
        wri_weights_fix(&scheduler->weights, 0);
    int ncounted = scheduler->ncounted;
    settle_rest(scheduler);
    scheduler->ncounted = ncounted;
}

/* Tables leave last. */
static wring_result reduce_tables(wring_scheduler *scheduler)
{
    wring_result total = {0};
    if (scheduler->ntables == 0 || !is_last(scheduler) || scheduler->failure != WRING_OK)
        return total;
    if (weighs_nothing(scheduler)) {
        wri_tables_drop(scheduler->tables, scheduler->ntables);
        return total;
    }
    give_up(scheduler, wri_tables_reduce(scheduler->tables, scheduler->ntables, scheduler->comm,
                                         scheduler->options.op, divisor_of(scheduler), &total));
    return total;
}

wring_result wri_scheduler_drain(wring_scheduler *scheduler)
{
    wring_result total = {0};
    if (scheduler->weights.request)
        remember(scheduler, wri_weights_test(&scheduler->weights, scheduler->comm, true));
    for (size_t i = 0; i < scheduler->nstarted; i++) {
        struct wri_bucket *bucket = &scheduler->buckets[i];
        wring_result result = {0};
        if (bucket->request)
            remember(scheduler, wri_request_wait(bucket->request, &result));
        bucket->request = NULL;
        total.wire_nbytes += result.wire_nbytes;
        total.dense_nbytes += result.dense_nbytes;
        total.nonfinite |= result.nonfinite;
    }
    scheduler->nstarted = 0;
    return total;
}

void wri_scheduler_unpack(wring_scheduler *scheduler)
{
    for (size_t i = 0; i < scheduler->nparams; i++)
        if (scheduler->params[i].strided)
            wri_strided_unpack(scheduler->params[i].strided, scheduler->params[i].grad);
}

static void next_micro(wring_scheduler *scheduler)
{
    for (size_t i = 0; i < scheduler->nparams; i++)
        scheduler->params[i].settled = false;
    for (size_t i = 0; i < scheduler->nbuckets; i++)
        scheduler->buckets[i].nsettled = 0;
    scheduler->nsettled = 0;
    scheduler->opened = false;
    wri_weights_next_micro(&scheduler->weights);
    bool last = is_last(scheduler);
    scheduler->micro++;
    if (!last)
        return;
    scheduler->reduced = true;
    wri_weights_next_step(&scheduler->weights);
    scheduler->micro = scheduler->ncounted = 0;
    scheduler->flushed = false;
}

/* State of all buckets changes, or of none. */
static void end_transaction(wring_scheduler *scheduler, bool nonfinite)
{
    pthread_mutex_t *lock = &scheduler->comm->context->lock;
    pthread_mutex_lock(lock);
    if (scheduler->transaction.open && nonfinite)
        remember(scheduler, wri_step_rollback(&scheduler->transaction));
    else if (scheduler->transaction.open)
        remember(scheduler, wri_step_commit(&scheduler->transaction, NULL));
    pthread_mutex_unlock(lock);
}

wring_status wri_scheduler_undo(wring_scheduler *scheduler)
{
    pthread_mutex_t *lock = &scheduler->comm->context->lock;
    pthread_mutex_lock(lock);
    wring_status status = wri_step_undo(&scheduler->transaction);
    pthread_mutex_unlock(lock);
    return status;
}

wring_status wri_scheduler_finish(wring_scheduler *scheduler, wring_result *result_out)
{
    if (scheduler->failure == WRING_OK) {
        drop_empty_micro(scheduler);
        WRI_TRY(check_all_settled(scheduler));
        start_buckets(scheduler, true); /* whose failure is remembered */
    }
    wring_result of_tables = reduce_tables(scheduler);
    wring_result result = wri_scheduler_drain(scheduler);
    result.wire_nbytes += of_tables.wire_nbytes;
    result.dense_nbytes += of_tables.dense_nbytes;
    result.nonfinite |= of_tables.nonfinite;
    end_transaction(scheduler, result.nonfinite);
    WRI_TRY(failure(scheduler));
    if (is_last(scheduler))
        wri_scheduler_unpack(scheduler);
    next_micro(scheduler);
    if (result_out)
        *result_out = result;
    return WRING_OK;
}
