/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the emulator. */
#ifndef EMU_H
#define EMU_H

#include "cuda_runtime.h"

struct emu_grid {
    dim3 grid, block;
    size_t dynamic_nbytes;
    std::function<void()> thread;
};

/* Run all threads of a grid on the calling thread; false, with a report on standard error, if some
 * of them wait for ever. */
bool emu_run_grid(const emu_grid &grid, uint64_t seed);

#endif
