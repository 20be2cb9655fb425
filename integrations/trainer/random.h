/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers as a pure function of (seed, stream, counter): every rank can draw any of them, in
 * any order, and gets the same. The mix is the finaliser of SplitMix64 (Steele et al., OOPSLA
 * 2014). */
#ifndef TRAINER_RANDOM_H
#define TRAINER_RANDOM_H

#include <stdint.h>

static inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* 64 random bits. */
static inline uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint64_t key = random_mix(random_mix(seed + 0x9E3779B97F4A7C15u) ^ stream);
    return random_mix(key + (counter + 1) * 0x9E3779B97F4A7C15u);
}

/* Uniform in 0..n-1. */
static inline uint64_t random_below(uint64_t bits, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)bits * n) >> 64);
}

/* Uniform in [-1, 1), exact in float32. */
static inline float random_signed(uint64_t bits)
{
    return (float)(int32_t)(bits >> 40) * 0x1p-23f - 1.0f;
}

#endif
