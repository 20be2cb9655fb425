/* SPDX-License-Identifier: Apache-2.0 */
/* A context's device: opened at first use, so that a program without device memory never loads
 * anything. */
#include "base/status.h"
#include "collective/context.h"

#include <dlfcn.h>

wring_status wri_context_device(wring_context *context)
{
    const struct wri_device *device;
    int count = 0, index = 0;
    if (context->device != NULL)
        return WRING_OK;
    WRI_TRY(wri_device_find("cuda", context->config.modules, &device));
    WRI_TRY(device->count(&count));
    WRI_TRY(device->current(&index));
    context->device_index = index;
    context->device = device;
    return WRING_OK;
}

int wri_context_enter(wring_context *context)
{
    int was = context->device_index;
    if (context->device != NULL && context->device->current(&was) == WRING_OK &&
        was != context->device_index)
        context->device->select(context->device_index);
    return was;
}

void wri_context_leave(wring_context *context, int was)
{
    if (context->device != NULL && was != context->device_index)
        context->device->select(was);
}

static void wake(void *context_arg)
{
    wring_context *context = context_arg;
    context->transport->wake(context->link);
}

wring_status wri_context_wake_after(wring_context *context, void *stream)
{
    if (context->transport->wake == NULL)
        return WRING_OK;
    return context->device->call_back(stream, wake, context);
}

/* Device memory can only be where the driver is loaded. Asked anew until it is. */
static bool may_have_device_memory(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == NULL)
        driver = dlopen("libemucuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (driver != NULL)
        dlclose(driver);
    return driver != NULL;
}

static wring_status check_pointer(const wring_context *context, const void *pointer, bool device)
{
    int owner = -1;
    WRI_TRY(context->device->owner(pointer, &owner));
    if (!device && owner >= 0)
        WRI_FAIL(
            WRING_E_ARGUMENT,
            "%p is memory of device %d, and the call has no stream: set wring_call.stream, or a "
            "scheduler's",
            pointer, owner);
    if (device && owner < 0)
        WRI_FAIL(WRING_E_ARGUMENT,
                 "%p is host memory, and the call has a stream: leave it NULL, or copy the data to "
                 "the device",
                 pointer);
    if (device && owner != context->device_index)
        WRI_FAIL(WRING_E_ARGUMENT, "%p is memory of device %d, the context works on device %d",
                 pointer, owner, context->device_index);
    return WRING_OK;
}

/* Whether a host pointer could be a device's: its device is open then. */
static bool can_tell(wring_context *context)
{
    return context->device != NULL ||
           (may_have_device_memory() && wri_context_device(context) == WRING_OK);
}

wring_status wri_context_check_memory(wring_context *context, const void *buffer, size_t nbytes,
                                      bool device)
{
    if (!device && !can_tell(context))
        return WRING_OK;
    WRI_TRY(check_pointer(context, buffer, device));
    wring_status status = check_pointer(context, (const char *)buffer + nbytes - 1, device);
    return status == WRING_OK
               ? status
               : wri_fail_context(status, "the last of %zu bytes at %p", nbytes, buffer);
}

wring_status wri_context_check_host(wring_context *context, const char *name, const void *buffer)
{
    int owner = -1;
    if (!can_tell(context))
        return WRING_OK;
    WRI_TRY(context->device->owner(buffer, &owner));
    if (owner >= 0)
        WRI_FAIL(WRING_E_ARGUMENT, "%s: %p is memory of device %d, and must be host memory", name,
                 buffer, owner);
    return WRING_OK;
}

wring_status wri_context_check_buffer(wring_context *context, const void *buffer, size_t count,
                                      wring_dtype dtype, bool device)
{
    size_t element_nbytes = wring_dtype_size(dtype);
    if ((uintptr_t)buffer % element_nbytes != 0)
        WRI_FAIL(WRING_E_ARGUMENT, "%p is not aligned to the %zu bytes of a %s", buffer,
                 element_nbytes, wring_dtype_name(dtype));
    return wri_context_check_memory(context, buffer, count * element_nbytes, device);
}

wring_status wri_context_check_stream(wring_context *context, void *stream)
{
    int index = -1;
    WRI_TRY(wri_context_device(context));
    WRI_TRY(context->device->stream_device(stream, &index));
    if (index != context->device_index)
        WRI_FAIL(WRING_E_ARGUMENT,
                 "the stream belongs to device %d, the context works on device %d", index,
                 context->device_index);
    return WRING_OK;
}
