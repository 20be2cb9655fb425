/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how a grid is run: block after block, the threads of a block as fibers in a shuffled
 * order, until each has returned. */
#include "emu.h"
#include "fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <map>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define STACK_NBYTES (256 << 10)
#else
#define STACK_NBYTES (64 << 10)
#endif
#define POISON 0xA5 /* as float32 -2.9e-16: neither zero nor NaN, which code might expect */

/* Lanes meet at warp collectives. Values have two generations: a lane is at most one collective
 * ahead of one that has not read yet. */
struct warp {
    uint64_t values[2][32];
    unsigned arrived;
    uint64_t generation;
};

struct thread {
    uint3 index;
    struct fiber fiber;
    unsigned number;
    bool done;
    const uint64_t *waits_for; /* continue when it is no longer `seen` */
    uint64_t seen;
    const char *where;
};

struct block {
    std::vector<thread> threads;
    std::vector<unsigned> order;
    std::vector<struct warp> warps;
    unsigned count, arrived, said_yes;
    unsigned totals[2]; /* of emu_count, by generation */
    uint64_t generation;
    std::map<const void *, void *> shared;
    size_t dynamic_nbytes;
    struct fiber scheduler;
    const std::function<void()> *body;
    thread *current;
    char *stacks = nullptr;
    size_t nstacks = 0;
    ~block();
};

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;
static thread_local struct block here;

/* Fibers that left for good leave their frames' red zones behind, which AddressSanitizer would hold
 * against whatever is mapped there next. */
static void free_stacks(struct block &block)
{
    if (!block.stacks)
        return;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(block.stacks, block.nstacks * STACK_NBYTES);
#endif
    munmap(block.stacks, block.nstacks * STACK_NBYTES);
    block.stacks = nullptr;
}

block::~block()
{
    free_stacks(*this);
}

/* ---- what a thread calls --------------------------------------------------------------------- */

static void yield(const uint64_t *waits_for, const char *where)
{
    thread *self = here.current;
    self->waits_for = waits_for;
    self->seen = *waits_for;
    self->where = where;
    fiber_switch(&self->fiber, &here.scheduler, false);
    self->waits_for = nullptr;
}

int emu_count(int predicate)
{
    uint64_t generation = here.generation;
    here.said_yes += predicate != 0;
    if (++here.arrived == here.count) {
        here.totals[generation & 1] = here.said_yes;
        here.arrived = here.said_yes = 0;
        here.generation++;
    } else {
        yield(&here.generation, "a barrier");
    }
    return (int)here.totals[generation & 1];
}

void emu_barrier(const char *)
{
    emu_count(0);
}

unsigned emu_lane()
{
    return here.current->number % 32;
}

const uint64_t *emu_warp(unsigned mask, uint64_t value, const char *name)
{
    struct warp &warp = here.warps[here.current->number / 32];
    uint64_t generation = warp.generation;
    uint64_t *values = warp.values[generation & 1];
    unsigned lane = emu_lane();
    values[lane] = value;
    warp.arrived |= 1u << lane;
    if ((warp.arrived & mask) == mask) {
        warp.arrived &= ~mask;
        warp.generation++;
    } else {
        yield(&warp.generation, name);
    }
    return values;
}

void *emu_shared(const void *key, size_t nbytes)
{
    void *&array = here.shared[key];
    if (!array) {
        nbytes = key ? nbytes : here.dynamic_nbytes;
        array = aligned_alloc(16, (nbytes + 15) / 16 * 16);
        memset(array, POISON, nbytes);
    }
    return array;
}

/* ---- a block --------------------------------------------------------------------------------- */

static void thread_main()
{
    fiber_begin(&here.scheduler);
    thread *self = here.current;
    (*here.body)();
    self->done = true;
    fiber_switch(&self->fiber, &here.scheduler, true);
}

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void start_threads(uint64_t *random)
{
    uint3 dim = blockDim;
    here.count = dim.x * dim.y * dim.z;
    here.threads.assign(here.count, thread());
    here.warps.assign((here.count + 31) / 32, warp());
    here.order.resize(here.count);
    here.arrived = here.said_yes = 0;
    if (here.nstacks < here.count) {
        free_stacks(here);
        here.stacks =
            (char *)mmap(nullptr, (size_t)here.count * STACK_NBYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        here.nstacks = here.count;
    }
    for (unsigned i = 0; i < here.count; i++) {
        thread &t = here.threads[i];
        t.index = {i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y};
        t.number = i;
        /* Tops at different places of their pages, or all would share a few cache lines. */
        fiber_init(&t.fiber, thread_main, here.stacks + (size_t)i * STACK_NBYTES,
                   STACK_NBYTES - i % 32 * 256);
        unsigned j = draw(random) % (i + 1);
        here.order[i] = here.order[j];
        here.order[j] = i;
    }
}

static void free_shared()
{
    for (auto &array : here.shared)
        free(array.second);
    here.shared.clear();
}

/* Run every thread that can go on once; false if none can. */
static bool turn(unsigned from)
{
    bool moved = false;
    for (unsigned i = 0; i < here.count; i++) {
        thread &t = here.threads[here.order[(i + from) % here.count]];
        if (t.done || (t.waits_for && *t.waits_for == t.seen))
            continue;
        moved = true;
        here.current = &t;
        threadIdx = t.index;
        fiber_switch(&here.scheduler, &t.fiber, false);
    }
    return moved;
}

static void report()
{
    unsigned waiting = 0, first_waiting = 0, first_done = 0;
    for (unsigned i = here.count; i-- > 0;) {
        if (here.threads[i].done)
            first_done = i;
        else {
            waiting++;
            first_waiting = i;
        }
    }
    fprintf(stderr,
            "emulated CUDA: block (%u,%u,%u): %u of %u threads wait for ever, thread %u at %s; "
            "thread %u %s\n",
            blockIdx.x, blockIdx.y, blockIdx.z, waiting, here.count, first_waiting,
            here.threads[first_waiting].where, first_done,
            waiting < here.count ? "has returned without coming there" : "waits as well");
}

static bool run_block(uint64_t *random)
{
    start_threads(random);
    bool all_done = false;
    while (!all_done && turn(draw(random) % here.count)) {
        all_done = true;
        for (unsigned i = 0; i < here.count && all_done; i++)
            all_done = here.threads[i].done;
    }
    free_shared();
    if (!all_done)
        report();
    return all_done;
}

bool emu_run_grid(const emu_grid &grid, uint64_t seed)
{
    blockDim = {grid.block.x, grid.block.y, grid.block.z};
    gridDim = {grid.grid.x, grid.grid.y, grid.grid.z};
    here.dynamic_nbytes = grid.dynamic_nbytes;
    here.body = &grid.thread;
    uint64_t random = seed * 0x9E3779B97F4A7C15u + 1;
    uint64_t nblocks = (uint64_t)grid.grid.x * grid.grid.y * grid.grid.z;
    uint64_t first =
        draw(&random) % nblocks; /* blocks in turned order: none may wait for another */
    for (uint64_t i = 0; i < nblocks; i++) {
        uint64_t b = (i + first) % nblocks;
        blockIdx = {(unsigned)(b % grid.grid.x), (unsigned)(b / grid.grid.x % grid.grid.y),
                    (unsigned)(b / grid.grid.x / grid.grid.y)};
        if (!run_block(&random))
            return false;
    }
    return true;
}
