/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: one table (config.def), read from the environment, the same in every locale. */
#ifndef WRI_BASE_CONFIG_H
#define WRI_BASE_CONFIG_H

#include <wring/wring.h>

#define WRI_CONFIG_TEXT_MAX 256

/* C types of the kinds in config.def. FLAG: 0, 1, or 2 for auto. WORD: index into choices. */
typedef char wri_setting_TEXT[WRI_CONFIG_TEXT_MAX];
typedef char wri_setting_FOLDER[WRI_CONFIG_TEXT_MAX];
typedef char wri_setting_SECRET[WRI_CONFIG_TEXT_MAX];
typedef int wri_setting_WORD;
typedef int64_t wri_setting_INT;
typedef int64_t wri_setting_MS;
typedef uint64_t wri_setting_BYTES;
typedef double wri_setting_REAL;
typedef int wri_setting_FLAG;

struct wri_config {
#define WRI_SETTING(kind, field, env, def, min, max, choices, help) wri_setting_##kind field;
#include "base/config.def"
#undef WRI_SETTING
};

/* Defaults overridden by the environment. WRING_E_CONFIG names the variable, its value and what is
 * accepted; unknown WRING_* variables are warned about once. */
wring_status wri_config_load(struct wri_config *config_out);

/* The index of one WORD or FLAG setting, for what must be known before a context exists. A bad
 * value counts as not set here: wri_config_load is what refuses it. */
int wri_config_word(const char *env);

/* The INDEX-th setting as text for people; false past the end. */
bool wri_config_info(size_t index, wring_info *info_out);

/* Locale-independent number parsing of a whole string, shared with the codec specs. False if TEXT
 * is not exactly one number (a '%' suffix divides by 100; no exponent before it), or not finite. */
bool wri_parse_real(const char *text, size_t length, double *value_out);

#endif
