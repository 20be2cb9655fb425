/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways to find each other, each with real processes over UCX: a caller's allgather, a unique
 * id, the environment. And what is said to those who cannot.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <wring/wring.h>

enum { N = 3 };

/* What the processes of a test share: a board to gather on, with a barrier by counting. */
static struct board {
    unsigned char cell[N][4096];
    _Atomic int arrived;
    wring_unique_id id;
    _Atomic int id_ready;
} * board;

static int board_open(void **state)
{
    (void)state;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return board == MAP_FAILED;
}

static int gather(void *arg, const void *send, void *recv, size_t nbytes)
{
    int rank = *(int *)arg;
    if (nbytes > sizeof(board->cell[0]))
        return 1;
    memcpy(board->cell[rank], send, nbytes);
    board->arrived++;
    while (board->arrived < N)
        usleep(1000);
    for (int q = 0; q < N; q++)
        memcpy((char *)recv + (size_t)q * nbytes, board->cell[q], nbytes);
    return 0;
}

static wring_status by_callback(wring_context *context, int rank, wring_comm **comm_out)
{
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    options.rank = rank;
    options.nranks = N;
    options.allgather = gather;
    options.allgather_arg = &rank;
    return wring_comm_create(context, &options, comm_out);
}

static wring_status by_unique_id(wring_context *context, int rank, wring_comm **comm_out)
{
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    if (rank == 0) {
        wring_status status = wring_unique_id_create(context, &board->id);
        if (status != WRING_OK)
            return status;
        board->id_ready = 1;
    }
    while (!board->id_ready)
        usleep(1000);
    options.rank = rank;
    options.nranks = N;
    options.id = &board->id;
    return wring_comm_create(context, &options, comm_out);
}

static wring_status by_environment(wring_context *context, int rank, wring_comm **comm_out)
{
    (void)rank;
    return wring_comm_create(context, NULL, comm_out);
}

typedef wring_status (*join_fn)(wring_context *, int, wring_comm **);

/* One rank's life: join, sum, leave. Exit status 0 if all went well. */
static int live(int rank, join_fn join)
{
    wring_context *context;
    wring_comm *comm;
    float buffer[5000];
    if (wring_context_create(NULL, &context) != WRING_OK || join(context, rank, &comm) != WRING_OK)
        return fprintf(stderr, "rank %d: %s\n", rank, wring_error_message()), 1;
    for (int i = 0; i < 5000; i++)
        buffer[i] = (float)(rank * 5000 + i);
    if (wring_allreduce(comm, buffer, buffer, 5000, WRING_FLOAT32, WRING_SUM) != WRING_OK)
        return fprintf(stderr, "rank %d: %s\n", rank, wring_error_message()), 2;
    for (int i = 0; i < 5000; i++)
        if (buffer[i] != (float)(N * (N - 1) / 2 * 5000 + N * i))
            return 3;
    if (wring_comm_rank(comm) != rank || wring_comm_size(comm) != N)
        return 4;
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return 0;
}

/* The same where rank 1 cannot join: all are told why, long before the time to join is up. */
static int fail_together(int rank, join_fn join)
{
    wring_context *context;
    wring_comm *comm;
    alarm(30);
    if (rank == 1)
        setenv("WRING_CODEC", "int9", 1);
    if (wring_context_create(NULL, &context) != WRING_OK)
        return 1;
    wring_status status = join(context, rank, &comm);
    wring_context_destroy(context);
    if (status != WRING_E_SPEC || strstr(wring_error_message(), "rank 1") == NULL ||
        strstr(wring_error_message(), "int9") == NULL)
        return fprintf(stderr, "rank %d: %s\n", rank, wring_error_message()), 2;
    return 0;
}

static void run_all(int (*act)(int rank, join_fn join), join_fn join)
{
    pid_t pid[N];
    board->arrived = board->id_ready = 0;
    for (int q = 0; q < N; q++) {
        pid[q] = fork();
        if (pid[q] == 0) {
            char text[16];
            snprintf(text, sizeof(text), "%d", q);
            setenv("WRING_RANK", text, 1);
            _exit(act(q, join));
        }
    }
    for (int q = 0; q < N; q++) {
        int status;
        waitpid(pid[q], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void callback(void **state)
{
    (void)state;
    run_all(live, by_callback);
}

static void unique_id(void **state)
{
    (void)state;
    run_all(live, by_unique_id);
}

static void environment(void **state)
{
    (void)state;
    char root[64];
    snprintf(root, sizeof(root), "127.0.0.1:%d", 20000 + getpid() % 10000);
    setenv("WRING_ROOT", root, 1);
    setenv("WRING_SIZE", "3", 1);
    run_all(live, by_environment);
    unsetenv("WRING_ROOT");
    unsetenv("WRING_SIZE");
}

static void who_cannot_join_tells_the_others(void **state)
{
    (void)state;
    setenv("WRING_JOIN_TIMEOUT", "60000", 1);
    run_all(fail_together, by_callback);
    run_all(fail_together, by_unique_id);
    unsetenv("WRING_JOIN_TIMEOUT");
}

/* Refusals need no second process. */
static void refusals(void **state)
{
    (void)state;
    wring_context *context;
    wring_comm *comm;
    wring_unique_id garbage;
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    setenv("WRING_JOIN_TIMEOUT", "300", 1);
    assert_int_equal(wring_context_create(NULL, &context), WRING_OK);

    assert_int_equal(wring_comm_create(context, NULL, &comm), WRING_E_CONFIG);
    assert_non_null(strstr(wring_error_message(), "WRING_RANK"));

    memset(&garbage, 0x5a, sizeof(garbage));
    options.nranks = 2;
    options.id = &garbage;
    assert_int_equal(wring_comm_create(context, &options, &comm), WRING_E_ARGUMENT);
    options.rank = 2;
    assert_int_equal(wring_comm_create(context, &options, &comm), WRING_E_ARGUMENT);

    wring_unique_id id;
    assert_int_equal(wring_unique_id_create(context, &id), WRING_OK);
    options.rank = 0;
    options.nranks = 3;
    options.id = &id;
    assert_int_equal(wring_comm_create(context, &options, &comm), WRING_E_TIMEOUT);
    assert_non_null(strstr(wring_error_message(), "1"));
    assert_non_null(strstr(wring_error_message(), "2"));

    options.codec = "int9";
    assert_int_equal(wring_comm_create(context, &options, &comm), WRING_E_ARGUMENT);
    wring_context_destroy(context);
    unsetenv("WRING_JOIN_TIMEOUT");

    wring_context_options no_such = WRING_CONTEXT_OPTIONS_INIT;
    no_such.transport = "pigeon";
    assert_int_equal(wring_context_create(&no_such, &context), WRING_E_MODULE);
    assert_non_null(strstr(wring_error_message(), "pigeon"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callback),    cmocka_unit_test(unique_id),
        cmocka_unit_test(environment), cmocka_unit_test(who_cannot_join_tells_the_others),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, board_open, NULL);
}
