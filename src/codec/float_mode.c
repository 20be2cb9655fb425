/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point mode that codecs run in: round to nearest, denormals kept. Programs set
 * others (many deep-learning frameworks flush denormals to zero), and the same bits are promised
 * to all. */
#include "codec/codec.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { NEAREST_ALL_MASKED = 0x1f80 }; /* the mode that the ABI starts a process with */

unsigned wri_float_mode_enter(void)
{
    unsigned saved = _mm_getcsr();
    _mm_setcsr(NEAREST_ALL_MASKED);
    return saved;
}

void wri_float_mode_leave(unsigned saved)
{
    _mm_setcsr(saved);
}

#elif defined(__aarch64__)

unsigned wri_float_mode_enter(void)
{
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return (unsigned)saved;
}

void wri_float_mode_leave(unsigned saved)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)saved));
}

#else
#error "how is the floating-point mode set on this processor?"
#endif
