/* SPDX-License-Identifier: Apache-2.0 */
/* What is built in, found and set: the tables of all layers behind one call. */
#include <stdio.h>

#include "base/config.h"
#include "base/device.h"
#include "codec/codec.h"
#include "collective/collective.h"
#include "simd/kernels.h"
#include "transport/rendezvous.h"
#include "transport/transport.h"

static bool transport_info(size_t index, wring_info *info_out)
{
    struct wri_config config;
    bool known = wri_config_load(&config) == WRING_OK;
    return wri_transport_info(index, known ? config.modules : "", info_out);
}

static bool algorithm_info(size_t index, wring_info *info_out)
{
    const struct wring_collective_ops *ops = wri_collective_at(index);
    if (ops == NULL)
        return false;
    *info_out = (wring_info){ops->name, ops->when, "", ""};
    return true;
}

static bool device_info(size_t index, wring_info *info_out)
{
    static _Thread_local char reason[1024];
    const struct wri_device *device;
    struct wri_config config;
    int count = 0;
    if (index > 0)
        return false;
    bool known = wri_config_load(&config) == WRING_OK;
    wring_status status = wri_device_find("cuda", known ? config.modules : "", &device);
    if (status == WRING_OK)
        status = device->count(&count);
    snprintf(reason, sizeof reason, "%s", status == WRING_OK ? "" : wring_error_message());
    *info_out = (wring_info){"cuda", "memory of NVIDIA GPUs", "", reason};
    return true;
}

bool wring_info_get(wring_info_kind kind, size_t index, wring_info *info_out)
{
    switch (kind) {
    case WRING_INFO_CODEC:
        return wri_codec_info(index, info_out);
    case WRING_INFO_TRANSPORT:
        return transport_info(index, info_out);
    case WRING_INFO_ALGORITHM:
        return algorithm_info(index, info_out);
    case WRING_INFO_SETTING:
        return wri_config_info(index, info_out);
    case WRING_INFO_CPU:
        return wri_simd_info(index, info_out);
    case WRING_INFO_DEVICE:
        return device_info(index, info_out);
    case WRING_INFO_LAUNCHER:
        return wri_launch_info(index, info_out);
    default:
        return false;
    }
}
