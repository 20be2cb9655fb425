/* SPDX-License-Identifier: Apache-2.0 */
/* What people are told about the stages: wring-info and docs/codecs.md show exactly this. */
#include "codec/spec.h"

static void add_parameter(const struct wring_param *param, bool first, struct wri_text *text)
{
    wri_text_add(text, "%s%s=", first ? "" : "\n", param->name);
    wri_spec_value(param, param->def, text);
    wri_text_add(text, ": %s", param->help);
}

bool wri_codec_info(size_t index, wring_info *info_out)
{
    static _Thread_local char form[320], parameters[640];
    const struct wring_codec_ops *ops = wri_codec_at(index);
    if (!ops)
        return false;
    struct wri_text text = {.at = form, .size = sizeof(form)};
    wri_spec_form(ops, &text);
    text = (struct wri_text){.at = parameters, .size = sizeof(parameters)};
    parameters[0] = '\0';
    for (size_t i = 0; i < ops->nparams; i++)
        add_parameter(&ops->params[i], i == 0, &text);
    *info_out = (wring_info){ops->name, ops->summary, form, parameters};
    return true;
}
