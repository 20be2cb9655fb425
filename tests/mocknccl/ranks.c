/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how the processes of a test start, what they share, and when they have taken too long. */
#include "ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define RANKS_MAX 8
#define CHILD_S 20

void rank_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: process %d: not %s\n", file, line, (int)getpid(), what);
    _exit(1);
}

void rank_failed_nccl(const char *file, int line, const char *what, ncclResult_t got)
{
    fprintf(stderr, "%s:%d: process %d: %s gives %s: %s\n", file, line, (int)getpid(), what,
            ncclGetErrorString(got), ncclGetLastError(NULL));
    _exit(1);
}

void ranks_run(int nranks, void (*body)(struct rank *self), int killed)
{
    struct rank self = {.nranks = nranks};
    pid_t children[RANKS_MAX];
    char path[160];
    int bad = 0;
    self.flags = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(self.flags, MAP_FAILED);
    assert_int_equal(ncclGetUniqueId(&self.id), ncclSuccess);
    for (self.rank = 0; self.rank < nranks; self.rank++) {
        children[self.rank] = fork();
        assert_true(children[self.rank] >= 0);
        if (children[self.rank] == 0) {
            alarm(CHILD_S);
            body(&self);
            _exit(0);
        }
    }
    for (int rank = 0; rank < nranks; rank++) {
        int status = 0;
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        if (rank == killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0) {
            fprintf(stderr, "rank %d of %d ended with status %#x\n", rank, nranks, status);
            bad++;
        }
    }
    munmap((void *)self.flags, 4096);
    snprintf(path, sizeof(path), "/dev/shm%s", self.id.internal);
    assert_int_equal(bad, 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

void rank_open(struct rank *self)
{
    CHECK(cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking) == cudaSuccess);
    OK(ncclCommInitRank(&self->comm, self->nranks, self->id, self->rank));
}

void rank_close(struct rank *self)
{
    ncclResult_t error;
    OK(ncclCommGetAsyncError(self->comm, &error));
    OK(error);
    OK(ncclCommDestroy(self->comm));
    CHECK(cudaStreamDestroy(self->stream) == cudaSuccess);
}

void sleep_ms(int ms)
{
    struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void rank_await(struct rank *self, int flag, int value)
{
    while (atomic_load(&self->flags[flag]) < value)
        sleep_ms(1);
}

ncclResult_t rank_error(struct rank *self)
{
    ncclResult_t error = ncclSuccess;
    for (double limit = now_s() + 5; error == ncclSuccess; sleep_ms(1)) {
        OK(ncclCommGetAsyncError(self->comm, &error));
        CHECK(now_s() < limit);
    }
    return error;
}

void rank_stream_ends(struct rank *self)
{
    for (double limit = now_s() + 5; cudaStreamQuery(self->stream) != cudaSuccess; sleep_ms(1))
        CHECK(now_s() < limit);
}

void *buffer(size_t nbytes)
{
    void *data = NULL;
    CHECK(cudaMalloc(&data, nbytes) == cudaSuccess);
    return data;
}

static unsigned char pattern(size_t i, unsigned seed)
{
    uint32_t x = ((uint32_t)i + 1) * 2654435761u + seed * 40503u;
    return (unsigned char)(x >> 11 ^ x >> 23);
}

unsigned char *filled(size_t nbytes, unsigned seed)
{
    unsigned char *data = buffer(nbytes);
    for (size_t i = 0; i < nbytes; i++)
        data[i] = pattern(i, seed);
    return data;
}

bool is_filled(const void *data, size_t nbytes, unsigned seed)
{
    for (size_t i = 0; i < nbytes; i++)
        if (((const unsigned char *)data)[i] != pattern(i, seed))
            return false;
    return true;
}
