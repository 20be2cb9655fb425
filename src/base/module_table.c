/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a transport or a device a module: the one object that libwring_<name>.so exports. The
 * build compiles this file once for each module and names its table. */
#include <wring/plugin.h>

#ifdef WRI_MODULE_TABLE
extern const struct wring_transport_ops WRI_MODULE_TABLE;
#else
const struct wri_device *WRI_MODULE_DEVICE(const struct wring_host_services *);
#endif

extern const struct wring_module wring_module;

WRING_API const struct wring_module wring_module = {
    .size = sizeof(struct wring_module),
    .abi = WRING_PLUGIN_ABI,
    .build = WRI_BUILD_HASH,
#ifdef WRI_MODULE_TABLE
    .transport = &WRI_MODULE_TABLE,
#else
    .device = WRI_MODULE_DEVICE,
#endif
};
