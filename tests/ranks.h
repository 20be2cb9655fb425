/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as processes that may die: each lives a scenario over UCX and leaves its outcome on a board
 * that all share. The parent, like many a launcher, does not reap before all have ended: who was
 * killed stays a zombie meanwhile. Include after cmocka.h. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <wring/wring.h>

#include "base/clock.h"

#define RANKS_MAX 8
#define DIES 99 /* exit status of a check that failed in a rank */
#define MS 1000000LL

struct outcome {
    _Atomic int done;
    wring_status status;
    char message[600];
    int64_t at_ns;   /* of the error */
    double value[8]; /* what the scenario wants to show */
};

static struct board {
    unsigned char cell[RANKS_MAX][4096];
    _Atomic int arrived[64], round[RANKS_MAX]; /* of the callback to gather with */
    _Atomic int stage[RANKS_MAX];              /* how far each rank is, for the scenario */
    _Atomic int64_t struck_ns;                 /* when the blow fell */
    struct outcome outcome[RANKS_MAX];
    int nranks;
} * board;

/* In a rank's process, where CMocka is not at work. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition,            \
                    wring_error_message());                                                        \
            _exit(DIES);                                                                           \
        }                                                                                          \
    } while (0)

static int board_gather(void *arg, const void *send, void *recv, size_t nbytes)
{
    int rank = *(int *)arg, round = board->round[rank]++;
    if (nbytes > sizeof(board->cell[0]) || round > 0)
        return 1;
    memcpy(board->cell[rank], send, nbytes);
    board->arrived[round]++;
    while (board->arrived[round] < board->nranks)
        usleep(200);
    for (int q = 0; q < board->nranks; q++)
        memcpy((char *)recv + (size_t)q * nbytes, board->cell[q], nbytes);
    return 0;
}

static wring_comm *ranks_join(wring_context *context, int *rank)
{
    wring_comm *comm;
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    options.rank = *rank;
    options.nranks = board->nranks;
    options.allgather = board_gather;
    options.allgather_arg = rank;
    EXPECT(wring_comm_create(context, &options, &comm) == WRING_OK);
    return comm;
}

static inline void note_outcome(int rank, wring_status status)
{
    struct outcome *outcome = &board->outcome[rank];
    outcome->status = status;
    outcome->at_ns = wri_clock_ns();
    snprintf(outcome->message, sizeof(outcome->message), "%s", wring_error_message());
    outcome->done = 1;
}

static inline void strike(int rank, int signal)
{
    board->struck_ns = wri_clock_ns();
    kill(getpid(), signal);
    (void)rank;
}

/* After which a rank counts as hanging. */
static unsigned ranks_seconds = 30;

typedef void (*scenario_fn)(wring_context *context, wring_comm *comm, int rank);

/* Start NRANKS processes in SCENARIO. A scenario that returns lets its rank leave in peace. */
static void ranks_start(int nranks, scenario_fn scenario, pid_t pid[])
{
    memset(board, 0, sizeof(*board));
    board->nranks = nranks;
    for (int q = 0; q < nranks; q++) {
        pid[q] = fork();
        if (pid[q] != 0)
            continue;
        wring_context *context;
        alarm(ranks_seconds);
        EXPECT(wring_context_create(NULL, &context) == WRING_OK);
        wring_comm *comm = ranks_join(context, &q);
        scenario(context, comm, q);
        wring_comm_destroy(comm);
        wring_context_destroy(context);
        _exit(0);
    }
}

/* Wait until all have ended, but for ranks in BEYOND (bits), which are killed then. Nobody is
 * reaped before. A survivor that hangs is killed by its own alarm. */
static void ranks_end(int nranks, const pid_t pid[], unsigned beyond)
{
    int status;
    for (int q = 0; q < nranks; q++)
        if (!(beyond >> q & 1)) {
            siginfo_t info;
            assert_int_equal(waitid(P_PID, (id_t)pid[q], &info, WEXITED | WNOWAIT), 0);
        }
    for (int q = 0; q < nranks; q++) {
        if (beyond >> q & 1)
            kill(pid[q], SIGKILL);
        assert_int_equal(waitpid(pid[q], &status, 0), pid[q]);
        if (!(beyond >> q & 1) && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
            fail_msg("rank %d: %s %d: %s", q, WIFEXITED(status) ? "exit status" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                     board->outcome[q].message);
    }
}

static int board_open(void **state)
{
    (void)state;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setenv("WRING_LOG", "error", 0);
    return board == MAP_FAILED;
}

#endif
