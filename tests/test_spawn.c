/* SPDX-License-Identifier: Apache-2.0 */
/* --spawn: this program starts itself, and its ranks do what the word after --act says. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/config.h"
#include "spawn.h"
#include "transport/rendezvous.h"

/* ---- a rank ---------------------------------------------------------------------------------- */

static int meet_once(void)
{
    struct wri_config config;
    struct wri_launch launch;
    struct wri_rendezvous *r = NULL;
    struct wri_rendezvous_options options = {.timeout_ms = 20000};
    wring_status status = wri_config_load(&config);
    if (status == WRING_OK)
        status = wri_launch_detect(&config, &launch);
    if (status == WRING_OK)
        status = wri_secret_load(&config, &options.secret);
    options.host = launch.host;
    options.port = launch.port;
    options.listen_fd = launch.listen_fd;
    options.job = launch.job;
    options.rank = launch.rank;
    options.nranks = launch.nranks;
    if (status == WRING_OK)
        status = wri_rendezvous_open(&options, "x", 1, &r);
    while (status == WRING_OK && (status = wri_rendezvous_poll(r, 10)) == WRING_AGAIN)
        status = WRING_OK;
    wri_rendezvous_close(r);
    if (status != WRING_OK || launch.local_rank != launch.rank ||
        launch.local_nranks != launch.nranks)
        fprintf(stderr, "rank: %s\n", wring_error_message());
    return status == WRING_OK && launch.local_nranks == launch.nranks ? 0 : 1;
}

/* A second time, too: at the same port, now without the inherited socket. */
static int meet(void)
{
    const char *secret = getenv("WRING_SECRET");
    if (!secret || strlen(secret) != 64 || strspn(secret, "0123456789abcdef") != 64)
        return 5;
    for (int time = 0; time < 3; time++)
        if (meet_once() != 0)
            return 1;
    return 0;
}

static void count_signal(int number)
{
    _exit(number == SIGTERM ? 44 : 45);
}

static int act(const char *what)
{
    const char *text = getenv("WRING_RANK");
    int rank = text ? atoi(text) : -1;
    if (strcmp(what, "meet") == 0)
        return meet();
    if (strcmp(what, "status") == 0)
        return rank; /* the worst is the last rank's */
    if (strcmp(what, "crash") == 0 && rank == 1)
        raise(SIGKILL);
    if (strcmp(what, "term") == 0)
        signal(SIGTERM, count_signal);
    if (strcmp(what, "stubborn") == 0 && rank == 1)
        return 3;
    if (strcmp(what, "stubborn") == 0)
        signal(SIGTERM, SIG_IGN);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    sleep(60);
    return 0;
}

/* ---- the tests ------------------------------------------------------------------------------- */

/* Start the launcher with N ranks; its output can be read from *OUT. */
static pid_t launch(const char *count, const char *what, FILE **out)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "test_spawn", "--spawn", count, "--act", what, (char *)NULL);
        _exit(126);
    }
    close(ends[1]);
    *out = fdopen(ends[0], "r");
    assert_non_null(*out);
    return pid;
}

/* How the launcher ends: its exit status, or 1000 + signal. */
static int end_of(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int run(const char *count, const char *what)
{
    FILE *out;
    int status = end_of(launch(count, what, &out));
    fclose(out);
    return status;
}

static pid_t read_pid(FILE *out)
{
    int pid = 0;
    assert_int_equal(fscanf(out, "%d", &pid), 1);
    return pid;
}

static void ranks_find_each_other(void **state)
{
    (void)state;
    setenv("RANK", "7", 1); /* another launcher's left-overs do not matter */
    setenv("WORLD_SIZE", "9", 1);
    setenv("WRING_SECRET_FILE", "/no/such/file", 1);
    assert_int_equal(run("1", "meet"), 0);
    assert_int_equal(run("4", "meet"), 0);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("WRING_SECRET_FILE");
}

static void the_worst_status_counts(void **state)
{
    (void)state;
    assert_int_equal(run("1", "status"), 0);
    assert_int_equal(run("3", "status"), 2);
    assert_int_equal(run("0", "status"), 1);
    assert_int_equal(run("many", "status"), 1);
}

static void signals_are_passed_on(void **state)
{
    FILE *out;
    (void)state;
    pid_t pid = launch("2", "term", &out);
    read_pid(out);
    read_pid(out);
    kill(pid, SIGTERM);
    assert_int_equal(end_of(pid), 44);
    fclose(out);
}

/* One rank fails and another neither ends nor heeds SIGTERM; also: a rank is killed. */
static void a_failed_rank_ends_the_group(void **state)
{
    int64_t begin = wri_clock_ns();
    (void)state;
    assert_int_equal(run("2", "stubborn"), 3);
    assert_true(wri_clock_ns() - begin < 20 * 1000000000LL);
    assert_int_equal(run("2", "crash"), 128 + SIGKILL);
}

static void no_rank_outlives_the_launcher(void **state)
{
    FILE *out;
    char byte;
    (void)state;
    pid_t pid = launch("2", "sleep", &out);
    read_pid(out);
    read_pid(out);
    kill(pid, SIGKILL);
    assert_int_equal(end_of(pid), 1000 + SIGKILL);
    while (fread(&byte, 1, 1, out) == 1)
        continue; /* ends when the last rank has gone; a hang here is the failure */
    fclose(out);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_find_each_other),
        cmocka_unit_test(the_worst_status_counts),
        cmocka_unit_test(signals_are_passed_on),
        cmocka_unit_test(a_failed_rank_ends_the_group),
        cmocka_unit_test(no_rank_outlives_the_launcher),
    };
    spawn_if_asked(argc, argv, false);
    if (argc == 3 && strcmp(argv[1], "--act") == 0)
        return act(argv[2]);
    return cmocka_run_group_tests_name("spawn", tests, NULL, NULL);
}
