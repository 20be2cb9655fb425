/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the emulator. */
#ifndef EMU_H
#define EMU_H

#include "cuda_runtime.h"

#define DEVICES_MAX 8

/* What a call returns: ERROR or what went wrong before; kept for cudaGetLastError. */
cudaError_t emu_answer(cudaError_t error);
/* A number of the environment. */
size_t emu_setting(const char *name, size_t otherwise);
/* Whether there is a driver. */
cudaError_t emu_driver();
/* The current device of the calling thread. */
int emu_device();
/* Append an operation, in the order that the legacy stream keeps with blocking ones. */
cudaError_t emu_enqueue(cudaStream_t stream, std::function<void()> operation);

struct emu_grid {
    dim3 grid, block;
    size_t dynamic_nbytes;
    std::function<void()> thread;
};

/* Run all threads of a grid on the calling thread; false, with a report on standard error, if some
 * of them wait for ever. */
bool emu_run_grid(const emu_grid &grid, uint64_t seed);

#endif
