/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: one rank dies at a call of its own choosing. LOSE="RANK CALL N MS": rank RANK, at its
 * N-th wring_barrier, wring_allreduce or wring_broadcast, waits MS ms and is killed. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <wring/wring.h>

static void pass(const wring_comm *comm, const char *call)
{
    static int seen, own = -1; /* its rank before any was lost */
    const char *text = getenv("LOSE");
    char name[16];
    int rank, at;
    unsigned ms;
    if (text == NULL || sscanf(text, "%d %15s %d %u", &rank, name, &at, &ms) != 4)
        return;
    if (own < 0)
        own = wring_comm_rank(comm);
    if (own != rank || strcmp(name, call) != 0 || ++seen != at)
        return;
    usleep(1000 * ms);
    raise(SIGKILL);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

wring_status wring_barrier(wring_comm *comm)
{
    pass(comm, "barrier");
    return NEXT(wring_barrier)(comm);
}

wring_status wring_allreduce(wring_comm *comm, const void *send, void *recv, size_t count,
                             wring_dtype dtype, wring_op op)
{
    pass(comm, "allreduce");
    return NEXT(wring_allreduce)(comm, send, recv, count, dtype, op);
}

wring_status wring_broadcast(wring_comm *comm, const void *send, void *recv, size_t count,
                             wring_dtype dtype, int root)
{
    pass(comm, "broadcast");
    return NEXT(wring_broadcast)(comm, send, recv, count, dtype, root);
}
