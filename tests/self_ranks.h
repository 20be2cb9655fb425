/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a group inside one process, over transport self. Include after cmocka.h. */
#ifndef TESTS_SELF_RANKS_H
#define TESTS_SELF_RANKS_H

#include "says.h"

/* NRANKS communicators of a context of their own, in which callers make progress; OPTIONS may be
 * NULL. */
static inline wring_context *self_open(int nranks, const wring_comm_options *options,
                                       wring_comm **comm)
{
    wring_context *context;
    wring_context_options of_context = WRING_CONTEXT_OPTIONS_INIT;
    of_context.transport = "self";
    of_context.caller_progress = true;
    require(wring_context_create(&of_context, &context));
    require(wring_comm_create_local(context, nranks, options, comm));
    return context;
}

static inline void self_close(wring_context *context, int nranks, wring_comm **comm)
{
    for (int r = 0; r < nranks; r++)
        wring_comm_destroy(comm[r]);
    wring_context_destroy(context);
}

#endif
