/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model: latency and speed of the link as the settings say, and assumed codec speeds. */
#include "planner/cost.h"

/* Seconds per byte of float32 to encode or decode: of the order of memory bandwidth. */
#define CODEC_S_PER_BYTE 0.2e-9

/* A piece should stay in cache while it is encoded, and should be worth a message when it is. */
#define PIECE_NBYTES (256u << 10)
#define PIECE_NBYTES_MAX (4u << 20)
#define MESSAGE_NBYTES (64u << 10)

/* Enqueued as a whole, pieces follow each other on one stream: they only bound the memory, and each
 * costs launches. */
#define PIECE_NBYTES_ORDERED (64u << 20)

/* Encoded bytes per byte of DTYPE. Measured on many elements, so that small print does not
 * count. */
static double ratio_of(const wring_codec *codec, wring_dtype dtype)
{
    size_t sample = 1u << 20;
    return (double)wri_codec_nbytes(codec, dtype, sample) /
           (double)(sample * wring_dtype_size(dtype));
}

struct wring_cost wri_cost_of(const wring_comm *comm, const wring_call *call,
                              const wring_codec *codec, size_t count)
{
    const struct wri_config *config = &comm->context->config;
    double dense = (double)count * (double)wring_dtype_size(call->dtype);
    return (struct wring_cost){.size = sizeof(struct wring_cost),
                               .kind = call->kind,
                               .nranks = comm->nranks,
                               .dense_nbytes = dense,
                               .encoded_nbytes = dense * ratio_of(codec, call->dtype),
                               .latency_s = config->link_latency_us * 1e-6,
                               .s_per_byte = 8e-9 / config->link_gbps,
                               .encode_s = dense * CODEC_S_PER_BYTE,
                               .decode_s = dense * CODEC_S_PER_BYTE};
}

size_t wri_cost_piece_count(const wring_comm *comm, wring_dtype dtype, const wring_codec *codec)
{
    double nbytes = (double)comm->context->config.piece_nbytes;
    if (nbytes == 0 && wri_context_ordered(comm->context)) {
        nbytes = PIECE_NBYTES_ORDERED;
    } else if (nbytes == 0) {
        nbytes = MESSAGE_NBYTES / ratio_of(codec, dtype);
        nbytes = nbytes < PIECE_NBYTES ? PIECE_NBYTES : nbytes;
        nbytes = nbytes > PIECE_NBYTES_MAX ? PIECE_NBYTES_MAX : nbytes;
    }
    size_t count = (size_t)(nbytes / (double)wring_dtype_size(dtype));
    return count > 0 ? count : 1;
}
