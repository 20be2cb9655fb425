/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a scheduler: parameters are registered, then sealed at the first gradient, when all its
 * memory is sized and taken. */
#include "scheduler/scheduler.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/comm.h"
#include "collective/frame.h"
#include "collective/tensor.h"
#include "simd/array.h"

wring_status wri_scheduler_create(wring_comm *comm, const wring_scheduler_options *options,
                                  wring_scheduler **scheduler_out)
{
    void *block;
    if (options->stream == NULL && wri_context_ordered(comm->context))
        WRI_FAIL(WRING_E_ARGUMENT,
                 "transport %s moves device memory: set wring_scheduler_options.stream",
                 comm->context->transport->name);
    if (options->stream != NULL) {
        pthread_mutex_lock(&comm->context->lock);
        wring_status status = wri_context_check_stream(comm->context, options->stream);
        pthread_mutex_unlock(&comm->context->lock);
        WRI_TRY(status);
    }
    WRI_TRY(wri_alloc(1, sizeof(wring_scheduler), &block));
    wring_scheduler *scheduler = block;
    scheduler->comm = comm;
    scheduler->options = *options;
    wring_status status = WRING_OK;
    if (options->rules)
        status = wri_rules_open(&scheduler->rules, "WRING_RULES", options->rules);
    if (status != WRING_OK) {
        wri_free(scheduler);
        return status;
    }
    *scheduler_out = scheduler;
    return WRING_OK;
}

/* ---- registration ---------------------------------------------------------------------------- */

/* Room for one more element of NBYTES at *ARRAY. */
static wring_status make_room(void **array, size_t count, size_t *capacity, size_t nbytes)
{
    if (count < *capacity)
        return WRING_OK;
    size_t larger = *capacity ? 2 * *capacity : 64;
    void *block;
    WRI_TRY(wri_alloc(larger, nbytes, &block));
    if (count)
        memcpy(block, *array, count * nbytes);
    wri_free(*array);
    *array = block;
    *capacity = larger;
    return WRING_OK;
}

static wring_status check_name(const wring_scheduler *scheduler, const char *name)
{
    if (scheduler->arena.base)
        WRI_FAIL(WRING_E_STATE, "parameter '%s' comes after the first gradient was ready", name);
    bool taken = false;
    for (size_t i = 0; i < scheduler->nparams; i++)
        taken |= strcmp(scheduler->params[i].name, name) == 0;
    for (size_t i = 0; i < scheduler->ntables; i++)
        taken |= strcmp(scheduler->tables[i].name, name) == 0;
    if (taken)
        WRI_FAIL(WRING_E_ARGUMENT, "parameter '%s' is registered already", name);
    return WRING_OK;
}

static void param_fini(struct wri_parameter *param)
{
    wri_tensor_destroy(param->tensor);
    wri_free(param->strided);
    wri_free(param->name);
}

/* By more than a frame: what has another codec than its neighbours travels in a message of its
 * own. */
static bool makes_larger(const wring_codec *codec, wring_dtype dtype, size_t count)
{
    return wri_codec_nbytes(codec, dtype, count) >
           count * wring_dtype_size(dtype) + WRI_FRAME_NBYTES;
}

/* Which codec, and why; NULL, NULL for the communicator's. */
static const wring_codec *codec_of(const wring_scheduler *scheduler, const char *name,
                                   wring_dtype dtype, int ndim, const size_t *shape,
                                   const char **reason_out)
{
    size_t count = 1, nbytes;
    bool fits = true;
    for (int i = 0; i < ndim; i++)
        fits = fits && wri_size_mul(count, shape[i], &count);
    fits = fits && wri_size_mul(count, wring_dtype_size(dtype), &nbytes);
    *reason_out = "below WRING_MIN_BYTES";
    if (fits && nbytes < scheduler->options.min_nbytes)
        return scheduler->comm->context->exact;
    *reason_out = scheduler->options.codec ? "of the scheduler" : NULL;
    const wring_codec *codec = wri_rules_find(&scheduler->rules, name, reason_out);
    if (codec == NULL)
        codec = scheduler->options.codec;
    if (!fits || !makes_larger(codec ? codec : scheduler->comm->codec, dtype, count))
        return codec;
    *reason_out = "its codec would make it larger";
    return scheduler->comm->context->exact;
}

static wring_status init_strided(const wring_scheduler *scheduler, int ndim, const size_t *shape,
                                 const ptrdiff_t *strides, struct wri_parameter *param)
{
    void *block;
    if (strides == NULL || wri_strided_is_plain(ndim, shape, strides))
        return WRING_OK;
    if (scheduler->options.stream)
        WRI_FAIL(WRING_E_UNSUPPORTED,
                 "parameter '%s': strides in device memory; copy the gradient into one piece",
                 param->name);
    WRI_TRY(wri_alloc(1, sizeof(struct wri_strided), &block));
    param->strided = block;
    return wri_strided_init(block, param->name, param->dtype, ndim, shape, strides, param->grad);
}

static bool needs_sums(const wring_scheduler *scheduler)
{
    return scheduler->options.accumulate > 1 || scheduler->options.weighted;
}

/* Memory that the scheduler holds for PARAM: its tensor's state, and what is carved below. */
static wring_status check_memory(wring_scheduler *scheduler, const struct wri_parameter *param)
{
    size_t limit = scheduler->options.memory_limit;
    size_t nbytes = wri_tensor_state_nbytes(param->tensor);
    if (needs_sums(scheduler))
        nbytes += param->count * wring_dtype_size(wri_dtype_accumulator(param->dtype));
    if (param->strided)
        nbytes += param->count * wring_dtype_size(param->dtype);
    if (limit > 0 && nbytes > limit - scheduler->held_nbytes)
        WRI_FAIL(
            WRING_E_MEMORY,
            "parameter '%s' needs %zu bytes of state and sums, with those before it %zu; "
            "WRING_MEMORY_LIMIT allows %zu: raise it, or do without error feedback, strides or "
            "micro-steps",
            param->name, nbytes, scheduler->held_nbytes + nbytes, limit);
    scheduler->held_nbytes += nbytes;
    return WRING_OK;
}

/* Where the gradient stands: said now, not by a bucket of the first step. */
static wring_status check_place(wring_scheduler *scheduler, const struct wri_parameter *param)
{
    wring_context *context = scheduler->comm->context;
    bool device = scheduler->options.stream != NULL;
    if (param->count == 0 || param->strided)
        return WRING_OK;
    pthread_mutex_lock(&context->lock);
    wring_status status =
        wri_context_check_buffer(context, param->grad, param->count, param->dtype, device);
    pthread_mutex_unlock(&context->lock);
    return status == WRING_OK ? status : wri_fail_context(status, "parameter '%s'", param->name);
}

static wring_status check_type(const wring_scheduler *scheduler, const struct wri_parameter *param)
{
    wring_status status = wri_codec_accepts(param->codec, param->dtype, scheduler->options.op);
    if (status == WRING_OK && scheduler->options.weighted && !wri_dtype_is_float(param->dtype))
        status =
            wri_fail(WRING_E_UNSUPPORTED, "%s cannot be weighted", wring_dtype_name(param->dtype));
    return status == WRING_OK ? status : wri_fail_context(status, "parameter '%s'", param->name);
}

/* PARAM has its name, type and gradient. */
static wring_status param_init(wring_scheduler *scheduler, int ndim, const size_t *shape,
                               const ptrdiff_t *strides, struct wri_parameter *param)
{
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    const char *reason;
    options.codec = codec_of(scheduler, param->name, param->dtype, ndim, shape, &reason);
    options.device = scheduler->options.stream != NULL;
    WRI_TRY(wri_tensor_create(scheduler->comm, param->name, param->dtype, ndim, shape, &options,
                              &param->tensor));
    wri_tensor_set_reason(param->tensor, reason);
    param->count = wri_tensor_count(param->tensor);
    param->codec = wri_tensor_codec(param->tensor);
    WRI_TRY(check_type(scheduler, param));
    WRI_TRY(check_place(scheduler, param));
    WRI_TRY(init_strided(scheduler, ndim, shape, strides, param));
    return check_memory(scheduler, param);
}

wring_status wri_scheduler_add(wring_scheduler *scheduler, const char *name, wring_dtype dtype,
                               int ndim, const size_t *shape, const ptrdiff_t *strides, void *grad,
                               int *param_out)
{
    WRI_TRY(check_name(scheduler, name));
    WRI_TRY(make_room((void **)&scheduler->params, scheduler->nparams, &scheduler->capacity,
                      sizeof(struct wri_parameter)));
    struct wri_parameter *param = &scheduler->params[scheduler->nparams];
    *param = (struct wri_parameter){.dtype = dtype, .grad = grad};
    WRI_TRY(wri_strdup(name, &param->name));
    wring_status status = param_init(scheduler, ndim, shape, strides, param);
    if (status != WRING_OK) {
        param_fini(param);
        return status;
    }
    *param_out = (int)scheduler->nparams++;
    return WRING_OK;
}

wring_status wri_scheduler_add_table(wring_scheduler *scheduler, const char *name,
                                     wring_dtype dtype, size_t height, size_t width, int *table_out)
{
    WRI_TRY(check_name(scheduler, name));
    if (!wri_dtype_is_float(dtype))
        WRI_FAIL(WRING_E_UNSUPPORTED, "table '%s': rows of %s are no gradients", name,
                 wring_dtype_name(dtype));
    if (wri_context_ordered(scheduler->comm->context))
        WRI_FAIL(WRING_E_UNSUPPORTED,
                 "table '%s': rows travel from host memory, which transport %s does not move", name,
                 scheduler->comm->context->transport->name);
    WRI_TRY(make_room((void **)&scheduler->tables, scheduler->ntables, &scheduler->tables_capacity,
                      sizeof(struct wri_table)));
    WRI_TRY(wri_table_open(&scheduler->tables[scheduler->ntables], name, dtype, height, width));
    *table_out = (int)scheduler->ntables++;
    return WRING_OK;
}

/* ---- sealing --------------------------------------------------------------------------------- */

static void carve_squares(wring_scheduler *scheduler)
{
    size_t ngroups = 0;
    for (size_t i = 0; i < scheduler->nparams; i++)
        ngroups += wri_norm_ngroups(&scheduler->params[i]);
    scheduler->squares = wri_arena_take(&scheduler->arena, ngroups, sizeof(double));
    scheduler->squares_there = wri_arena_take(&scheduler->there, ngroups, sizeof(double));
}

/* Run twice: to size the arenas, and to hand them out. */
static wring_segment *carve(wring_scheduler *scheduler)
{
    struct wri_arena *arena = &scheduler->arena;
    struct wri_arena *sums = scheduler->options.stream ? &scheduler->there : arena;
    scheduler->buckets = wri_arena_take(arena, scheduler->nbuckets, sizeof(struct wri_bucket));
    wring_segment *segments = wri_arena_take(arena, scheduler->nparams, sizeof(wring_segment));
    for (size_t i = 0; i < scheduler->nparams && needs_sums(scheduler); i++) {
        struct wri_parameter *param = &scheduler->params[i];
        size_t element_nbytes = wring_dtype_size(wri_dtype_accumulator(param->dtype));
        param->accumulator = wri_arena_take(sums, param->count, element_nbytes);
    }
    for (size_t i = 0; i < scheduler->nparams; i++) {
        struct wri_parameter *param = &scheduler->params[i];
        if (param->strided)
            param->grad = wri_arena_take(arena, param->count, wring_dtype_size(param->dtype));
    }
    if (scheduler->options.stream)
        carve_squares(scheduler);
    if (scheduler->options.weighted && wri_context_ordered(scheduler->comm->context))
        scheduler->weights.there = wri_arena_take(&scheduler->there, 1, sizeof(double));
    return segments;
}

/* Memory of either place for what ARENA was found to need: the caller's, if he has an allocator. */
static wring_status open_memory(wring_scheduler *scheduler, struct wri_arena *arena, void *stream)
{
    const wring_scheduler_options *options = &scheduler->options;
    if (!options->alloc || arena->overflow)
        return stream ? wri_lane_buffers(scheduler->comm, arena) : wri_arena_open(arena);
    size_t nbytes = arena->used ? arena->used : WRI_ALIGN;
    void *block = options->alloc(options->alloc_arg, nbytes, stream);
    if (block == NULL)
        WRI_FAIL(WRING_E_MEMORY, "the scheduler's allocator has no %zu bytes", nbytes);
    *arena = (struct wri_arena){.base = block, .capacity = nbytes};
    if ((uintptr_t)block % WRI_ALIGN != 0)
        WRI_FAIL(WRING_E_ARGUMENT, "the scheduler's allocator gave %p, not aligned to %d bytes",
                 block, WRI_ALIGN);
    if (!stream)
        memset(block, 0, nbytes);
    return WRING_OK;
}

static void close_memory(wring_scheduler *scheduler, struct wri_arena *arena, void *stream)
{
    const wring_scheduler_options *options = &scheduler->options;
    if (arena->base && options->alloc)
        options->free(options->alloc_arg, arena->base, arena->capacity, stream);
    else if (arena->base && stream)
        wri_lane_buffers_close(scheduler->comm, arena, stream);
    else
        wri_arena_close(arena);
    *arena = (struct wri_arena){0};
}

static wring_status open_memories(wring_scheduler *scheduler)
{
    void *stream = scheduler->options.stream;
    wring_status status = open_memory(scheduler, &scheduler->arena, NULL);
    if (status == WRING_OK && stream)
        status = open_memory(scheduler, &scheduler->there, stream);
    if (status == WRING_OK)
        return WRING_OK;
    close_memory(scheduler, &scheduler->there, stream);
    close_memory(scheduler, &scheduler->arena, NULL);
    return status;
}

wring_status wri_scheduler_seal(wring_scheduler *scheduler)
{
    const wring_scheduler_options *options = &scheduler->options;
    scheduler->arena = scheduler->there = (struct wri_arena){0};
    scheduler->nbuckets = wri_bucket_assign(scheduler->params, scheduler->nparams,
                                            options->bucket_nbytes, options->first_bucket_nbytes);
    carve(scheduler);
    WRI_TRY(open_memories(scheduler));
    wring_segment *segments = carve(scheduler);
    wri_bucket_fill(scheduler->params, scheduler->nparams, segments, scheduler->buckets);
    if (options->stream)
        scheduler->site = (struct wri_site){scheduler->comm->lane.device, options->stream};
    wri_log(WRING_LOG_DEBUG, "scheduler: %zu parameters in %zu buckets, %zu bytes",
            scheduler->nparams, scheduler->nbuckets, scheduler->arena.capacity);
    return WRING_OK;
}

/* ---- end ------------------------------------------------------------------------------------- */

void wri_scheduler_destroy(wring_scheduler *scheduler)
{
    if (!scheduler)
        return;
    wri_scheduler_drain(scheduler);
    pthread_mutex_lock(&scheduler->comm->context->lock);
    wri_step_fini(&scheduler->transaction);
    pthread_mutex_unlock(&scheduler->comm->context->lock);
    /* Before the tensors, which keep the communicator. */
    close_memory(scheduler, &scheduler->there, scheduler->options.stream);
    for (size_t i = 0; i < scheduler->nparams; i++)
        param_fini(&scheduler->params[i]);
    wri_free(scheduler->params);
    for (size_t i = 0; i < scheduler->ntables; i++)
        wri_table_close(&scheduler->tables[i]);
    wri_free(scheduler->tables);
    wri_rules_close(&scheduler->rules);
    close_memory(scheduler, &scheduler->arena, NULL);
    wri_free(scheduler);
}
