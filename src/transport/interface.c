/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of this host; see interface.h. */
#include "transport/interface.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/status.h"
#include "transport/socket.h"

static bool write_address(const struct sockaddr *from, socklen_t length, char *address,
                          size_t nbytes)
{
    return getnameinfo(from, length, address, (socklen_t)nbytes, NULL, 0, NI_NUMERICHOST) == 0;
}

/* Connecting a datagram socket looks up the route and sends nothing. */
wring_status wri_interface_towards(const char *host, int port, char *address, size_t nbytes)
{
    struct addrinfo *found;
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    bool done = false;
    WRI_TRY(wri_socket_resolve(host, port, &found));
    for (const struct addrinfo *a = found; a && !done; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        length = sizeof own;
        done = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
               getsockname(fd, (struct sockaddr *)&own, &length) == 0 &&
               write_address((struct sockaddr *)&own, length, address, nbytes);
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(found);
    if (!done)
        WRI_FAIL(WRING_E_SYSTEM, "no way to %s port %d: %s", host, port, strerror(errno));
    return WRING_OK;
}

static socklen_t length_of(const struct sockaddr *address)
{
    return address == NULL                  ? 0
           : address->sa_family == AF_INET  ? sizeof(struct sockaddr_in)
           : address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                            : 0;
}

/* IPv4 first: link-local IPv6 addresses mean nothing on another host. */
static bool find(const struct ifaddrs *list, const char *name, int family, char *address,
                 size_t nbytes)
{
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        char text[64];
        if (length_of(i->ifa_addr) == 0 || i->ifa_addr->sa_family != family ||
            !(i->ifa_flags & IFF_UP) ||
            !write_address(i->ifa_addr, length_of(i->ifa_addr), text, sizeof text) ||
            strchr(text, '%'))
            continue;
        if (name[0] ? strcmp(name, i->ifa_name) != 0 && strcmp(name, text) != 0
                    : (i->ifa_flags & IFF_LOOPBACK) != 0)
            continue;
        snprintf(address, nbytes, "%s", text);
        return true;
    }
    return false;
}

wring_status wri_interface_address(const char *name, char *address, size_t nbytes)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        WRI_FAIL(WRING_E_SYSTEM, "cannot list network interfaces: %s", strerror(errno));
    bool found =
        find(list, name, AF_INET, address, nbytes) || find(list, name, AF_INET6, address, nbytes);
    freeifaddrs(list);
    if (!found && name[0])
        WRI_FAIL(WRING_E_CONFIG,
                 "WRING_INTERFACE=%s: no interface that is up has that name or "
                 "address",
                 name);
    if (!found)
        snprintf(address, nbytes, "127.0.0.1");
    return WRING_OK;
}
