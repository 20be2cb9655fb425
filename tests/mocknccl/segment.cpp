/* SPDX-License-Identifier: Apache-2.0 */
/* Decides where ranks meet: a segment of shared memory that whoever comes first creates, and that
 * has no name any more once all are there; and how they wake each other. */
#include "mocknccl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <chrono>

#define POLL_MS 20

static ncclResult_t system_error(const std::string &what)
{
    return last_error(ncclSystemError, what + ": " + strerror(errno));
}

static segment *segment_open(const char *name)
{
    int file = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0)
        return nullptr;
    void *memory = MAP_FAILED;
    /* Pages that nobody uses cost nothing. */
    if (ftruncate(file, sizeof(segment)) == 0)
        memory = mmap(nullptr, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int error = errno;
    close(file);
    errno = error;
    return memory == MAP_FAILED ? nullptr : (segment *)memory;
}

void segment_close(segment *shared)
{
    munmap(shared, sizeof(segment));
}

void seat_ring(seat &seat)
{
    seat.bell++;
    if (seat.sleepers > 0)
        syscall(SYS_futex, &seat.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool seat_sleep(seat &seat, uint32_t seen, int ms)
{
    struct timespec limit = {ms / 1000, (long)(ms % 1000) * 1000000};
    seat.sleepers++;
    long rc = syscall(SYS_futex, &seat.bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
    bool late = rc != 0 && errno == ETIMEDOUT;
    seat.sleepers--;
    return !late;
}

/* A process that nobody has waited for yet still has its number, but is a zombie. */
bool seat_dead(const seat &seat)
{
    int pid = seat.pid;
    if (pid == getpid())
        return false;
    if (kill(pid, 0) != 0)
        return errno == ESRCH;
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && strlen(name_end) > 2 && (name_end[2] == 'Z' || name_end[2] == 'X');
}

static ncclResult_t sit_down(ncclComm &comm, segment &shared)
{
    uint32_t none = 0, empty = SEAT_EMPTY;
    if (!shared.nranks.compare_exchange_strong(none, (uint32_t)comm.nranks) &&
        none != (uint32_t)comm.nranks)
        return last_error(ncclInvalidArgument,
                          "other ranks know another number of ranks: " + std::to_string(none));
    seat &own = shared.seats[comm.rank];
    if (!own.state.compare_exchange_strong(empty, SEAT_TAKEN))
        return last_error(ncclInvalidUsage,
                          "rank " + std::to_string(comm.rank) + " is there twice");
    own.pid = getpid();
    if (++shared.attached == (uint32_t)comm.nranks)
        shm_unlink(comm.name.c_str());
    for (int rank = 0; rank < comm.nranks; rank++)
        seat_ring(shared.seats[rank]);
    return ncclSuccess;
}

/* A rank that was there and is not any more, or -1. */
static int deserter(const ncclComm &comm, const segment &shared)
{
    for (int rank = 0; rank < comm.nranks; rank++) {
        const seat &seat = shared.seats[rank];
        bool dead = seat.state == SEAT_TAKEN && seat.pid != 0 && seat_dead(seat);
        if (rank != comm.rank && (dead || seat.state > SEAT_TAKEN))
            return rank;
    }
    return -1;
}

static ncclResult_t wait_for_all(ncclComm &comm, segment &shared)
{
    auto limit = std::chrono::steady_clock::now() +
                 std::chrono::milliseconds(setting("MOCKNCCL_TIMEOUT_MS", 60000));
    for (;;) {
        uint32_t seen = shared.seats[comm.rank].bell;
        if (shared.attached == (uint32_t)comm.nranks)
            return ncclSuccess;
        if (comm.aborted)
            return last_error(ncclInternalError, "aborted");
        int lost = deserter(comm, shared);
        if (lost >= 0 && shared.attached < (uint32_t)comm.nranks)
            return last_error(ncclRemoteError, "rank " + std::to_string(lost) + " went away");
        if (std::chrono::steady_clock::now() > limit)
            return last_error(ncclSystemError, std::to_string(shared.attached) + " of " +
                                                   std::to_string(comm.nranks) + " ranks came");
        seat_sleep(shared.seats[comm.rank], seen, POLL_MS);
    }
}

ncclResult_t segment_join(ncclComm &comm)
{
    segment *shared = segment_open(comm.name.c_str());
    if (!shared)
        return system_error(comm.name);
    ncclResult_t result = sit_down(comm, *shared);
    if (result != ncclSuccess) {
        segment_close(shared);
        return result;
    }
    {
        std::lock_guard<std::mutex> lock(comm.lock);
        comm.shared = shared;
    }
    uint64_t fault = setting("MOCKNCCL_JOIN", 0);
    result =
        fault ? last_error((ncclResult_t)fault, "injected: joining") : wait_for_all(comm, *shared);
    if (result != ncclSuccess) {
        shared->seats[comm.rank].state = SEAT_ABORTED;
        shm_unlink(comm.name.c_str());
    }
    return result;
}
