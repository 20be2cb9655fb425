/* SPDX-License-Identifier: Apache-2.0 */
/* The host as a device: everything happens inside the call, so streams carry no order of their own
 * and an event has passed as soon as it exists. And finding the others. */
#include "base/device.h"

#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "base/module.h"
#include "base/status.h"

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

static wring_status host_zero(void *stream, void *dst, size_t nbytes)
{
    (void)stream;
    memset(dst, 0, nbytes);
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
    .zero = host_zero,
    .event_open = host_event_open,
    .event_close = host_event_close,
    .event_record = host_event_order,
    .event_wait = host_event_order,
    .event_test = host_event_test,
};

wring_status wri_device_find(const char *name, const char *folder, const struct wri_device **out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct wri_device *cuda;
    const struct wring_module *module = NULL;
    if (strcmp(name, "cuda") != 0)
        WRI_FAIL(WRING_E_MODULE, "no device '%s'; there is: cuda", name);
    wring_status status = WRING_OK;
    pthread_mutex_lock(&lock);
    if (cuda == NULL)
        status =
            wri_module_open("cuda", folder, "device memory",
                            "It is built with -DWRING_CUDA=ON, where the CUDA toolkit is", &module);
    if (status == WRING_OK && module != NULL) {
        if (module->device != NULL)
            cuda = module->device(&wri_host_services);
        else
            status = wri_fail(WRING_E_MODULE, "device memory: libwring_cuda.so holds no device");
    }
    *out = cuda;
    pthread_mutex_unlock(&lock);
    return status;
}
