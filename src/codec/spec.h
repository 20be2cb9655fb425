/* SPDX-License-Identifier: Apache-2.0 */
/* From the text of a codec to its chain, and what is told to people about stages. */
#ifndef WRI_CODEC_SPEC_H
#define WRI_CODEC_SPEC_H

#include "codec/codec.h"
#include "codec/text.h"

/* Fill CODEC, which must be zeroed and stay where it is. WRING_E_SPEC as wri_codec_create. */
wring_status wri_spec_parse(const char *spec, struct wring_codec *codec);

/* Add what a stage accepts to TEXT: "topk[:[ratio=]1e-09..1][,unit=chunk|tensor]". */
void wri_spec_form(const struct wring_codec_ops *ops, struct wri_text *text);

/* Add a value of PARAM to TEXT as a spec writes it. */
void wri_spec_value(const struct wring_param *param, double value, struct wri_text *text);

#endif
