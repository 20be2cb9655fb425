/* SPDX-License-Identifier: Apache-2.0 */
/* What is built in, found and set: the tables of all layers behind one call. */
#include "base/config.h"
#include "codec/codec.h"
#include "collective/collective.h"
#include "simd/kernels.h"
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
    default:
        return false;
    }
}
