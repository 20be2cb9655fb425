/* SPDX-License-Identifier: Apache-2.0 */
/* Stream sockets that never block: listen, connect, move bytes as far as the socket goes now. */
#ifndef WRI_TRANSPORT_SOCKET_H
#define WRI_TRANSPORT_SOCKET_H

#include <stddef.h>

#include <wring/wring.h>

#define WRI_SOCKET_NAME_MAX 80 /* text of an address with its port, terminator included */

struct addrinfo;
struct sockaddr;

/* The addresses of HOST (numeric or name), for freeaddrinfo. */
wring_status wri_socket_resolve(const char *host, int port, struct addrinfo **addresses_out);

/* Only this machine reaches the address; all addresses of the host (false if it has none). */
bool wri_socket_address_is_loopback(const struct sockaddr *address);
bool wri_socket_is_loopback(const char *host);

/* Listen on the first address of HOST that can be bound; *PORT 0: any, updated. */
wring_status wri_socket_listen(const char *host, int *port, int *fd_out);

/* A connection that came in; -1: none now. */
int wri_socket_accept(int listen_fd);

/* Start to connect; -1 with errno if that fails at once. Else the socket becomes writable, and the
 * first transfer tells a failure. */
int wri_socket_connect(const struct addrinfo *address);

/* Continue a transfer of NBYTES, *DONE of which have moved; at its end *DONE is 0 again, ready for
 * the next. WRING_AGAIN: later. WRING_E_SYSTEM: the other side is gone, errno says why (0: it
 * closed); there is no message, because the caller may try again. */
wring_status wri_socket_send(int fd, const void *from, size_t nbytes, size_t *done);
wring_status wri_socket_recv(int fd, void *to, size_t nbytes, size_t *done);

/* "10.0.0.1:4711" or "[::1]:4711": the other side; "unknown" if it is gone. Returns TEXT. */
const char *wri_socket_peer(int fd, char text[WRI_SOCKET_NAME_MAX]);

#endif
