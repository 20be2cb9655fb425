/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how a grid is run: block after block, the threads of a block as fibers. A thread runs
 * until it waits or ends; which of those that could go on is next is drawn by lot. */
#include "emu.h"
#include "fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define STACK_NBYTES (256 << 10)
#else
#define STACK_NBYTES (64 << 10)
#endif
#define POISON 0xA5 /* as float32 -2.9e-16: neither zero nor NaN, which code might expect */

/* Where lanes meet for one warp collective; in use while it has lanes that wait or that have not
 * read yet. A lane is in one at a time, so a warp never needs more than it has lanes. */
struct meeting {
    const char *name;
    unsigned mask, waiting, unread;
    uint64_t values[32];
};

struct warp {
    struct meeting meetings[32];
};

struct thread {
    struct fiber fiber;
    uint3 index;
    unsigned number;
    const char *waits_at;
    bool done;
};

struct shared_array {
    const void *key;
    void *data;
};

struct block {
    std::vector<thread> threads;
    std::vector<unsigned> ready; /* the first NREADY: who can go on */
    std::vector<struct warp> warps;
    std::vector<shared_array> shared;
    unsigned count, nready, ndone;
    unsigned arrived, said_yes, total; /* at the barrier; TOTAL of the last one */
    size_t dynamic_nbytes;
    struct fiber scheduler;
    const std::function<void()> *body;
    thread *current;
    uint64_t random;
    char *stacks = nullptr;
    size_t nstacks = 0;
    ~block();
};

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;
static thread_local std::unique_ptr<block> own; /* of a stream's thread */
static __thread struct block *here EMU_TLS;     /* the same, found without a call */

/* Threads that wait for ever leave their frames' red zones behind, which AddressSanitizer would hold
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

static void need_stacks(struct block &block, size_t n)
{
    if (block.nstacks >= n)
        return;
    free_stacks(block);
    block.stacks = (char *)mmap(nullptr, n * STACK_NBYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    block.nstacks = n;
}

block::~block()
{
    free_stacks(*this);
}

/* ---- who runs -------------------------------------------------------------------------------- */

static uint32_t draw(uint64_t *state, size_t bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 32) * bound >> 32);
}

/* Go on with a thread that can, or with the scheduler if none can. */
static void switch_from(struct fiber *from, bool for_ever)
{
    struct block *block = here;
    if (block->nready == 0) {
        fiber_switch(from, &block->scheduler, for_ever);
        return;
    }
    unsigned *picked = &block->ready[draw(&block->random, block->nready)];
    thread *next = &block->threads[*picked];
    *picked = block->ready[--block->nready];
    block->current = next;
    threadIdx = next->index;
    fiber_switch(from, &next->fiber, for_ever);
}

static void wait_at(const char *where)
{
    thread *self = here->current;
    self->waits_at = where;
    switch_from(&self->fiber, false);
}

static void wake(struct block *block, unsigned number)
{
    block->ready[block->nready++] = number;
}

static void thread_main()
{
    fiber_begin(&here->scheduler);
    (*here->body)();
    thread *self = here->current;
    self->done = true;
    here->ndone++;
    switch_from(&self->fiber, true);
}

/* ---- what a thread calls --------------------------------------------------------------------- */

int emu_count(int predicate)
{
    struct block *block = here;
    block->said_yes += predicate != 0;
    if (++block->arrived < block->count) {
        wait_at("a barrier");
        return (int)block->total; /* the next barrier cannot end before this thread is there */
    }
    block->total = block->said_yes;
    block->arrived = block->said_yes = 0;
    for (unsigned i = 0; i < block->count; i++)
        if (i != block->current->number)
            wake(block, i);
    return (int)block->total;
}

void emu_barrier(const char *)
{
    emu_count(0);
}

unsigned emu_lane()
{
    return here->current->number % 32;
}

/* Lanes meet whose collective and mask are the same. */
static struct meeting *find_meeting(struct warp *warp, unsigned mask, const char *name)
{
    struct meeting *unused = nullptr;
    for (struct meeting &m : warp->meetings) {
        if (m.waiting) {
            if (m.mask == mask && (m.name == name || strcmp(m.name, name) == 0))
                return &m;
        } else if (!m.unread) {
            unused = unused ? unused : &m;
            if (!m.name)
                break; /* nor was any behind it ever in use */
        }
    }
    if (mask != 0xffffffffu) /* lanes outside give nothing */
        memset(unused->values, POISON, sizeof(unused->values));
    unused->name = name;
    unused->mask = mask;
    return unused;
}

const uint64_t *emu_warp(unsigned mask, uint64_t value, const char *name)
{
    struct block *block = here;
    unsigned number = block->current->number, bit = 1u << number % 32;
    struct meeting *meeting = find_meeting(&block->warps[number / 32], mask, name);
    meeting->values[number % 32] = value;
    meeting->waiting |= bit;
    if (meeting->waiting != mask) { /* never equal with a lane that MASK lacks */
        wait_at(name);
    } else {
        meeting->unread = mask;
        meeting->waiting = 0;
        for (unsigned others = mask & ~bit; others; others &= others - 1)
            wake(block, number / 32 * 32 + (unsigned)__builtin_ctz(others));
    }
    meeting->unread &= ~bit; /* the caller reads before another thread runs */
    return meeting->values;
}

void *emu_shared(const void *key, size_t nbytes)
{
    for (const shared_array &array : here->shared)
        if (array.key == key)
            return array.data;
    void *data = nullptr;
    nbytes = key ? nbytes : here->dynamic_nbytes;
    /* The exact size, so that AddressSanitizer sees the first byte past it. */
    if (posix_memalign(&data, 16, nbytes ? nbytes : 1) != 0)
        abort();
    memset(data, POISON, nbytes);
    here->shared.push_back({key, data});
    return data;
}

/* ---- a block --------------------------------------------------------------------------------- */

static void start_threads()
{
    uint3 dim = blockDim;
    struct block *block = here;
    block->count = block->nready = dim.x * dim.y * dim.z;
    block->ndone = block->arrived = block->said_yes = 0;
    block->threads.resize(block->count);
    block->ready.resize(block->count);
    block->warps.resize((block->count + 31) / 32);
    need_stacks(*block, block->count);
    for (unsigned i = 0; i < block->count; i++) {
        thread &t = block->threads[i];
        t.index = {i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y};
        t.number = i;
        t.done = false;
        /* Tops at different places of their pages, or all would share a few cache lines. */
        fiber_init(&t.fiber, thread_main, block->stacks + (size_t)i * STACK_NBYTES,
                   STACK_NBYTES - i % 32 * 256);
        block->ready[i] = i;
    }
}

static void free_shared()
{
    for (const shared_array &array : here->shared)
        free(array.data);
    here->shared.clear();
}

static void report()
{
    unsigned waiting = 0, first_waiting = 0, first_done = 0;
    for (unsigned i = here->count; i-- > 0;) {
        if (here->threads[i].done)
            first_done = i;
        else {
            waiting++;
            first_waiting = i;
        }
    }
    fprintf(stderr,
            "emulated CUDA: block (%u,%u,%u): %u of %u threads wait for ever, thread %u at %s; "
            "thread %u %s\n",
            blockIdx.x, blockIdx.y, blockIdx.z, waiting, here->count, first_waiting,
            here->threads[first_waiting].waits_at, first_done,
            waiting < here->count ? "has returned without coming there" : "waits as well");
}

static bool run_block()
{
    start_threads();
    switch_from(&here->scheduler, false);
    free_shared();
    if (here->ndone < here->count)
        report();
    return here->ndone == here->count;
}

bool emu_run_grid(const emu_grid &grid, uint64_t seed)
{
    if (!own)
        own = std::make_unique<block>();
    here = own.get();
    blockDim = {grid.block.x, grid.block.y, grid.block.z};
    gridDim = {grid.grid.x, grid.grid.y, grid.grid.z};
    here->dynamic_nbytes = grid.dynamic_nbytes;
    here->body = &grid.thread;
    here->random = seed * 0x9E3779B97F4A7C15u + 1;
    uint64_t nblocks = (uint64_t)grid.grid.x * grid.grid.y * grid.grid.z;
    /* Blocks in turned order: none may wait for another. */
    uint64_t first = draw(&here->random, nblocks);
    for (uint64_t i = 0; i < nblocks; i++) {
        uint64_t b = (i + first) % nblocks;
        blockIdx = {(unsigned)(b % grid.grid.x), (unsigned)(b / grid.grid.x % grid.grid.y),
                    (unsigned)(b / grid.grid.x / grid.grid.y)};
        if (!run_block())
            return false;
    }
    return true;
}
