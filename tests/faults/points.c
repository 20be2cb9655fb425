/* SPDX-License-Identifier: Apache-2.0 */
/* See points.h. The wrappers have the types of what they wrap, so a change there shows here. */
#include "points.h"

#include "collective/exec.h"
#include "transport/rendezvous.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    char name[32];
    int countdown, signal;
    unsigned sleep_us;
    atomic_bool armed;
    atomic_ullong seed;
} faults;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
    const char *point = getenv("FAULT_POINT"), *number = getenv("FAULT_SIGNAL");
    const char *sleep = getenv("FAULT_SLEEP"), *seed = sleep ? strchr(sleep, ':') : NULL;
    faults.countdown = 1;
    faults.signal = number ? atoi(number) : SIGKILL;
    if (point != NULL && sscanf(point, "%31[^:]:%d", faults.name, &faults.countdown) < 1)
        faults.name[0] = '\0';
    faults.sleep_us = sleep ? (unsigned)atoi(sleep) : 0;
    faults.seed = seed ? strtoull(seed + 1, NULL, 10) : 1;
}

void points_arm(void)
{
    faults.armed = true;
}

static void sleep_a_moment(void)
{
    unsigned long long x = atomic_fetch_add(&faults.seed, 0x9E3779B97F4A7C15u);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    if (x % 4 == 0)
        usleep((useconds_t)(x / 4 % (faults.sleep_us + 1)));
}

static void raise_fault(void)
{
    char line[64];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int n = snprintf(line, sizeof(line), "killed %lld\n", now.tv_sec * 1000000000LL + now.tv_nsec);
    if (write(STDOUT_FILENO, line, (size_t)n) == n)
        raise(faults.signal);
}

/* The process is at point NAME. */
static void reach(const char *name)
{
    pthread_once(&once, read_environment);
    if (faults.sleep_us > 0)
        sleep_a_moment();
    if ((faults.armed || strcmp(name, "join") == 0) && strcmp(faults.name, name) == 0 &&
        --faults.countdown == 0)
        raise_fault();
}

#define WRAP(function)                                                                             \
    __typeof__(function) __real_##function, __wrap_##function; /* then its definition */

WRAP(wri_rendezvous_poll)
wring_status __wrap_wri_rendezvous_poll(struct wri_rendezvous *rendezvous, int wait_ms)
{
    reach("join");
    return __real_wri_rendezvous_poll(rendezvous, wait_ms);
}

WRAP(wri_exec_local)
wring_status __wrap_wri_exec_local(wring_request *request, struct wri_piece *piece,
                                   const struct wring_step *step)
{
    if (step->kind == WRING_STEP_ENCODE)
        reach("encode");
    if (step->kind == WRING_STEP_DECODE_ADD || step->kind == WRING_STEP_DECODE_SET)
        reach("decode");
    return __real_wri_exec_local(request, piece, step);
}

/* Every algorithm's first half brings sums together, the second spreads them. */
WRAP(wri_exec_send)
wring_status __wrap_wri_exec_send(wring_request *request, struct wri_piece *piece,
                                  const struct wring_step *step)
{
    reach((size_t)(step - request->step) < request->nsteps / 2 ? "scatter" : "gather");
    return __real_wri_exec_send(request, piece, step);
}

WRAP(wri_request_finish)
void __wrap_wri_request_finish(wring_request *request, wring_status status)
{
    reach("end");
    __real_wri_request_finish(request, status);
}

WRAP(wri_comm_destroy)
void __wrap_wri_comm_destroy(wring_comm *comm)
{
    reach("destroy");
    __real_wri_comm_destroy(comm);
}
