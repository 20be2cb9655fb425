/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded library that makes the system unkind. Environment:
 *
 *   FAULT_SHORT=SEED   the program's stream sockets move 1 to 7 bytes a call, a call in eight ends
 *                      with EINTR, and a signal (SIGALRM, handler without SA_RESTART) comes every
 *                      millisecond, to whichever thread. Not sockets of other libraries: UCX 1.13
 *                      gives up a connection whose first message comes in parts, and fails an
 *                      assertion over a later one
 *   FAULT_NTH=KIND:N   the N-th call of a KIND (alloc, socket, file) that the program itself makes
 *                      fails; not those of other libraries, whose faults are not ours
 *
 * At the end "shim: fired in CALL" or "shim: not reached", and "shim: N leaked" with what the
 * program itself allocated and did not free, go to standard error.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

void *__libc_malloc(size_t nbytes);
void *__libc_calloc(size_t n, size_t nbytes);
void *__libc_realloc(void *old, size_t nbytes);
void *__libc_memalign(size_t alignment, size_t nbytes);
void __libc_free(void *pointer);

enum kind { ALLOC, SOCKET, FILES, KINDS };
static const char *const kind_name[KINDS] = {"alloc", "socket", "file"};

static uintptr_t program_low, program_high;
static enum kind fault_kind = KINDS;
static atomic_long countdown;
static const char *fired;
static bool is_short;
static atomic_ullong seed;
static int live; /* allocations of the program */

/* ---- whose call, and does it fail? ----------------------------------------------------------- */

/* Before destructors run: in preset `coverage` one of the program's writes what gcov counted. */
static void end(void)
{
    if (fault_kind == KINDS)
        return;
    fault_kind = KINDS;
    if (fired != NULL)
        fprintf(stderr, "shim: fired in %s\n", fired);
    else
        fprintf(stderr, "shim: not reached\n");
    fprintf(stderr, "shim: %d leaked\n", live);
}

static void plan_end(void)
{
    atexit(end);
}

static bool by_program(const void *caller)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool by = (uintptr_t)caller >= program_low && (uintptr_t)caller < program_high;
    if (by)
        pthread_once(&once, plan_end); /* later than the loader's own, so it is called earlier */
    return by;
}

static bool fails(enum kind kind, const void *caller, const char *call, int error)
{
    if (kind != fault_kind || !by_program(caller) || atomic_fetch_sub(&countdown, 1) != 1)
        return false;
    fired = call;
    errno = error;
    return true;
}

#define FAILS(kind, error) fails(kind, __builtin_return_address(0), __func__, error)

static uint64_t draw(void)
{
    uint64_t x = atomic_fetch_add(&seed, 0x9E3779B97F4A7C15u);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* ---- allocations ----------------------------------------------------------------------------- */

#define TABLE (1u << 16)
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static void *table[TABLE]; /* by hash, the next free place: never more than a few thousand */

static void note(void *pointer)
{
    pthread_mutex_lock(&table_lock);
    for (size_t i = (uintptr_t)pointer / 16 % TABLE, n = 0; n < TABLE; n++, i = (i + 1) % TABLE)
        if (table[i] == NULL) {
            table[i] = pointer;
            live++;
            break;
        }
    pthread_mutex_unlock(&table_lock);
}

/* A place that is freed becomes free only for lookups that run past it: hence a scan of the run. */
static void forget(void *pointer)
{
    if (pointer == NULL || fault_kind == KINDS)
        return;
    pthread_mutex_lock(&table_lock);
    for (size_t i = (uintptr_t)pointer / 16 % TABLE, n = 0; n < 4096; n++, i = (i + 1) % TABLE)
        if (table[i] == pointer) {
            table[i] = NULL;
            live--;
            break;
        }
    pthread_mutex_unlock(&table_lock);
}

static void *noted(void *pointer, const void *caller)
{
    if (pointer != NULL && fault_kind != KINDS && by_program(caller))
        note(pointer);
    return pointer;
}

#define NOTED(pointer) noted(pointer, __builtin_return_address(0))

void *malloc(size_t nbytes)
{
    return FAILS(ALLOC, ENOMEM) ? NULL : NOTED(__libc_malloc(nbytes));
}

void *calloc(size_t n, size_t nbytes)
{
    return FAILS(ALLOC, ENOMEM) ? NULL : NOTED(__libc_calloc(n, nbytes));
}

void *realloc(void *old, size_t nbytes)
{
    if (FAILS(ALLOC, ENOMEM))
        return NULL;
    forget(old);
    return NOTED(__libc_realloc(old, nbytes));
}

void *aligned_alloc(size_t alignment, size_t nbytes)
{
    return FAILS(ALLOC, ENOMEM) ? NULL : NOTED(__libc_memalign(alignment, nbytes));
}

int posix_memalign(void **out, size_t alignment, size_t nbytes)
{
    if (FAILS(ALLOC, ENOMEM))
        return ENOMEM;
    *out = NOTED(__libc_memalign(alignment, nbytes));
    return *out ? 0 : ENOMEM;
}

void free(void *pointer)
{
    forget(pointer);
    __libc_free(pointer);
}

/* ---- sockets and files ----------------------------------------------------------------------- */

#define NEXT(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next)                                                                                     \
    next = dlsym(RTLD_NEXT, #name)

/* How much of NBYTES a call on FD moves now; 0: it is interrupted instead. */
static size_t allowed(int fd, size_t nbytes, const void *caller)
{
    int type = 0;
    socklen_t size = sizeof(type);
    if (!is_short || nbytes == 0 || !by_program(caller) ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
        return nbytes;
    uint64_t x = draw();
    size_t limit = 1 + x / 8 % 7;
    return x % 8 == 0 ? 0 : nbytes < limit ? nbytes : limit;
}

/* The shape of all calls that move bytes. */
#define MOVE(kind, error, fd, nbytes, call)                                                        \
    size_t now = allowed(fd, nbytes, __builtin_return_address(0));                                 \
    if (FAILS(kind, error))                                                                        \
        return -1;                                                                                 \
    if (now == 0 && (nbytes) > 0) {                                                                \
        errno = EINTR;                                                                             \
        return -1;                                                                                 \
    }                                                                                              \
    return call

ssize_t send(int fd, const void *data, size_t nbytes, int flags)
{
    NEXT(send);
    MOVE(SOCKET, ECONNRESET, fd, nbytes, next(fd, data, now, flags));
}

ssize_t recv(int fd, void *data, size_t nbytes, int flags)
{
    NEXT(recv);
    MOVE(SOCKET, ECONNRESET, fd, nbytes, next(fd, data, now, flags));
}

ssize_t read(int fd, void *data, size_t nbytes)
{
    NEXT(read);
    MOVE(FILES, EIO, fd, nbytes, next(fd, data, now));
}

ssize_t write(int fd, const void *data, size_t nbytes)
{
    NEXT(write);
    MOVE(FILES, EIO, fd, nbytes, next(fd, data, now));
}

/* Only the first part of a list is moved. */
static struct msghdr shortened(const struct msghdr *message, struct iovec *part, size_t *nbytes)
{
    struct msghdr copy = *message;
    *nbytes = 0;
    for (size_t i = 0; i < message->msg_iovlen && *nbytes == 0; i++) {
        *part = message->msg_iov[i];
        *nbytes = part->iov_len;
    }
    if (is_short && *nbytes > 0) {
        copy.msg_iov = part;
        copy.msg_iovlen = 1;
    }
    return copy;
}

#define MOVE_MESSAGE(name, fd, message, flags)                                                     \
    NEXT(name);                                                                                    \
    struct iovec part;                                                                             \
    size_t nbytes, now;                                                                            \
    struct msghdr copy = shortened(message, &part, &nbytes);                                       \
    if (FAILS(SOCKET, ECONNRESET))                                                                 \
        return -1;                                                                                 \
    now = allowed(fd, nbytes, __builtin_return_address(0));                                        \
    if (now == nbytes)                                                                             \
        return next(fd, message, flags);                                                           \
    if (now == 0) {                                                                                \
        errno = EINTR;                                                                             \
        return -1;                                                                                 \
    }                                                                                              \
    part.iov_len = now;                                                                            \
    ssize_t moved = next(fd, &copy, flags);                                                        \
    return moved

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    MOVE_MESSAGE(sendmsg, fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    MOVE_MESSAGE(recvmsg, fd, message, flags);
}

int socket(int domain, int type, int protocol)
{
    NEXT(socket);
    return FAILS(SOCKET, EMFILE) ? -1 : next(domain, type, protocol);
}

int connect(int fd, const struct sockaddr *address, socklen_t nbytes)
{
    NEXT(connect);
    return FAILS(SOCKET, ENETUNREACH) ? -1 : next(fd, address, nbytes);
}

int bind(int fd, const struct sockaddr *address, socklen_t nbytes)
{
    NEXT(bind);
    return FAILS(SOCKET, EADDRNOTAVAIL) ? -1 : next(fd, address, nbytes);
}

int listen(int fd, int backlog)
{
    NEXT(listen);
    return FAILS(SOCKET, EADDRINUSE) ? -1 : next(fd, backlog);
}

int accept4(int fd, struct sockaddr *address, socklen_t *nbytes, int flags)
{
    NEXT(accept4);
    return FAILS(SOCKET, EMFILE) ? -1 : next(fd, address, nbytes, flags);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t nbytes)
{
    NEXT(setsockopt);
    return FAILS(SOCKET, ENOBUFS) ? -1 : next(fd, level, name, value, nbytes);
}

int getsockname(int fd, struct sockaddr *address, socklen_t *nbytes)
{
    NEXT(getsockname);
    return FAILS(SOCKET, ENOBUFS) ? -1 : next(fd, address, nbytes);
}

int open(const char *path, int flags, ...)
{
    NEXT(open);
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    return FAILS(FILES, EMFILE) ? -1 : next(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen);
    return FAILS(FILES, EMFILE) ? NULL : next(path, mode);
}

DIR *opendir(const char *path)
{
    NEXT(opendir);
    return FAILS(FILES, EMFILE) ? NULL : next(path);
}

int eventfd(unsigned first, int flags)
{
    NEXT(eventfd);
    return FAILS(FILES, EMFILE) ? -1 : next(first, flags);
}

ssize_t getrandom(void *data, size_t nbytes, unsigned flags)
{
    NEXT(getrandom);
    return FAILS(FILES, EIO) ? -1 : next(data, nbytes, flags);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *arg)
{
    NEXT(pthread_create);
    return FAILS(ALLOC, EAGAIN) ? EAGAIN : next(thread, attributes, run, arg);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int note_program(struct dl_phdr_info *info, size_t nbytes, void *arg)
{
    (void)nbytes;
    (void)arg;
    program_low = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        program_low = low < program_low ? low : program_low;
        program_high = low + info->dlpi_phdr[i].p_memsz;
    }
    return 1; /* the program is the first */
}

static void on_signal(int number)
{
    (void)number;
}

__attribute__((constructor)) static void begin(void)
{
    const char *nth = getenv("FAULT_NTH"), *short_seed = getenv("FAULT_SHORT");
    char name[16];
    long n;
    dl_iterate_phdr(note_program, NULL);
    if (short_seed != NULL) {
        struct sigaction action = {.sa_handler = on_signal};
        struct itimerval timer = {{0, 1000}, {0, 1000}};
        seed = strtoull(short_seed, NULL, 10);
        is_short = true;
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &timer, NULL);
    }
    if (nth == NULL || sscanf(nth, "%15[a-z]:%ld", name, &n) != 2)
        return;
    countdown = n;
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(kind_name[kind], name) == 0)
            fault_kind = (enum kind)kind;
}
