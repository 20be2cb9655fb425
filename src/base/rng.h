/* SPDX-License-Identifier: Apache-2.0 */
/* Random bits as a pure function of (seed, tensor, step, rank, block, element), the same in C and
 * CUDA: Philox4x32-10 (Salmon et al., SC 2011) once per block, then an integer mix per element. */
#ifndef WRI_BASE_RNG_H
#define WRI_BASE_RNG_H

#include <stdint.h>
#include <wring/plugin.h>

#include "base/hd.h"

struct wri_philox {
    uint32_t word[4];
};

static WRI_HD inline struct wri_philox wri_philox4x32_10(struct wri_philox counter, uint32_t key0,
                                                         uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * counter.word[0];
        uint64_t product1 = (uint64_t)0xCD9E8D57u * counter.word[2];
        struct wri_philox next = {
            {(uint32_t)(product1 >> 32) ^ counter.word[1] ^ key0, (uint32_t)product1,
             (uint32_t)(product0 >> 32) ^ counter.word[3] ^ key1, (uint32_t)product0}};
        counter = next;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/* The state from which a block's elements draw: one Philox call. */
static WRI_HD inline struct wri_philox wri_random_block(const struct wring_random_key *key,
                                                        uint64_t block)
{
    uint64_t low = key->seed ^ (key->step * 0x9E3779B97F4A7C15u);
    uint64_t high = key->tensor ^ ((uint64_t)key->rank << 32);
    struct wri_philox counter = {
        {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
    return wri_philox4x32_10(counter, (uint32_t)low, (uint32_t)(low >> 32));
}

/* 16 uniform bits for element I of the block, from the block's state. */
static WRI_HD inline uint32_t wri_random16(struct wri_philox state, uint32_t i)
{
    uint32_t x = state.word[0] + i * 0x9E3779B9u;
    x = (x ^ (x >> 16) ^ state.word[1]) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13) ^ state.word[2]) * 0xC2B2AE35u;
    return (x ^ state.word[3]) >> 16;
}

#endif
