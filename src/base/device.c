/* SPDX-License-Identifier: Apache-2.0 */
/* The host as a device: everything happens inside the call, so streams carry no order of their own
 * and an event has passed as soon as it exists. */
#include "base/device.h"

#include <string.h>

#include "base/memory.h"

static wring_status host_alloc(const struct wri_device *device, void *stream, size_t nbytes,
                               void **out)
{
    (void)device;
    (void)stream;
    return wri_alloc(1, nbytes, out);
}

static void host_free(const struct wri_device *device, void *stream, void *block)
{
    (void)device;
    (void)stream;
    wri_free(block);
}

static wring_status host_copy(const struct wri_device *device, void *stream, void *dst,
                              const void *src, size_t nbytes)
{
    (void)device;
    (void)stream;
    if (nbytes && dst != src)
        memcpy(dst, src, nbytes);
    return WRING_OK;
}

/* An event has no state; any non-NULL value will do. */
static wring_status host_event_open(const struct wri_device *device, void **event_out)
{
    *event_out = (void *)(uintptr_t)device;
    return WRING_OK;
}

static void host_event_close(const struct wri_device *device, void *event)
{
    (void)device;
    (void)event;
}

static wring_status host_event_order(const struct wri_device *device, void *event, void *stream)
{
    (void)device;
    (void)event;
    (void)stream;
    return WRING_OK;
}

static wring_status host_event_test(const struct wri_device *device, void *event)
{
    (void)device;
    (void)event;
    return WRING_OK;
}

const struct wri_device wri_device_host = {
    .size = sizeof(struct wri_device),
    .name = "host",
    .host = true,
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .event_open = host_event_open,
    .event_close = host_event_close,
    .event_record = host_event_order,
    .event_wait = host_event_order,
    .event_test = host_event_test,
};
