/* SPDX-License-Identifier: Apache-2.0 */
/* Whether there is an InfiniBand or RoCE device that UCX may use: asked before UCX is loaded, and
 * when it is set up. A header, because modules share no code with the library. */
#ifndef WRI_TRANSPORT_RDMA_H
#define WRI_TRANSPORT_RDMA_H

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool wri_rdma_present(void)
{
    const char *wanted = getenv("UCX_NET_DEVICES");
    bool found = false, any = !wanted || strstr(wanted, "all");
    const struct dirent *entry;
    DIR *devices = opendir("/sys/class/infiniband");
    if (!devices)
        return false;
    while ((entry = readdir(devices)))
        found |= entry->d_name[0] != '.' && (any || strstr(wanted, entry->d_name));
    closedir(devices);
    return found;
}

#endif
