/* SPDX-License-Identifier: Apache-2.0 */
/* The launchers that start ranks: a table of how each tells a process who it is. */
#ifndef WRI_TRANSPORT_LAUNCHER_H
#define WRI_TRANSPORT_LAUNCHER_H

#include "transport/rendezvous.h"

#define WRI_NRANKS_UNKNOWN (-1) /* the launcher says a rank; the size has to be asked for */
#define WRI_ROOT_FORM "host:port, for example 10.0.0.1:29400"

/* One launcher. Its functions find what the environment does not say in so many words. */
struct wri_launcher {
    const char *name;
    const char *rank, *nranks, *local_rank, *local_nranks; /* names of its variables */
    const char *identity[3];                               /* variables that name the job */
    /* Rank and size; nranks stays 0 if it does not speak. NULL: by the variables. */
    wring_status (*ask)(const struct wri_launcher *launcher, struct wri_launch *launch);
    /* The host of rank 0, and what `ask` left open; asked of the launcher that is believed only.
     * The host stays "" where it does not say. */
    wring_status (*find_root)(struct wri_launch *launch);
    /* Its variables may describe a process that started another launcher, not this one. */
    bool outer;
};

/* In the order in which they are believed; NULL past the end. */
const struct wri_launcher *wri_launcher_at(size_t index);

wring_status wri_launcher_ask(const struct wri_launcher *launcher, struct wri_launch *launch_out);

/* Helpers of launchers and settings: a variable's value, NULL if unset or empty; a number in a
 * range, *OUT untouched where the variable is unset. */
const char *wri_launch_variable(const char *name);
wring_status wri_launch_parse(const char *name, const char *text, long min, long max, int *out);
wring_status wri_launch_number(const char *name, long min, int *out);

/* By PMIx's library, opened at run time: size, local rank and size, host of rank 0. */
wring_status wri_pmix_find(struct wri_launch *launch);

#endif
