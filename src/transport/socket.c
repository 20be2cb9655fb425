/* SPDX-License-Identifier: Apache-2.0 */
/* Stream sockets that never block; see socket.h. */
#include "transport/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/status.h"

static wring_status resolve(const char *host, int port, int flags, struct addrinfo **addresses_out)
{
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &hints, addresses_out);
    if (error)
        WRI_FAIL(WRING_E_SYSTEM, "no address for host '%s': %s", host, gai_strerror(error));
    return WRING_OK;
}

wring_status wri_socket_resolve(const char *host, int port, struct addrinfo **addresses_out)
{
    return resolve(host, port, 0, addresses_out);
}

bool wri_socket_address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return address->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127));
}

bool wri_socket_is_loopback(const char *host)
{
    struct addrinfo *addresses;
    bool all = true;
    if (wri_socket_resolve(host, 0, &addresses) != WRING_OK)
        return false;
    for (const struct addrinfo *a = addresses; a; a = a->ai_next)
        all = all && wri_socket_address_is_loopback(a->ai_addr);
    freeaddrinfo(addresses);
    return all;
}

static int open_socket(const struct addrinfo *address)
{
    return socket(address->ai_family, address->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int close_keeping_errno(int fd)
{
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* -1 with errno if ADDRESS cannot be listened on. */
static int listen_on(const struct addrinfo *address)
{
    int one = 1;
    int fd = open_socket(address);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    return close_keeping_errno(fd);
}

static int bound_port(int fd)
{
    struct sockaddr_storage address;
    socklen_t nbytes = sizeof address;
    char service[16] = "0";
    int port = 0;
    if (getsockname(fd, (struct sockaddr *)&address, &nbytes) == 0)
        getnameinfo((struct sockaddr *)&address, nbytes, NULL, 0, service, sizeof service,
                    NI_NUMERICSERV);
    sscanf(service, "%d", &port);
    return port;
}

wring_status wri_socket_listen(const char *host, int *port, int *fd_out)
{
    struct addrinfo *addresses = NULL;
    int fd = -1;
    WRI_TRY(resolve(host, *port, AI_PASSIVE, &addresses));
    for (const struct addrinfo *a = addresses; a && fd < 0; a = a->ai_next)
        fd = listen_on(a);
    int error = errno;
    freeaddrinfo(addresses);
    if (fd < 0)
        WRI_FAIL(WRING_E_SYSTEM, "cannot listen on %s port %d: %s", host, *port, strerror(error));
    *port = bound_port(fd);
    *fd_out = fd;
    return WRING_OK;
}

int wri_socket_accept(int listen_fd)
{
    return accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

int wri_socket_connect(const struct addrinfo *address)
{
    int fd = open_socket(address);
    if (fd < 0)
        return -1;
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0 && errno != EINPROGRESS)
        return close_keeping_errno(fd);
    return fd;
}

/* What a call on a socket that moved MOVED bytes means: OK, go on; else as in socket.h. */
static wring_status judge(ssize_t moved)
{
    if (moved > 0 || (moved < 0 && errno == EINTR))
        return WRING_OK;
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return WRING_AGAIN;
    errno = moved == 0 ? 0 : errno;
    return WRING_E_SYSTEM;
}

wring_status wri_socket_send(int fd, const void *from, size_t nbytes, size_t *done)
{
    while (*done < nbytes) {
        ssize_t moved = send(fd, (const unsigned char *)from + *done, nbytes - *done, MSG_NOSIGNAL);
        WRI_TRY(judge(moved));
        *done += moved > 0 ? (size_t)moved : 0;
    }
    *done = 0;
    return WRING_OK;
}

wring_status wri_socket_recv(int fd, void *to, size_t nbytes, size_t *done)
{
    while (*done < nbytes) {
        ssize_t moved = recv(fd, (unsigned char *)to + *done, nbytes - *done, 0);
        WRI_TRY(judge(moved));
        *done += moved > 0 ? (size_t)moved : 0;
    }
    *done = 0;
    return WRING_OK;
}

const char *wri_socket_peer(int fd, char text[WRI_SOCKET_NAME_MAX])
{
    struct sockaddr_storage address;
    socklen_t nbytes = sizeof address;
    char host[WRI_SOCKET_NAME_MAX - 16], service[8];
    if (getpeername(fd, (struct sockaddr *)&address, &nbytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, nbytes, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, WRI_SOCKET_NAME_MAX, "unknown");
    else
        snprintf(text, WRI_SOCKET_NAME_MAX, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, service);
    return text;
}
