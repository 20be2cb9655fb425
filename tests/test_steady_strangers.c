/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers at a communicator that works: its control path listens as long as it lives. They join
 * nothing, the job goes on, and they cost next to nothing. */
#include "group.h"

#include <errno.h>
#include <sys/resource.h>

#include "ranks.h"

#include "collective/comm.h"
#include "collective/control_state.h"

#define FORGED (getenv("WRING_TEST_SMALL") ? 500 : 10000)
#define STRANGERS 1000
#define NONCE_NBYTES 8
enum { RESIDENT_BEFORE, RESIDENT_AFTER, SUMS }; /* values of a rank's outcome */

static double resident_nbytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT(file != NULL && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Sum until the parent says stop: rank 0 passes that on with its data. */
static void sum_until_told(wring_context *context, wring_comm *comm, int rank)
{
    struct outcome *outcome = &board->outcome[rank];
    float data[1000];
    (void)context;
    for (bool stop = false; !stop; outcome->value[SUMS]++) {
        if (outcome->value[SUMS] == 200) {
            outcome->value[RESIDENT_BEFORE] = resident_nbytes();
            memcpy(board->cell[rank], &comm->control->nonce, NONCE_NBYTES);
            board->stage[rank] = comm->control->port;
        }
        for (int k = 0; k < 1000; k++)
            data[k] = (float)(rank + k);
        data[0] = (float)(rank == 0 && board->stage[RANKS_MAX - 1]);
        EXPECT(wring_allreduce(comm, data, data, 1000, WRING_FLOAT32, WRING_SUM) == WRING_OK);
        for (int k = 1; k < 1000; k++)
            EXPECT(data[k] == (float)(3 + 3 * k));
        stop = data[0] != 0;
    }
    outcome->value[RESIDENT_AFTER] = resident_nbytes();
}

/* Until the other side hangs up. */
static void wait_until_dropped(int fd)
{
    char answer[256];
    int64_t end = wri_clock_ns() + 10 * 1000000000LL;
    ssize_t got;
    do
        got = recv(fd, answer, sizeof answer, 0);
    while ((got > 0 || (got < 0 && errno == EAGAIN)) && wri_clock_ns() < end);
    assert_true(wri_clock_ns() < end);
    close(fd);
}

/* A greeting, a guessed proof and a hello that fits; such a hello without either; garbage. */
static void forge_a_hello(int port, int kind)
{
    struct wri_secret secret = secret_of("not the secret of the job");
    unsigned char message[WRI_AUTH_GREETING_NBYTES + WRI_AUTH_PROOF_NBYTES +
                          sizeof(struct wri_message) + NONCE_NBYTES + 1];
    struct wri_message hello = {
        .magic = 0x6c727463u, .type = WRI_MESSAGE_HELLO, .nbytes = NONCE_NBYTES + 1, .rank = 1};
    struct wri_auth auth;
    size_t at = 0;
    int fd = knock(port);
    memset(message, kind, sizeof message);
    if (kind % 3 == 0) {
        wri_auth_init(&auth, &secret, false);
        memcpy(message, auth.greeting[0], WRI_AUTH_GREETING_NBYTES);
        at = WRI_AUTH_GREETING_NBYTES + WRI_AUTH_PROOF_NBYTES;
    }
    if (kind % 3 != 2) { /* its rank is known, and even the nonce was overheard */
        memcpy(message + at, &hello, sizeof hello);
        memcpy(message + at + sizeof hello, board->cell[0], NONCE_NBYTES);
        message[at + sizeof hello + NONCE_NBYTES] = 0;
    }
    assert_int_equal(send(fd, message, sizeof message, MSG_NOSIGNAL), sizeof message);
    wait_until_dropped(fd);
}

static void strangers_do_not_disturb_a_communicator(void **state)
{
    static int fds[STRANGERS];
    struct rlimit limit;
    pid_t pid[RANKS_MAX];
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < STRANGERS + 100) {
        limit.rlim_cur = limit.rlim_max;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
    setenv("WRING_SECRET", SECRET, 1);
    ranks_start(3, sum_until_told, pid);
    for (int q = 0; q < 3; q++)
        while (board->stage[q] == 0)
            usleep(1000);
    for (int n = 0; n < STRANGERS; n++) {
        fds[n] = knock(board->stage[0]);
        if (n % 3 == 1)
            (void)send(fds[n], "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL);
    }
    for (int n = 0; n < FORGED; n++)
        forge_a_hello(board->stage[0], n);
    double sums = board->outcome[0].value[SUMS];
    usleep(100000);
    assert_true(board->outcome[0].value[SUMS] > sums);
    board->stage[RANKS_MAX - 1] = 1;
    ranks_end(3, pid, 0);
    for (int q = 0; q < 3; q++) {
        const double *value = board->outcome[q].value;
        bool sanitized = getenv("WRING_TEST_SMALL") != NULL; /* it keeps what was freed */
        if (!sanitized && value[RESIDENT_AFTER] > value[RESIDENT_BEFORE] + (1 << 20))
            fail_msg("rank %d grew from %.0f to %.0f bytes", q, value[RESIDENT_BEFORE],
                     value[RESIDENT_AFTER]);
    }
    for (int n = 0; n < STRANGERS; n++)
        close(fds[n]);
    unsetenv("WRING_SECRET");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_do_not_disturb_a_communicator),
    };
    return cmocka_run_group_tests_name("steady strangers", tests, board_open, NULL);
}
