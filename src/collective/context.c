/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a context and its progress loop; see context.h. */
#include "collective/context.h"

#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/control.h"
#include "collective/exec.h"
#include "simd/kernels.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#define SPIN_LIMIT 2000      /* idle polls of a rank that has a core of its own: about 100 us */
#define SLEEP_MS 50          /* longest sleep, so that deadlines are looked at */
#define ORDERED_NAP_NS 50000 /* between looks at a stream, which has nothing to sleep on */

bool wri_context_poll(wring_context *context)
{
    bool moved = context->transport->progress && context->transport->progress(context->link);
    wring_request *next;
    for (wring_request *request = context->active; request; request = next) {
        next = wri_request_next(request);
        moved |= wri_exec_advance(request);
    }
    return moved;
}

void wri_context_drive(wring_context *context, int *idle)
{
    bool moved = wri_context_poll(context);
    *idle = moved ? 0 : *idle + 1;
    if (*idle <= context->spin_limit) {
        pthread_mutex_unlock(&context->lock);
        if (!moved)
            sched_yield();
    } else if (context->transport->arm == NULL) {
        pthread_mutex_unlock(&context->lock);
        nanosleep(&(struct timespec){0, ORDERED_NAP_NS}, NULL);
    } else if (context->transport->arm(context->link)) {
        context->sleepers++;
        pthread_mutex_unlock(&context->lock);
        context->transport->wait(context->link, SLEEP_MS);
        pthread_mutex_lock(&context->lock);
        context->sleepers--;
        return;
    } else {
        pthread_mutex_unlock(&context->lock);
    }
    pthread_mutex_lock(&context->lock);
}

void wri_context_notify(wring_context *context)
{
    pthread_cond_broadcast(&context->work);
    if (context->sleepers > 0 && context->transport->wake)
        context->transport->wake(context->link);
}

void wri_context_yield(wring_context *context)
{
    static const struct timespec moment = {0, 20000};
    pthread_mutex_unlock(&context->lock);
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&context->lock);
}

void wri_context_set_local_ranks(wring_context *context, int local_nranks)
{
    context->spin_limit = local_nranks < sysconf(_SC_NPROCESSORS_ONLN) ? SPIN_LIMIT : 0;
}

static void *progress_main(void *arg)
{
    wring_context *context = arg;
    int idle = 0;
    pthread_mutex_lock(&context->lock);
    while (!context->stop) {
        if (context->active == NULL || context->waiters > 0)
            pthread_cond_wait(&context->work, &context->lock);
        else
            wri_context_drive(context, &idle);
    }
    pthread_mutex_unlock(&context->lock);
    return NULL;
}

wring_status wri_context_create(const wring_context_options *options, wring_context **context_out)
{
    wring_context *context;
    WRI_TRY(wri_alloc(1, sizeof(*context), (void **)&context));
    context->listen_fd = -1;
    wring_status status = wri_config_load(&context->config);
    if (status == WRING_OK)
        status = wri_simd_select(context->config.cpu);
    if (status == WRING_OK)
        status = wri_codec_create("none", &context->exact);
    if (status == WRING_OK)
        status = wri_alloc(1, sizeof(*context->step), (void **)&context->step);
    if (status == WRING_OK)
        status = wri_transport_open(&context->config, options ? options->transport : NULL,
                                    &context->transport, &context->link);
    if (status != WRING_OK)
        goto free_context;

    pthread_mutex_init(&context->lock, NULL);
    pthread_cond_init(&context->work, NULL);
    wri_context_set_local_ranks(context, 1);
    context->threaded = !(options && options->caller_progress) && context->config.progress == 0;
    if (context->threaded && pthread_create(&context->thread, NULL, progress_main, context) != 0) {
        status = wri_fail(WRING_E_SYSTEM, "cannot start the progress thread");
        goto close_transport;
    }
    *context_out = context;
    return WRING_OK;

close_transport:
    context->transport->close(context->link);
    pthread_cond_destroy(&context->work);
    pthread_mutex_destroy(&context->lock);
free_context:
    wri_free(context->step);
    wri_codec_destroy(context->exact);
    wri_free(context);
    return status;
}

void wri_context_destroy(wring_context *context)
{
    if (context == NULL)
        return;
    if (context->threaded) {
        pthread_mutex_lock(&context->lock);
        context->stop = true;
        wri_context_notify(context);
        pthread_mutex_unlock(&context->lock);
        pthread_join(context->thread, NULL);
    }
    wri_monitor_close(context->monitor);
    for (wring_request *request = context->buried; request; request = wri_request_next(request))
        context->stuck = context->stuck || !wri_lane_is_quiet(request->comm);
    if (context->stuck)
        return; /* the device still uses its memory, and calls back */
    context->transport->close(context->link);
    while (context->buried != NULL) {
        wring_request *request = context->buried;
        wring_comm *comm = request->comm;
        context->buried = wri_request_next(request);
        wri_request_free(request);
        wri_comm_release(comm);
    }
    if (context->listen_fd >= 0)
        close(context->listen_fd);
    pthread_cond_destroy(&context->work);
    pthread_mutex_destroy(&context->lock);
    wri_step_fini(context->step);
    wri_free(context->step);
    wri_codec_destroy(context->exact);
    wri_free(context);
}
