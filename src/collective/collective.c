/* SPDX-License-Identifier: Apache-2.0 */
/* The table of algorithms, made from collectives.def. */
#include "collective/collective.h"

#include <string.h>

#define WRING_COLLECTIVE(name) extern const struct wring_collective_ops wri_collective_##name;
#include "collective/collectives.def"
#undef WRING_COLLECTIVE

static const struct wring_collective_ops *const table[] = {
#define WRING_COLLECTIVE(name) &wri_collective_##name,
#include "collective/collectives.def"
#undef WRING_COLLECTIVE
};

const struct wring_collective_ops *wri_collective_at(size_t index)
{
    return index < sizeof(table) / sizeof(table[0]) ? table[index] : NULL;
}

const struct wring_collective_ops *wri_collective_find(const char *name)
{
    const struct wring_collective_ops *ops;
    for (size_t i = 0; (ops = wri_collective_at(i)) != NULL; i++)
        if (strcmp(ops->name, name) == 0)
            return ops;
    return NULL;
}

const char *wri_kind_name(wring_kind kind)
{
    static const char *const names[WRING_KIND_COUNT] = {"allreduce", "reduce_scatter", "allgather",
                                                        "broadcast", "barrier"};
    return (unsigned)kind < WRING_KIND_COUNT ? names[kind] : "?";
}

const char *wri_op_name(wring_op op)
{
    static const char *const names[WRING_OP_COUNT] = {"sum", "avg", "min", "max"};
    return (unsigned)op < WRING_OP_COUNT ? names[op] : "?";
}
