/* SPDX-License-Identifier: Apache-2.0 */
/* Where memory lives and work is ordered: one small table, implemented for the host here and for
 * CUDA by a module. Only kernels exist twice, never algorithms. */
#ifndef WRI_BASE_DEVICE_H
#define WRI_BASE_DEVICE_H

#include <wring/wring.h>

struct wri_device {
    size_t size; /* sizeof(struct wri_device) */
    const char *name;
    bool host; /* ordinary memory; streams and events are trivially complete */

    /* Stream-ordered: the block may be used by work enqueued on STREAM after the call. */
    wring_status (*alloc)(const struct wri_device *, void *stream, size_t nbytes, void **out);
    void (*free)(const struct wri_device *, void *stream, void *block);

    /* Enqueue a copy; either side may be host memory (pinned, to be asynchronous). */
    wring_status (*copy)(const struct wri_device *, void *stream, void *dst, const void *src,
                         size_t nbytes);

    /* An event marks a point of a stream: record it, let another stream wait for it, ask for it. */
    wring_status (*event_open)(const struct wri_device *, void **event_out);
    void (*event_close)(const struct wri_device *, void *event);
    wring_status (*event_record)(const struct wri_device *, void *event, void *stream);
    wring_status (*event_wait)(const struct wri_device *, void *event, void *stream);
    wring_status (*event_test)(const struct wri_device *, void *event); /* WRING_AGAIN: not yet */
};

extern const struct wri_device wri_device_host;

#endif
