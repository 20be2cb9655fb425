/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a test on a device, each a process of its own that opens the device itself, since that
 * has threads. */
#ifndef TESTS_DEVICE_RANKS_H
#define TESTS_DEVICE_RANKS_H

#include "scene.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct wri_device *device; /* opened in children only */
static const char *transport = "nccl";

/* A port that was free a moment ago. */
static inline int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static inline void become_rank(int rank, int nranks, int port)
{
    char text[64];
    snprintf(text, sizeof(text), "%d", rank);
    setenv("WRING_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", nranks);
    setenv("WRING_SIZE", text, 1);
    snprintf(text, sizeof(text), "127.0.0.1:%d", port);
    setenv("WRING_ROOT", text, 1);
    ok(wri_device_find("cuda", getenv("WRING_MODULES"), &device));
    ok(device->stream_open(&there_stream));
    there = device;
}

#define SOME_ERROR (-1)

/* Run ACT on NRANKS ranks; each must return its EXPECT (0 for all if NULL). */
static inline void run_ranks(int nranks, int (*act)(int rank, void *arg), void *arg,
                             const int *expect)
{
    pid_t pid[RANKS_MAX];
    int port = free_port();
    fflush(NULL);
    for (int q = 0; q < nranks; q++) {
        pid[q] = fork();
        assert_true(pid[q] >= 0);
        if (pid[q] == 0) {
            become_rank(q, nranks, port);
            int result = act(q, arg);
            fflush(NULL);
            _exit(result);
        }
    }
    bool good = true;
    for (int q = 0; q < nranks; q++) {
        int status = 0;
        assert_int_equal(waitpid(pid[q], &status, 0), pid[q]);
        int result = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        int expected = expect ? expect[q] : 0;
        if (expected == SOME_ERROR ? result == 0 || result >= 50 : result != expected) {
            printf("rank %d of %d ended with %d\n", q, nranks, result);
            good = false;
        }
    }
    assert_true(good);
}

static inline wring_context *open_context(void)
{
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    wring_context *context;
    options.transport = transport;
    ok(wring_context_create(&options, &context));
    return context;
}

/* Calls that keep state. */
static const struct scene chained = {.nranks = 2,
                                     .kind = WRING_ALLREDUCE,
                                     .op = WRING_AVG,
                                     .spec = "ef+int4",
                                     .algorithm = "direct",
                                     .piece = "0",
                                     .count = {3000, 129}};

/* ---- a communicator of the caller's ---------------------------------------------------------- */

typedef struct {
    char internal[128];
} nccl_id;

/* What ranks of a test share. */
struct shared {
    nccl_id id;
    int ready;
};

static inline struct shared *shared_open(void)
{
    return mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0);
}

struct callers {
    void *comm;
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    int (*count)(void *comm, int *count);
};

/* An ncclComm_t of two ranks that wring knows nothing of. */
static inline struct callers callers_open(int rank, struct shared *shared)
{
    struct callers nccl = {0};
    void *library = dlopen(getenv("WRING_NCCL"), RTLD_NOW);
    int (*make_id)(nccl_id *) = dlsym(library, "ncclGetUniqueId");
    int (*init)(void **, int, nccl_id, int) = dlsym(library, "ncclCommInitRank");
    nccl.destroy = dlsym(library, "ncclCommDestroy");
    nccl.abort = dlsym(library, "ncclCommAbort");
    nccl.count = dlsym(library, "ncclCommCount");
    if (rank == 0 && make_id(&shared->id) == 0)
        __atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE))
        usleep(1000);
    if (init(&nccl.comm, 2, shared->id, rank) != 0)
        _exit(70);
    return nccl;
}

#endif
