/* SPDX-License-Identifier: Apache-2.0 */
/* Decides where scales and codes of a block quantiser stand; the kernels fill them. */
#include "codec/block.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum { BLOCK, ROUND };

const struct wring_param wri_integer_params[2] = {
    [BLOCK] = {.name = "block",
               .help = "elements that share a scale, a multiple of 32",
               .def = 128,
               .min = WRI_BLOCK_MIN,
               .max = WRI_BLOCK_MAX,
               .integer = true},
    [ROUND] = {.name = "round",
               .help = "to the nearest code, or up or down at random without bias",
               .choices = "nearest stochastic",
               .max = 1,
               .integer = true},
};

bool wri_integer_random(const struct wring_stage *stage)
{
    return stage->param[ROUND] != 0;
}

size_t wri_block_size(const struct wring_stage *stage)
{
    return (size_t)stage->param[BLOCK];
}

static size_t codes_nbytes(unsigned bits, size_t count)
{
    return count / 8 * bits + wri_div_up(count % 8 * bits, 8);
}

static size_t scales_nbytes(const struct wring_stage *stage, size_t count)
{
    return wri_div_up(count, wri_block_size(stage)) * sizeof(float);
}

size_t wri_block_nbytes(const struct wring_stage *stage, unsigned bits, size_t count)
{
    return scales_nbytes(stage, count) + wri_round_up(codes_nbytes(bits, count), 4);
}

wring_status wri_block_check(const struct wring_stage *stage, size_t multiple)
{
    if (wri_block_size(stage) % multiple != 0)
        WRI_FAIL(WRING_E_SPEC, "%s: block=%zu is not a multiple of %zu", stage->ops->name,
                 wri_block_size(stage), multiple);
    return WRING_OK;
}

wring_status wri_block_encode(struct wring_encode *args, unsigned bits, wri_quantise_fn quantise,
                              bool random)
{
    size_t block = wri_block_size(args->stage);
    struct wri_blocks in = {
        .source = {.src = args->src,
                   .residual_in = args->residual_in,
                   .residual_out = args->residual_out,
                   .beta = args->beta,
                   .count = args->count},
        .block = block,
        .random = random ? &args->random : NULL,
        .first_block = args->first / block,
    };
    unsigned char *codes = (unsigned char *)args->dst + scales_nbytes(args->stage, args->count);
    size_t used = codes_nbytes(bits, args->count);
    args->nonfinite |= quantise(&in, args->dst, codes);
    memset(codes + used, 0, wri_round_up(used, 4) - used);
    return WRING_OK;
}

wring_status wri_block_decode(const struct wring_decode *args, unsigned bits,
                              wri_dequantise_fn dequantise)
{
    size_t expected = wri_block_nbytes(args->stage, bits, args->count);
    if (args->nbytes != expected)
        WRI_FAIL(WRING_E_CORRUPT, "%s: %zu elements in %zu bytes instead of %zu",
                 args->stage->ops->name, args->count, args->nbytes, expected);
    const unsigned char *codes =
        (const unsigned char *)args->src + scales_nbytes(args->stage, args->count);
    dequantise(args->dst, args->count, wri_block_size(args->stage), args->src, codes, args->add);
    return WRING_OK;
}
