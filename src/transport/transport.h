/* SPDX-License-Identifier: Apache-2.0 */
/* Internal calls of the transport layer: the registry, and modules opened at first use. */
#ifndef WRI_TRANSPORT_TRANSPORT_H
#define WRI_TRANSPORT_TRANSPORT_H

#include <wring/plugin.h>

struct wri_config;

/* Table of the named transport, its module loaded from FOLDER (empty: beside the library). A module
 * stays loaded for the life of the process. WRING_E_MODULE says what is missing and how to get
 * it. */
wring_status wri_transport_find(const char *name, const char *folder,
                                const struct wring_transport_ops **ops_out);

/* Open the named transport, NULL: the one that the settings name, as the settings say. */
wring_status wri_transport_open(const struct wri_config *config, const char *name,
                                const struct wring_transport_ops **ops_out, void **self_out);

/* The INDEX-th transport for people (loads its module to find out); false past the end. */
bool wri_transport_info(size_t index, const char *folder, wring_info *info_out);

/* Faults of transport `self`, for tests: called for each message when it is to be delivered, in the
 * seeded order. `drop` loses it, `delay` puts it back for later, `cut` loses the peer: from then on
 * SRC and DST see each other as lost. */
enum wri_self_fault { WRI_SELF_DELIVER, WRI_SELF_DROP, WRI_SELF_DELAY, WRI_SELF_CUT };
typedef enum wri_self_fault (*wri_self_fault_fn)(void *arg, int src, int dst, uint64_t tag,
                                                 void *data, size_t nbytes);
void wri_self_set_fault(void *self, wri_self_fault_fn fn, void *arg);

#endif
