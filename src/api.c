/* SPDX-License-Identifier: Apache-2.0 */
/* Is this call valid? Every public call about contexts, communicators, tensors and schedulers
 * checks its arguments here and goes on to the layer that does the work. */
#include "base/status.h"
#include "collective/collective.h"
#include "collective/comm.h"
#include "collective/join.h"
#include "collective/request.h"
#include "collective/saved.h"
#include "collective/tensor.h"
#include "collective/transaction.h"
#include "planner/planner.h"
#include "scheduler/scheduler.h"

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            WRI_FAIL(WRING_E_ARGUMENT, __VA_ARGS__);                                               \
    } while (0)

/* An options struct begins with its size; an older caller's may be shorter than ours. Nothing was
 * ever appended so far, so there is one length. */
#define REQUIRE_SIZE(options, type)                                                                \
    REQUIRE((options) == NULL || (options)->size == sizeof(type),                                  \
            "the size field of " #type " is %zu, not %zu: start from its _INIT",                   \
            (options) ? (options)->size : 0, sizeof(type))

/* Do CALL with the scheduler's device as the thread's current one: it enqueues there. */
#define ON_ITS_DEVICE(scheduler, call)                                                             \
    do {                                                                                           \
        wring_context *context_ = (scheduler)->comm->context;                                      \
        int was_ = wri_context_enter(context_);                                                    \
        wring_status status_ = (call);                                                             \
        wri_context_leave(context_, was_);                                                         \
        return status_;                                                                            \
    } while (0)

/* ---- context, communicator ------------------------------------------------------------------- */

wring_status wring_context_create(const wring_context_options *options, wring_context **context_out)
{
    REQUIRE(context_out != NULL, "context_out is NULL");
    REQUIRE_SIZE(options, wring_context_options);
    return wri_context_create(options, context_out);
}

void wring_context_destroy(wring_context *context)
{
    wri_context_destroy(context);
}

void wring_context_progress(wring_context *context)
{
    pthread_mutex_lock(&context->lock);
    wri_context_poll(context);
    pthread_mutex_unlock(&context->lock);
}

wring_status wring_unique_id_create(wring_context *context, wring_unique_id *id_out)
{
    REQUIRE(context != NULL && id_out != NULL, "context or id_out is NULL");
    return wri_unique_id_create(context, id_out);
}

wring_status wring_comm_create(wring_context *context, const wring_comm_options *options,
                               wring_comm **comm_out)
{
    static const wring_comm_options defaults = WRING_COMM_OPTIONS_INIT;
    REQUIRE(context != NULL && comm_out != NULL, "context or comm_out is NULL");
    REQUIRE_SIZE(options, wring_comm_options);
    return wri_comm_create(context, options ? options : &defaults, comm_out);
}

wring_status wring_comm_create_local(wring_context *context, int nranks,
                                     const wring_comm_options *options, wring_comm **comms_out)
{
    REQUIRE(context != NULL && comms_out != NULL, "context or comms_out is NULL");
    REQUIRE(nranks >= 1, "%d ranks", nranks);
    REQUIRE_SIZE(options, wring_comm_options);
    return wri_comm_create_local(context, nranks, options, comms_out);
}

void wring_comm_destroy(wring_comm *comm)
{
    wri_comm_destroy(comm);
}

wring_status wring_comm_abort(wring_comm *comm)
{
    REQUIRE(comm != NULL, "comm is NULL");
    wri_comm_abort(comm);
    return WRING_OK;
}

wring_status wring_comm_agree(wring_comm *comm, uint64_t value, uint64_t *least_out)
{
    REQUIRE(comm != NULL && least_out != NULL, "comm or least_out is NULL");
    return wri_comm_agree(comm, value, least_out);
}

wring_status wring_comm_shrink(wring_comm *comm, wring_comm **comm_out)
{
    REQUIRE(comm != NULL && comm_out != NULL, "comm or comm_out is NULL");
    return wri_comm_shrink(comm, comm_out);
}

wring_status wring_comm_split(wring_comm *comm, int color, int key, wring_comm **comm_out)
{
    REQUIRE(comm != NULL && comm_out != NULL, "comm or comm_out is NULL");
    return wri_comm_split(comm, color, key, comm_out);
}

int wring_comm_rank(const wring_comm *comm)
{
    return comm->rank;
}

int wring_comm_size(const wring_comm *comm)
{
    return comm->nranks;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static wring_status check_call(const wring_call *call)
{
    REQUIRE_SIZE(call, wring_call);
    REQUIRE((unsigned)call->kind < WRING_KIND_COUNT, "unknown kind of collective %d", call->kind);
    REQUIRE((unsigned)call->op < WRING_OP_COUNT, "unknown reduction %d", call->op);
    REQUIRE((unsigned)call->dtype < WRING_DTYPE_COUNT, "unknown element type %d", call->dtype);
    REQUIRE(call->nsegments == 0 || call->segments != NULL, "segments is NULL");
    return WRING_OK;
}

wring_status wring_comm_start(wring_comm *comm, const wring_call *call, wring_request **request_out)
{
    REQUIRE(comm != NULL && call != NULL && request_out != NULL,
            "comm, call or request_out is NULL");
    WRI_TRY(check_call(call));
    return wri_planner_start(comm, call, NULL, request_out);
}

wring_status wring_comm_start_group(wring_comm *comm, const wring_call *calls, size_t ncalls,
                                    wring_request **requests_out)
{
    REQUIRE(comm != NULL && (ncalls == 0 || (calls != NULL && requests_out != NULL)),
            "comm, calls or requests_out is NULL");
    for (size_t i = 0; i < ncalls; i++)
        WRI_TRY(check_call(&calls[i]));
    return wri_planner_start_group(comm, calls, ncalls, requests_out);
}

wring_status wring_request_test(wring_request *request)
{
    REQUIRE(request != NULL, "request is NULL");
    return wri_request_test(request);
}

wring_status wring_request_wait(wring_request *request, wring_result *result_out)
{
    REQUIRE(request != NULL, "request is NULL");
    return wri_request_wait(request, result_out);
}

/* Start and wait: one plain buffer. */
static wring_status run(wring_comm *comm, wring_kind kind, wring_op op, wring_dtype dtype, int root,
                        const void *send, void *recv, size_t count)
{
    wring_segment segment = {.send = send, .recv = recv, .count = count};
    wring_call call = {.size = sizeof(call),
                       .kind = kind,
                       .op = op,
                       .dtype = dtype,
                       .root = root,
                       .segments = &segment,
                       .nsegments = kind == WRING_BARRIER ? 0 : 1};
    wring_request *request;
    WRI_TRY(wring_comm_start(comm, &call, &request));
    return wri_request_wait(request, NULL);
}

wring_status wring_allreduce(wring_comm *comm, const void *send, void *recv, size_t count,
                             wring_dtype dtype, wring_op op)
{
    return run(comm, WRING_ALLREDUCE, op, dtype, 0, send, recv, count);
}

wring_status wring_reduce_scatter(wring_comm *comm, const void *send, void *recv, size_t count,
                                  wring_dtype dtype, wring_op op)
{
    return run(comm, WRING_REDUCE_SCATTER, op, dtype, 0, send, recv, count);
}

wring_status wring_allgather(wring_comm *comm, const void *send, void *recv, size_t count,
                             wring_dtype dtype)
{
    return run(comm, WRING_ALLGATHER, WRING_SUM, dtype, 0, send, recv, count);
}

wring_status wring_broadcast(wring_comm *comm, const void *send, void *recv, size_t count,
                             wring_dtype dtype, int root)
{
    return run(comm, WRING_BROADCAST, WRING_SUM, dtype, root, send, recv, count);
}

wring_status wring_barrier(wring_comm *comm)
{
    return run(comm, WRING_BARRIER, WRING_SUM, WRING_FLOAT32, 0, NULL, NULL, 0);
}

/* ---- tensor ---------------------------------------------------------------------------------- */

/* What tensors and scheduler parameters have in common. */
static wring_status check_shape(const char *name, wring_dtype dtype, int ndim, const size_t *shape)
{
    REQUIRE(name != NULL && name[0] != '\0', "a tensor needs a name");
    REQUIRE((unsigned)dtype < WRING_DTYPE_COUNT, "tensor '%s': unknown element type %d", name,
            dtype);
    REQUIRE(ndim >= 0 && (ndim == 0 || shape != NULL), "tensor '%s': %d dimensions without shape",
            name, ndim);
    return WRING_OK;
}

wring_status wring_tensor_create(wring_comm *comm, const char *name, wring_dtype dtype, int ndim,
                                 const size_t *shape, const wring_tensor_options *options,
                                 wring_tensor **tensor_out)
{
    REQUIRE(comm != NULL && tensor_out != NULL, "comm or tensor_out is NULL");
    REQUIRE_SIZE(options, wring_tensor_options);
    WRI_TRY(check_shape(name, dtype, ndim, shape));
    return wri_tensor_create(comm, name, dtype, ndim, shape, options, tensor_out);
}

void wring_tensor_destroy(wring_tensor *tensor)
{
    wri_tensor_destroy(tensor);
}

size_t wring_tensor_count(const wring_tensor *tensor)
{
    return wri_tensor_count(tensor);
}

size_t wring_tensor_state_nbytes(const wring_tensor *tensor)
{
    return wri_tensor_state_nbytes(tensor);
}

wring_status wring_tensor_residual(const wring_tensor *tensor, float *dst, size_t count)
{
    REQUIRE(tensor != NULL && (dst != NULL || count == 0), "tensor or dst is NULL");
    return wri_tensor_residual(tensor, dst, count);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static wring_status on_step(wring_context *context, wring_status (*function)(struct wri_step *))
{
    REQUIRE(context != NULL, "context is NULL");
    pthread_mutex_lock(&context->lock);
    wring_status status = function(context->step);
    pthread_mutex_unlock(&context->lock);
    return status;
}

wring_status wring_step_begin(wring_context *context)
{
    return on_step(context, wri_step_begin);
}

wring_status wring_step_commit(wring_context *context, bool *committed_out)
{
    REQUIRE(context != NULL, "context is NULL");
    pthread_mutex_lock(&context->lock);
    wring_status status = wri_step_commit(context->step, committed_out);
    pthread_mutex_unlock(&context->lock);
    return status;
}

wring_status wring_step_rollback(wring_context *context)
{
    return on_step(context, wri_step_rollback);
}

wring_status wring_step_undo(wring_context *context)
{
    return on_step(context, wri_step_undo);
}

wring_status wring_state_save(wring_comm *comm, void **bytes_out, size_t *nbytes_out)
{
    REQUIRE(comm != NULL && bytes_out != NULL && nbytes_out != NULL,
            "comm, bytes_out or nbytes_out is NULL");
    return wri_state_save(comm, bytes_out, nbytes_out);
}

wring_status wring_state_load(wring_comm *comm, const void *const *states, const size_t *nbytes,
                              size_t n, wring_state_report *report_out)
{
    REQUIRE(comm != NULL && (n == 0 || (states != NULL && nbytes != NULL)),
            "comm, states or nbytes is NULL");
    for (size_t i = 0; i < n; i++)
        REQUIRE(states[i] != NULL, "states[%zu] is NULL", i);
    return wri_state_load(comm, states, nbytes, n, report_out);
}

wring_status wring_tensor_set_codec(wring_tensor *tensor, const wring_codec *codec,
                                    wring_state_report *report_out)
{
    REQUIRE(tensor != NULL && codec != NULL, "tensor or codec is NULL");
    return wri_tensor_set_codec(tensor, codec, report_out);
}

wring_status wring_comm_explain(wring_comm *comm, char **text_out)
{
    REQUIRE(comm != NULL && text_out != NULL, "comm or text_out is NULL");
    return wri_tensor_explain(comm, text_out);
}

/* ---- scheduler ------------------------------------------------------------------------------- */

wring_status wring_scheduler_create(wring_comm *comm, const wring_scheduler_options *options,
                                    wring_scheduler **scheduler_out)
{
    wring_scheduler_options filled = WRING_SCHEDULER_OPTIONS_INIT;
    REQUIRE(comm != NULL && scheduler_out != NULL, "comm or scheduler_out is NULL");
    REQUIRE_SIZE(options, wring_scheduler_options);
    const struct wri_config *config = &comm->context->config;
    if (options != NULL)
        filled = *options;
    REQUIRE(filled.accumulate >= 0, "%d micro-steps", filled.accumulate);
    REQUIRE(filled.op == WRING_SUM || filled.op == WRING_AVG, "op must be WRING_SUM or WRING_AVG");
    if (filled.bucket_nbytes == 0)
        filled.bucket_nbytes = config->bucket_nbytes;
    if (filled.first_bucket_nbytes == 0)
        filled.first_bucket_nbytes = config->first_bucket_nbytes;
    REQUIRE(!filled.alloc == !filled.free, "options.alloc and options.free go together");
    if (filled.memory_limit == 0)
        filled.memory_limit = config->memory_limit;
    if (filled.rules == NULL)
        filled.rules = config->rules;
    if (filled.min_nbytes == 0)
        filled.min_nbytes = config->min_nbytes;
    if (filled.accumulate == 0)
        filled.accumulate = 1;
    return wri_scheduler_create(comm, &filled, scheduler_out);
}

void wring_scheduler_destroy(wring_scheduler *scheduler)
{
    wri_scheduler_destroy(scheduler);
}

wring_status wring_scheduler_add(wring_scheduler *scheduler, const char *name, wring_dtype dtype,
                                 int ndim, const size_t *shape, void *grad, int *param_out)
{
    REQUIRE(scheduler != NULL && param_out != NULL, "scheduler or param_out is NULL");
    WRI_TRY(check_shape(name, dtype, ndim, shape));
    return wri_scheduler_add(scheduler, name, dtype, ndim, shape, NULL, grad, param_out);
}

wring_status wring_scheduler_add_strided(wring_scheduler *scheduler, const char *name,
                                         wring_dtype dtype, int ndim, const size_t *shape,
                                         const ptrdiff_t *strides, void *grad, int *param_out)
{
    REQUIRE(scheduler != NULL && param_out != NULL, "scheduler or param_out is NULL");
    REQUIRE(ndim == 0 || strides != NULL, "strides is NULL");
    WRI_TRY(check_shape(name, dtype, ndim, shape));
    return wri_scheduler_add(scheduler, name, dtype, ndim, shape, strides, grad, param_out);
}

wring_status wring_scheduler_ready(wring_scheduler *scheduler, int param)
{
    REQUIRE(scheduler != NULL, "scheduler is NULL");
    ON_ITS_DEVICE(scheduler, wri_scheduler_ready(scheduler, param, NULL));
}

wring_status wring_scheduler_ready_on(wring_scheduler *scheduler, int param, void *stream)
{
    REQUIRE(scheduler != NULL && stream != NULL, "scheduler or stream is NULL");
    ON_ITS_DEVICE(scheduler, wri_scheduler_ready(scheduler, param, stream));
}

wring_status wring_scheduler_weigh(wring_scheduler *scheduler, double weight)
{
    REQUIRE(scheduler != NULL, "scheduler is NULL");
    REQUIRE(weight == 0 || (weight >= 1e-9 && weight <= 1e15),
            "weight %g: it must be 0, or from 1e-9 to 1e15", weight);
    ON_ITS_DEVICE(scheduler, wri_scheduler_weigh(scheduler, weight));
}

wring_status wring_scheduler_add_table(wring_scheduler *scheduler, const char *name,
                                       wring_dtype dtype, size_t height, size_t width,
                                       int *table_out)
{
    const size_t shape[2] = {height, width};
    REQUIRE(scheduler != NULL && table_out != NULL, "scheduler or table_out is NULL");
    WRI_TRY(check_shape(name, dtype, 2, shape));
    REQUIRE(height <= INT64_MAX && width >= 1 && width <= SIZE_MAX / 64,
            "table '%s': %zu rows of %zu elements", name, height, width);
    return wri_scheduler_add_table(scheduler, name, dtype, height, width, table_out);
}

wring_status wring_scheduler_ready_rows(wring_scheduler *scheduler, int table, const int64_t *ids,
                                        const void *rows, size_t nrows)
{
    REQUIRE(scheduler != NULL, "scheduler is NULL");
    REQUIRE(nrows == 0 || (ids != NULL && rows != NULL), "%zu rows, but ids or rows is NULL",
            nrows);
    ON_ITS_DEVICE(scheduler, wri_scheduler_ready_rows(scheduler, table, ids, rows, nrows));
}

wring_status wring_scheduler_rows(wring_scheduler *scheduler, int table, const int64_t **ids_out,
                                  void **rows_out, size_t *nrows_out)
{
    REQUIRE(scheduler != NULL && ids_out != NULL && rows_out != NULL && nrows_out != NULL,
            "scheduler or an output is NULL");
    return wri_scheduler_rows(scheduler, table, ids_out, rows_out, nrows_out);
}

wring_status wring_scheduler_absent(wring_scheduler *scheduler, int param)
{
    REQUIRE(scheduler != NULL, "scheduler is NULL");
    ON_ITS_DEVICE(scheduler, wri_scheduler_absent(scheduler, param));
}

wring_status wring_scheduler_flush(wring_scheduler *scheduler)
{
    REQUIRE(scheduler != NULL, "scheduler is NULL");
    ON_ITS_DEVICE(scheduler, wri_scheduler_flush(scheduler));
}

wring_status wring_scheduler_finish(wring_scheduler *scheduler, wring_result *result_out)
{
    REQUIRE(scheduler != NULL, "scheduler is NULL");
    ON_ITS_DEVICE(scheduler, wri_scheduler_finish(scheduler, result_out));
}

wring_status wring_scheduler_norm(wring_scheduler *scheduler, double *norm_out)
{
    REQUIRE(scheduler != NULL && norm_out != NULL, "scheduler or norm_out is NULL");
    ON_ITS_DEVICE(scheduler, wri_scheduler_norm(scheduler, norm_out));
}

wring_status wring_scheduler_scale(wring_scheduler *scheduler, double factor)
{
    REQUIRE(scheduler != NULL, "scheduler is NULL");
    ON_ITS_DEVICE(scheduler, wri_scheduler_scale(scheduler, factor));
}

wring_status wring_scheduler_undo(wring_scheduler *scheduler)
{
    REQUIRE(scheduler != NULL, "scheduler is NULL");
    ON_ITS_DEVICE(scheduler, wri_scheduler_undo(scheduler));
}
