/* SPDX-License-Identifier: Apache-2.0 */
/* Which codec does a parameter of this name have? */
#ifndef WRI_SCHEDULER_RULES_H
#define WRI_SCHEDULER_RULES_H

#include <wring/wring.h>

struct wri_rules {
    struct wri_rule *rule; /* in their order */
    size_t count;
};

/* TEXT: rules `glob = spec`, one a line or separated by ';', '#' begins a comment; or `@file`,
 * which holds them. WRING_E_CONFIG and WRING_E_SPEC name SOURCE (a file: its name), line and
 * position. */
wring_status wri_rules_open(struct wri_rules *rules, const char *source, const char *text);
void wri_rules_close(struct wri_rules *rules);

/* The codec of the first rule whose glob matches NAME, and why, in words that stay as long as
 * RULES; NULL if there is none. */
const wring_codec *wri_rules_find(const struct wri_rules *rules, const char *name,
                                  const char **reason_out);

#endif
