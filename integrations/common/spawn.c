/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher behind `--spawn N`. It decides when a group of local ranks has failed and how it
 * ends.
 *
 * Rank 0 inherits a socket that listens already, so no port is guessed and none can be snatched. A
 * secret made for this one group keeps other users of the machine out.
 * The kernel kills the children if the launcher dies, whatever it dies of.
 */
#include "spawn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

#define RANKS_MAX 1024
#define MOMENT_S 3.0   /* for the others to notice a failed rank and say so */
#define FAREWELL_S 2.0 /* from SIGTERM to SIGKILL */
#define TICK_NS 100000000L

/* What other launchers left behind would contradict ours. */
static const char *const foreign_variables[] = {
    "RANK",         "OMPI_COMM_WORLD_RANK", "PMIX_RANK",         "PMI_RANK", "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID", "WRING_LISTEN_FD",      "WRING_SECRET_FILE",
};

struct launcher {
    int nranks, alive;
    pid_t *child; /* by rank; 0 once it has ended */
    bool outlive; /* a rank that was killed does not end the others */
    int worst;    /* exit status so far */
    int listen_fd, port;
    char secret[65];
    double failed_s, ended_s; /* when the first rank failed, when SIGTERM was sent; 0: not yet */
    pid_t parent;
    sigset_t signals, original;
};

/* N and the arguments without the option; 0 if it is not there. */
static int take_option(int argc, char **argv, char **rest)
{
    int nranks = 0, kept = 0;
    for (int i = 0; i < argc; i++) {
        const char *number = NULL;
        if (strncmp(argv[i], "--spawn=", 8) == 0)
            number = argv[i] + 8;
        else if (strcmp(argv[i], "--spawn") == 0)
            number = i + 1 < argc ? argv[++i] : "";
        if (number)
            nranks = (int)parse_int("--spawn", number, 1, RANKS_MAX);
        else
            rest[kept++] = argv[i];
    }
    rest[kept] = NULL;
    return nranks;
}

static void open_port(struct launcher *launcher)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t nbytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    /* Rank 0 may listen here again for a second communicator, when connections of the first are
     * still dying: that wants the option on all of them, which they inherit. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &nbytes) != 0)
        die("cannot listen on 127.0.0.1: %s", strerror(errno));
    launcher->listen_fd = fd;
    launcher->port = ntohs(address.sin_port);
}

static void draw_secret(struct launcher *launcher)
{
    unsigned char bytes[32];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        die("no random numbers from the system: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(launcher->secret + 2 * i, 3, "%02x", bytes[i]);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void set_environment(const struct launcher *launcher, int rank)
{
    char root[32];
    for (size_t i = 0; i < sizeof foreign_variables / sizeof foreign_variables[0]; i++)
        unsetenv(foreign_variables[i]);
    snprintf(root, sizeof root, "127.0.0.1:%d", launcher->port);
    setenv("WRING_ROOT", root, 1);
    setenv("WRING_SECRET", launcher->secret, 1);
    set_number("WRING_RANK", rank);
    set_number("WRING_SIZE", launcher->nranks);
    set_number("WRING_LOCAL_RANK", rank);
    set_number("WRING_LOCAL_SIZE", launcher->nranks);
    if (rank == 0)
        set_number("WRING_LISTEN_FD", launcher->listen_fd);
}

_Noreturn static void become_rank(const struct launcher *launcher, int rank, char **arguments)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher->parent)
        _exit(EXIT_FAILURE); /* it died before the line above */
    set_environment(launcher, rank);
    if (rank == 0)
        fcntl(launcher->listen_fd, F_SETFD, 0);
    sigprocmask(SIG_SETMASK, &launcher->original, NULL);
    execv("/proc/self/exe", arguments);
    fprintf(stderr, "%s: cannot start rank %d: %s\n", program_invocation_short_name, rank,
            strerror(errno));
    _exit(127);
}

static void signal_all(const struct launcher *launcher, int number)
{
    for (int rank = 0; rank < launcher->nranks; rank++)
        if (launcher->child[rank] > 0)
            kill(launcher->child[rank], number);
}

static void start_ranks(struct launcher *launcher, char **arguments)
{
    fflush(NULL);
    for (int rank = 0; rank < launcher->nranks; rank++) {
        pid_t pid = fork();
        if (pid == 0)
            become_rank(launcher, rank, arguments);
        if (pid < 0) {
            int error = errno;
            signal_all(launcher, SIGKILL);
            die("cannot start rank %d of %d: %s", rank, launcher->nranks, strerror(error));
        }
        launcher->child[rank] = pid;
        launcher->alive++;
    }
}

static void note_end(struct launcher *launcher, int rank, int wait_status)
{
    bool killed = WIFSIGNALED(wait_status);
    int status = killed ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    launcher->child[rank] = 0;
    launcher->alive--;
    if (status == 0)
        return;
    if (killed && launcher->ended_s == 0)
        fprintf(stderr, "%s: rank %d was ended by signal %d (%s)\n", program_invocation_short_name,
                rank, WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    if (launcher->outlive && killed && WTERMSIG(wait_status) == SIGKILL && launcher->alive > 0)
        return;
    /* What the launcher ended itself is a consequence, not the cause. */
    if (status > launcher->worst && launcher->ended_s == 0)
        launcher->worst = status;
    if (launcher->failed_s == 0)
        launcher->failed_s = now_s();
}

static void reap(struct launcher *launcher)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int rank = 0; rank < launcher->nranks; rank++)
            if (launcher->child[rank] == pid)
                note_end(launcher, rank, status);
}

/* After a failure: patience, then SIGTERM, then SIGKILL. */
static void end_the_rest(struct launcher *launcher)
{
    if (launcher->failed_s == 0 || launcher->alive == 0)
        return;
    if (launcher->ended_s == 0 && now_s() - launcher->failed_s > MOMENT_S) {
        launcher->ended_s = now_s();
        signal_all(launcher, SIGTERM);
    } else if (launcher->ended_s != 0 && now_s() - launcher->ended_s > FAREWELL_S) {
        signal_all(launcher, SIGKILL);
    }
}

static void supervise(struct launcher *launcher)
{
    const struct timespec tick = {.tv_nsec = TICK_NS};
    while (launcher->alive > 0) {
        int number = sigtimedwait(&launcher->signals, NULL, &tick);
        if (number > 0 && number != SIGCHLD)
            signal_all(launcher, number);
        reap(launcher);
        end_the_rest(launcher);
    }
}

void spawn_if_asked(int argc, char **argv, bool outlive)
{
    static const int signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct launcher launcher = {.parent = getpid(), .outlive = outlive};
    char **rest = must_alloc((size_t)argc + 1, sizeof *rest);
    launcher.nranks = take_option(argc, argv, rest);
    if (launcher.nranks == 0) {
        free(rest);
        return;
    }
    launcher.child = must_alloc((size_t)launcher.nranks, sizeof *launcher.child);
    sigemptyset(&launcher.signals);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaddset(&launcher.signals, signals[i]);
    sigprocmask(SIG_BLOCK, &launcher.signals, &launcher.original);
    open_port(&launcher);
    draw_secret(&launcher);
    start_ranks(&launcher, rest);
    close(launcher.listen_fd);
    supervise(&launcher);
    free(launcher.child);
    free(rest);
    exit(launcher.worst);
}
