/* SPDX-License-Identifier: Apache-2.0 */
/* ef: error feedback. What the rest of the chain lost of a gradient is kept as the tensor's
 * residual and added to the next one (F. Seide et al., Interspeech 2014; Karimireddy et al., ICML
 * 2019):
 *
 *     p = gradient + beta * residual;  residual = p - decoded(encoded(p))
 *
 * It puts nothing on the wire, and has no code of its own: every codec takes and gives the residual
 * in the pass in which it encodes, so the parser only notes in the chain that it is wanted. */
#include "codec/codec.h"

static const struct wring_param params[] = {
    {.name = "beta", .help = "weight of the residual", .def = 1, .min = 0, .max = 1},
    {.name = "bits",
     .help = "of an element of the residual in memory, on the host",
     .choices = "8 16 32",
     .def = 2},
};

const struct wring_codec_ops wri_codec_ef = {
    .size = sizeof(wri_codec_ef),
    .name = "ef",
    .summary = "error feedback: what the rest of the chain loses is added to the next gradient",
    .wire_id = 90,
    .order = WRING_ORDER_FEEDBACK,
    .size_class = WRING_SIZE_FIXED,
    .params = params,
    .nparams = sizeof(params) / sizeof(*params),
};
