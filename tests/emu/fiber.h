/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: functions with a stack of their own that hand control to each other. A switch saves the
 * registers that a call preserves, and no more; getcontext() and its like would make a system call
 * each time. */
#ifndef EMU_FIBER_H
#define EMU_FIBER_H

#include <stddef.h>

struct fiber {
    void *stack_pointer; /* of a fiber that does not run */
    char *stack;
    size_t nbytes;
    void *sanitizer; /* AddressSanitizer's fake stack */
};

/* Make FIBER call ENTRY when first switched to. ENTRY must not return: it leaves for good through
 * fiber_switch. STACK stays the caller's. */
void fiber_init(struct fiber *fiber, void (*entry)(), char *stack, size_t nbytes);

/* Continue TO until something switches back to FROM. LEAVES: from will not be continued. */
void fiber_switch(struct fiber *from, struct fiber *to, bool leaves);

/* The first thing that a fiber's entry calls. ROOT: what has the thread's own stack, from where the
 * first switch came. */
void fiber_begin(struct fiber *root);

#endif
