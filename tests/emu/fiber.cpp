/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a switch saves, per architecture, and tells AddressSanitizer about stacks. */
#include "fiber.h"

#include <stdint.h>
#include <string.h>

/* Push what a call preserves, store the stack pointer to *SAVE, go on with LOAD: pop, return. */
extern "C" void emu_switch(void **save, void *load);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl emu_switch\n"
        ".hidden emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_switch, .-emu_switch\n");
#define ENTRY 6 /* word of the return address, of the words that a switch pops */
#define POPPED 7
#define ENTRY_SKEW 8 /* a function finds its stack 8 bytes off a multiple of 16 */
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl emu_switch\n"
        ".hidden emu_switch\n"
        ".type emu_switch, %function\n"
        "emu_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size emu_switch, .-emu_switch\n");
#define ENTRY 11 /* x30 */
#define POPPED 20
#define ENTRY_SKEW 0
#else
#error "write emu_switch for this architecture"
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
static void leave(struct fiber *from, const struct fiber *to, bool forever)
{
    __sanitizer_start_switch_fiber(forever ? nullptr : &from->sanitizer, to->stack, to->nbytes);
}
__attribute__((no_sanitize_address)) static void arrive(struct fiber *to, struct fiber *from)
{
    const void *bottom;
    size_t nbytes;
    __sanitizer_finish_switch_fiber(to ? to->sanitizer : nullptr, &bottom, &nbytes);
    if (from && !from->stack) { /* a thread's own stack, seen for the first time */
        from->stack = (char *)bottom;
        from->nbytes = nbytes;
    }
}
#else
static void leave(struct fiber *, const struct fiber *, bool)
{
}
static void arrive(struct fiber *, struct fiber *)
{
}
#endif

void fiber_init(struct fiber *fiber, void (*entry)(), char *stack, size_t nbytes)
{
    /* After the switch has popped its words and the return address, the stack pointer is what a
     * function finds when it is called. */
    uintptr_t top = ((uintptr_t)stack + nbytes) & ~(uintptr_t)15;
    void **words = (void **)(top - 256 - ENTRY_SKEW) - POPPED;
    memset(words, 0, POPPED * sizeof(void *));
    words[ENTRY] = (void *)entry;
    *fiber = {words, stack, nbytes, nullptr};
}

/* Not checked itself: a frame that is left for ever would leave its red zones on the stack. */
__attribute__((no_sanitize_address)) void fiber_switch(struct fiber *from, struct fiber *to,
                                                       bool leaves)
{
    leave(from, to, leaves);
    emu_switch(&from->stack_pointer, to->stack_pointer);
    arrive(from, nullptr);
}

void fiber_begin(struct fiber *root)
{
    arrive(nullptr, root);
}
