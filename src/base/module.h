/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: parts of wring with a dependency of their own, opened at first use. */
#ifndef WRI_BASE_MODULE_H
#define WRI_BASE_MODULE_H

#include <wring/plugin.h>

extern const struct wring_host_services wri_host_services;

/* Build hash that library and modules must share. */
extern const char wri_build_hash[];

/* Load libwring_<NAME>.so from FOLDER (empty: beside the object that holds this code), for the life
 * of the process. WHAT ("transport ucx") begins messages, REMEDY ends the one about a file that is
 * not there. WRING_E_MODULE. */
wring_status wri_module_open(const char *name, const char *folder, const char *what,
                             const char *remedy, const struct wring_module **module_out);

#endif
