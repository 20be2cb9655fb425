/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context: one transport, one lock, one list of requests in flight, and whoever drives them.
 *
 * Everything below the API runs under the context's lock. Progress is made by one thread at a time:
 * a caller that waits takes over from the progress thread, so no request changes hands between
 * cores while somebody is waiting for it.
 */
#ifndef WRI_COLLECTIVE_CONTEXT_H
#define WRI_COLLECTIVE_CONTEXT_H

#include "base/config.h"
#include "base/device.h"
#include "transport/transport.h"

#include <pthread.h>

struct wring_context {
    struct wri_config config;
    const struct wring_transport_ops *transport;
    void *link;                      /* the opened transport */
    wring_codec *exact;              /* codec none, to compare with */
    const struct wri_device *device; /* NULL: no call or tensor was on one yet */
    int device_index;                /* which: the one that was current then */
    pthread_mutex_t lock;
    pthread_cond_t work; /* the thread has something to do: requests and no waiter, or stop */
    pthread_t thread;
    bool threaded, stop;
    struct wri_step *step;       /* the user's transaction */
    bool stuck;                  /* a device never got through: memory that it may use is left */
    int waiters;                 /* callers that drive progress themselves */
    int sleepers;                /* drivers inside transport->wait */
    int spin_limit;              /* idle polls before sleeping */
    wring_request *active;       /* started and unfinished, in order of start */
    wring_request *buried;       /* given back by the user, but not yet by the transport */
    struct wri_monitor *monitor; /* of the control paths; NULL: none was opened */
    int listen_fd, listen_port;  /* of a unique id that waits for its communicator; -1 if none */
};

wring_status wri_context_create(const wring_context_options *options, wring_context **context_out);
void wri_context_destroy(wring_context *context);

/* The transport has groups and streams instead of endpoints and polling. */
static inline bool wri_context_ordered(const wring_context *context)
{
    return context->transport->caps & WRING_TRANSPORT_STREAM_ORDERED;
}

/* Open the device, the calling thread's current one, unless it is open. Locked. */
wring_status wri_context_device(wring_context *context);

/* Make the context's device the thread's current one; returns what was, for leave. */
int wri_context_enter(wring_context *context);
void wri_context_leave(wring_context *context, int was);

/* Tell a driver that sleeps that the device has got as far as STREAM is now. */
wring_status wri_context_wake_after(wring_context *context, void *stream);

/* Whether STREAM is one of the context's device. Locked. */
wring_status wri_context_check_stream(wring_context *context, void *stream);

/* Whether a buffer of COUNT elements is aligned to them, and where it must be. Locked. */
wring_status wri_context_check_buffer(wring_context *context, const void *buffer, size_t count,
                                      wring_dtype dtype, bool device);

/* Whether all of a buffer is where it must be: in memory of the context's device, or of the host.
 * Locked. */
wring_status wri_context_check_memory(wring_context *context, const void *buffer, size_t nbytes,
                                      bool device);

/* Whether BUFFER, of an argument that is NAME, is host memory whatever the stream. Locked. */
wring_status wri_context_check_host(wring_context *context, const char *name, const void *buffer);

/* Advance everything once; true if anything moved. Locked. */
bool wri_context_poll(wring_context *context);

/* One turn of a driver's loop: poll; after enough idle turns (*idle counts them) sleep until the
 * transport has something. Locked on entry and exit, not in between. */
void wri_context_drive(wring_context *context, int *idle);

/* Leave the lock to others for a moment. Locked on entry and exit. */
void wri_context_yield(wring_context *context);

/* Tell the drivers that there is a new request, or that one is done. Locked. */
void wri_context_notify(wring_context *context);

/* Ranks on this host share its cores: a driver spins only if there is a core for it. */
void wri_context_set_local_ranks(wring_context *context, int local_nranks);

#endif
