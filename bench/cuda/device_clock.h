/* SPDX-License-Identifier: Apache-2.0 */
/* What bench_cuda.c needs of CUDA itself: time as the device's events tell it, and the floors that
 * a kernel is held against. Every call ends the program where CUDA fails. */
#ifndef DEVICE_CLOCK_H
#define DEVICE_CLOCK_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct device_about {
    char name[256];
    size_t memory_nbytes;
};
struct device_about device_about(void);

/* Seconds that N calls of RUN, which enqueues on STREAM, take there one after the other. */
double device_seconds(void (*run)(void *arg), void *arg, size_t n, void *stream);

/* The floors. READ loads all NBYTES (a multiple of 16) at SRC, and writes to SUM next to never. */
void device_copy(void *dst, const void *src, size_t nbytes, void *stream);
void device_read(const void *src, size_t nbytes, unsigned *sum, void *stream);
void device_nothing(void *stream);

#ifdef __cplusplus
}
#endif
#endif
