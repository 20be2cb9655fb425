/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a transport a module: the one object that libwring_<name>.so exports. The build
 * compiles this file once for each module and names its table. */
#include <wring/plugin.h>

extern const struct wring_transport_ops WRI_MODULE_TABLE;

extern const struct wring_module wring_module;

WRING_API const struct wring_module wring_module = {
    .size = sizeof(struct wring_module),
    .abi = WRING_PLUGIN_ABI,
    .build = WRI_BUILD_HASH,
    .transport = &WRI_MODULE_TABLE,
};
