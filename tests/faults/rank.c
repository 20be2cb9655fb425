/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a job that is to be hurt: rank COUNT DTYPE CODEC CALLS [recover]. Joins by the
 * environment and does CALLS allreduces (0: until something happens) of data whose sum every codec
 * used here gives exactly, so that every result is checked, element by element.
 *
 * What it writes to standard output, times in nanoseconds of CLOCK_MONOTONIC:
 *     joined T
 *     error T STATUS N MESSAGE    call N failed (-1: joining)
 *     recovered T RANKS           with `recover`: those left have done ten calls after that
 *     done T N                    after N calls, all right
 *     wrong T N I                 call N succeeded with a wrong element I
 * After an error, ten more calls must fail at once: "slow NS" if one took longer than 10 ms,
 * "unfailed" if one succeeded. Exit status: 0, 3 after an error, 4 after anything wrong.
 */
#include "points.h"

#include <wring/wring.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_CALLS 10
#define RECOVERED_CALLS 10
#define AGAIN_NS (10 * 1000000LL)

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Integers of at most 127 in magnitude, 127 itself where a block of int8 begins: its scale is then
 * a small integer and nothing is rounded, neither on the way nor in the sum. A selection keeps one
 * element in 128 at most, and then only those are not 0. */
static int element(size_t i, unsigned call, int sparse)
{
    if (i % 128 == 0)
        return call % 2 ? 127 : -127;
    return sparse ? 0 : (int)((i * 7 + (size_t)call * 13) % 255) - 127;
}

struct data {
    wring_dtype dtype;
    size_t count;
    int sparse;
    void *send, *recv;
    wring_tensor *tensor; /* of the communicator in use */
};

static void put(const struct data *data, size_t i, int value)
{
    if (data->dtype == WRING_FLOAT32)
        ((float *)data->send)[i] = (float)value;
    else
        ((int8_t *)data->send)[i] = (int8_t)value;
}

static bool holds(const struct data *data, size_t i, int value)
{
    if (data->dtype == WRING_FLOAT32)
        return ((const float *)data->recv)[i] == (float)value;
    return ((const int8_t *)data->recv)[i] == (int8_t)value;
}

static void fill(const struct data *data, unsigned call, int factor)
{
    for (size_t i = 0; i < data->count; i++)
        put(data, i, element(i, call, data->sparse) * factor);
}

/* The first wrong element, or the count. */
static size_t first_wrong(const struct data *data, unsigned call, int factor)
{
    size_t i = 0;
    while (i < data->count && holds(data, i, element(i, call, data->sparse) * factor))
        i++;
    return i;
}

static wring_status reduce(wring_comm *comm, const struct data *data)
{
    const wring_segment segment = {
        .tensor = data->tensor, .send = data->send, .recv = data->recv, .count = data->count};
    wring_call call = WRING_CALL_INIT;
    wring_request *request = NULL;
    call.dtype = data->dtype;
    call.segments = &segment;
    call.nsegments = 1;
    wring_status status = wring_comm_start(comm, &call, &request);
    if (status == WRING_E_MEMORY) /* then nothing was started, and it may be tried again */
        status = wring_comm_start(comm, &call, &request);
    return status == WRING_OK ? wring_request_wait(request, NULL) : status;
}

static int report(wring_status status, long call)
{
    printf("error %lld %s %ld %s\n", now_ns(), wring_status_name(status), call,
           wring_error_message());
    return 3;
}

/* What a failed communicator answers. */
static int again(wring_comm *comm, const struct data *data)
{
    int code = 3;
    for (int i = 0; i < AGAIN_CALLS; i++) {
        long long begin = now_ns();
        if (reduce(comm, data) == WRING_OK) {
            printf("unfailed\n");
            code = 4;
        }
        if (now_ns() - begin > AGAIN_NS)
            printf("slow %lld\n", now_ns() - begin);
    }
    return code;
}

static int run_calls(wring_comm *comm, const struct data *data, unsigned calls)
{
    int rank = wring_comm_rank(comm), nranks = wring_comm_size(comm);
    for (unsigned call = 0; calls == 0 || call < calls; call++) {
        fill(data, call, rank + 1);
        wring_status status = reduce(comm, data);
        if (status != WRING_OK) {
            report(status, call);
            return again(comm, data);
        }
        size_t i = first_wrong(data, call, nranks * (nranks + 1) / 2);
        if (i < data->count) {
            printf("wrong %lld %u %zu\n", now_ns(), call, i);
            return 4;
        }
    }
    return 0;
}

static int run(wring_comm *comm, struct data *data, unsigned calls)
{
    wring_status status =
        wring_tensor_create(comm, "gradient", data->dtype, 1, &data->count, NULL, &data->tensor);
    if (status != WRING_OK)
        return report(status, -1);
    int code = run_calls(comm, data, calls);
    wring_tensor_destroy(data->tensor);
    data->tensor = NULL;
    return code;
}

/* Go on with those that are left until ten calls are through, however often it takes. */
static int recover(wring_comm **comm, struct data *data)
{
    int code = 3;
    while (code == 3) {
        wring_comm *left = NULL;
        wring_status status = wring_comm_shrink(*comm, &left);
        if (status != WRING_OK)
            return report(status, -2);
        wring_comm_destroy(*comm);
        *comm = left;
        code = run(left, data, RECOVERED_CALLS);
    }
    if (code == 0)
        printf("recovered %lld %d\n", now_ns(), wring_comm_size(*comm));
    return code;
}

int main(int argc, char **argv)
{
    wring_context *context = NULL;
    wring_comm *comm = NULL;
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    if (argc < 5)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct data data = {.dtype = strcmp(argv[2], "int8") == 0 ? WRING_INT8 : WRING_FLOAT32,
                        .count = strtoull(argv[1], NULL, 10),
                        .sparse = strstr(argv[3], "topk") != NULL};
    size_t nbytes = data.count * wring_dtype_size(data.dtype);
    data.send =
        mmap(NULL, 2 * nbytes + 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data.send == MAP_FAILED)
        return 2;
    data.recv = (char *)data.send + nbytes; /* not by malloc, which is made to fail */
    options.codec = argv[3];
    wring_status status = wring_context_create(NULL, &context);
    if (status == WRING_OK)
        status = wring_comm_create(context, &options, &comm);
    int code = status == WRING_OK ? 0 : report(status, -1);
    if (status == WRING_OK) {
        printf("joined %lld\n", now_ns());
        points_arm();
        code = run(comm, &data, (unsigned)strtoul(argv[4], NULL, 10));
        if (code == 0)
            printf("done %lld %s\n", now_ns(), argv[4]);
        if (code == 3 && argc > 5)
            code = recover(&comm, &data);
    }
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return code;
}
