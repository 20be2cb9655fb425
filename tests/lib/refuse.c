/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in front of the system's calls by the linker's --wrap; see refuse.h. */
#include "refuse.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *refused_call = "", *first_host;
static int good, bad, refused_error, nrefused;

void refuse(const char *call, int skip, int times, int error)
{
    pthread_mutex_lock(&lock);
    refused_call = call;
    good = skip;
    bad = times;
    refused_error = error;
    nrefused = 0;
    pthread_mutex_unlock(&lock);
}

bool was_refused(void)
{
    bool yes = nrefused > 0;
    refuse("", 0, 0, 0);
    return yes;
}

void resolve_first_to(const char *host)
{
    first_host = host;
}

static bool refuses(const char *call)
{
    bool yes = false;
    pthread_mutex_lock(&lock);
    if (strcmp(call, refused_call) == 0 && bad > 0 && good-- <= 0) {
        bad--;
        nrefused++;
        errno = refused_error;
        yes = true;
    }
    pthread_mutex_unlock(&lock);
    return yes;
}

#define IN_FRONT_OF(type, name, parameters, arguments)                                             \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return refuses(#name) ? -1 : __real_##name arguments;                                      \
    }

IN_FRONT_OF(ssize_t, read, (int fd, void *to, size_t nbytes), (fd, to, nbytes))
IN_FRONT_OF(ssize_t, send, (int fd, const void *from, size_t nbytes, int flags),
            (fd, from, nbytes, flags))
IN_FRONT_OF(ssize_t, recv, (int fd, void *to, size_t nbytes, int flags), (fd, to, nbytes, flags))
IN_FRONT_OF(int, poll, (struct pollfd * polls, nfds_t n, int ms), (polls, n, ms))
IN_FRONT_OF(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
IN_FRONT_OF(int, connect, (int fd, const struct sockaddr *at, socklen_t nbytes), (fd, at, nbytes))
IN_FRONT_OF(int, listen, (int fd, int backlog), (fd, backlog))
IN_FRONT_OF(int, getsockname, (int fd, struct sockaddr *at, socklen_t *nbytes), (fd, at, nbytes))
IN_FRONT_OF(int, getpeername, (int fd, struct sockaddr *at, socklen_t *nbytes), (fd, at, nbytes))
IN_FRONT_OF(int, sodium_init, (void), ())
IN_FRONT_OF(int, epoll_create1, (int flags), (flags))
IN_FRONT_OF(int, epoll_ctl, (int set, int op, int fd, struct epoll_event *event),
            (set, op, fd, event))
IN_FRONT_OF(int, pthread_create,
            (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
            (thread, attributes, run, arg))
IN_FRONT_OF(ssize_t, getrandom, (void *to, size_t nbytes, unsigned flags), (to, nbytes, flags))

FILE *__real_fopen(const char *, const char *);
FILE *__wrap_fopen(const char *, const char *);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return refuses("fopen") ? NULL : __real_fopen(path, mode);
}

int __real_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int __wrap_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    struct addrinfo *own;
    if (refuses("getaddrinfo"))
        return EAI_MEMORY;
    if (first_host == NULL)
        return __real_getaddrinfo(host, service, hints, out);
    int error = __real_getaddrinfo(host, service, hints, &own);
    if (error == 0)
        error = __real_getaddrinfo(first_host, service, hints, out);
    if (error == 0)
        (*out)->ai_next = own;
    return error;
}
