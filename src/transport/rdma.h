/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this machine has InfiniBand or RoCE devices: asked before UCX is loaded, and when it is
 * set up. A header, because modules share no code with the library. */
#ifndef WRI_TRANSPORT_RDMA_H
#define WRI_TRANSPORT_RDMA_H

#include <dirent.h>
#include <stdbool.h>

static inline bool wri_rdma_present(void)
{
    int entries = 0;
    DIR *devices = opendir("/sys/class/infiniband");
    if (!devices)
        return false;
    while (readdir(devices))
        entries++;
    closedir(devices);
    return entries > 2; /* more than "." and ".." */
}

#endif
