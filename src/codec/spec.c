/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a codec spec means: stages joined by '+', each `name` or `name:value,key=value`,
 * the first parameter with or without its key. Everything is driven by the tables of the stages,
 * so a new stage brings its own syntax, and every refusal can say where it is and what would be
 * accepted. */
#include "codec/spec.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/status.h"
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct part {
    const char *at; /* NULL: nothing left */
    size_t length;
};

struct parser {
    const char *spec;
    size_t number; /* of the stage, from 1 */
    struct part stage;
    const struct wring_codec_ops *ops; /* NULL before its name is known */
};

/* Cut the part before SEPARATOR, or all, off REST. An empty part is a part. */
static bool next_part(struct part *rest, char separator, struct part *part_out)
{
    if (!rest->at)
        return false;
    const char *end = memchr(rest->at, separator, rest->length);
    *part_out = (struct part){rest->at, end ? (size_t)(end - rest->at) : rest->length};
    rest->length -= part_out->length + (end != NULL);
    rest->at = end ? end + 1 : NULL;
    return true;
}

void wri_spec_value(const struct wring_param *param, double value, struct wri_text *text)
{
    size_t length = 0;
    const char *word = param->choices ? wri_word_at(param->choices, (size_t)value, &length) : "";
    if (param->choices)
        wri_text_add(text, "%.*s", (int)length, word);
    else
        wri_text_add_real(text, value);
}

static void add_accepted(const struct wring_param *param, struct wri_text *text)
{
    if (!param->choices) {
        wri_text_add_real(text, param->min);
        wri_text_add(text, "..");
        wri_text_add_real(text, param->max);
        return;
    }
    for (const char *c = param->choices; *c; c++)
        wri_text_add(text, "%c", *c == ' ' ? '|' : *c);
}

void wri_spec_form(const struct wring_codec_ops *ops, struct wri_text *text)
{
    wri_text_add(text, "%s", ops->name);
    for (size_t i = 0; i < ops->nparams; i++) {
        wri_text_add(text, i == 0 ? "[:[%s=]" : "[,%s=", ops->params[i].name);
        add_accepted(&ops->params[i], text);
        wri_text_add(text, "]");
    }
}

static void add_names(struct wri_text *text)
{
    const struct wring_codec_ops *ops;
    for (size_t i = 0; (ops = wri_codec_at(i)); i++)
        wri_text_add(text, "%s%s", i ? ", " : "", ops->name);
}

/* Fail with WRING_E_SPEC: where, why, and what is accepted there. */
__attribute__((format(printf, 2, 3))) static wring_status refuse(const struct parser *parser,
                                                                 const char *format, ...)
{
    char why[160], accepted[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    struct wri_text text = {.at = accepted, .size = sizeof(accepted)};
    if (parser->ops)
        wri_spec_form(parser->ops, &text);
    else
        add_names(&text);
    return wri_fail(WRING_E_SPEC,
                    "codec \"%s\": stage %zu \"%.*s\", at character %zu: %s; accepted: %s",
                    parser->spec, parser->number, (int)parser->stage.length, parser->stage.at,
                    (size_t)(parser->stage.at - parser->spec) + 1, why, accepted);
}

static bool equals(struct part part, const char *word, size_t length)
{
    return part.length == length && memcmp(part.at, word, length) == 0;
}

static wring_status parse_choice(const struct parser *parser, const struct wring_param *param,
                                 struct part value, double *out)
{
    size_t length;
    for (size_t i = 0;; i++) {
        const char *word = wri_word_at(param->choices, i, &length);
        if (length == 0)
            return refuse(parser, "%s has no choice \"%.*s\"", param->name, (int)value.length,
                          value.at);
        if (equals(value, word, length)) {
            *out = (double)i;
            return WRING_OK;
        }
    }
}

static wring_status parse_value(const struct parser *parser, const struct wring_param *param,
                                struct part value, double *out)
{
    int length = (int)value.length;
    if (param->choices)
        return parse_choice(parser, param, value, out);
    if (!wri_parse_real(value.at, value.length, out))
        return refuse(parser, "%s is not a number: \"%.*s\"", param->name, length, value.at);
    if (param->integer && *out != floor(*out))
        return refuse(parser, "%s is not an integer: %.*s", param->name, length, value.at);
    if (!(*out >= param->min && *out <= param->max))
        return refuse(parser, "%s is out of range: %.*s", param->name, length, value.at);
    *out += 0.0; /* no negative zero */
    return WRING_OK;
}

/* One argument, the INDEX-th of its stage; GIVEN has a bit for each parameter that has been set. */
static wring_status parse_argument(const struct parser *parser, struct part argument, size_t index,
                                   unsigned *given, struct wring_stage *stage)
{
    const struct wring_codec_ops *ops = parser->ops;
    struct part rest = argument, key, value;
    size_t which = 0;
    next_part(&rest, '=', &key);
    if (rest.at) {
        value = rest;
        while (which < ops->nparams &&
               !equals(key, ops->params[which].name, strlen(ops->params[which].name)))
            which++;
        if (which == ops->nparams)
            return refuse(parser, "no parameter \"%.*s\"", (int)key.length, key.at);
    } else {
        value = argument;
        if (index > 0 || ops->nparams == 0)
            return refuse(parser, "unexpected \"%.*s\"", (int)value.length, value.at);
    }
    if (*given >> which & 1)
        return refuse(parser, "%s is given twice", ops->params[which].name);
    *given |= 1u << which;
    return parse_value(parser, &ops->params[which], value, &stage->param[which]);
}

static wring_status parse_stage(struct parser *parser, struct wring_stage *stage)
{
    struct part arguments = parser->stage, name, argument;
    parser->ops = NULL;
    next_part(&arguments, ':', &name);
    const struct wring_codec_ops *ops = wri_codec_find(name.at, name.length);
    if (!ops)
        return refuse(parser, name.length ? "unknown stage" : "empty stage");
    stage->ops = parser->ops = ops;
    for (size_t i = 0; i < ops->nparams; i++)
        stage->param[i] = ops->params[i].def;
    unsigned given = 0;
    for (size_t i = 0; next_part(&arguments, ',', &argument); i++)
        WRI_TRY(parse_argument(parser, argument, i, &given, stage));
    wring_status status = ops->check ? ops->check(stage) : WRING_OK;
    return status == WRING_OK ? WRING_OK : refuse(parser, "%s", wring_error_message());
}

/* Stages stand in the order of their kinds, one of a kind: anything else has no meaning. */
static wring_status check_order(const struct parser *parser, int previous)
{
    static const char *const kinds[] = {"feedback", "rotation", "selection", "quantiser",
                                        "lossless"};
    if ((int)parser->ops->order > previous)
        return WRING_OK;
    return refuse(parser,
                  "a %s stage cannot follow a %s stage (order: feedback, rotation, selection, "
                  "quantiser, lossless, one of each)",
                  kinds[parser->ops->order], kinds[previous]);
}

/* Feedback is a property of the chain, not a link of it. */
static void append(struct wring_codec *codec, const struct wring_stage *stage)
{
    if (stage->ops->order == WRING_ORDER_FEEDBACK) {
        codec->feedback = true;
        codec->beta = (float)stage->param[0];
        codec->residual_bits = 8 << (int)stage->param[1];
        return;
    }
    codec->stage[codec->nstages++] = *stage;
}

/* What stands where a spec names no quantiser; it is not written behind other stages. */
static const struct wring_codec_ops *none_ops(void)
{
    return wri_codec_find("none", 4);
}

static void append_none(struct wring_codec *codec)
{
    append(codec, &(struct wring_stage){.ops = none_ops()});
}

static bool has_quantiser(const struct wring_codec *codec)
{
    return codec->nstages > 0 &&
           codec->stage[codec->nstages - 1].ops->order >= WRING_ORDER_QUANTISER;
}

/* Write STAGE as its shortest spec. */
static void add_canonical(const struct wring_stage *stage, struct wri_text *text)
{
    if (text->used > 0 && stage->ops == none_ops())
        return;
    wri_text_add(text, "%s%s", text->used ? "+" : "", stage->ops->name);
    bool any = false;
    for (size_t i = 0; i < stage->ops->nparams; i++) {
        const struct wring_param *param = &stage->ops->params[i];
        if (stage->param[i] == param->def)
            continue;
        wri_text_add(text, "%s", any ? "," : ":");
        if (i > 0)
            wri_text_add(text, "%s=", param->name);
        wri_spec_value(param, stage->param[i], text);
        any = true;
    }
}

/* Link the stages and settle what follows from the whole. A lone lossless stage loses nothing, so
 * it has no use for feedback. */
static void finish(struct wring_codec *codec)
{
    if (!has_quantiser(codec))
        append_none(codec);
    for (size_t i = 0; i + 1 < codec->nstages; i++)
        codec->stage[i].next = &codec->stage[i + 1];
    codec->exact = codec->nstages == 1 && (codec->stage[0].ops->caps & WRING_CODEC_LOSSLESS);
    codec->feedback &= !codec->exact;
    codec->digest = wri_hash(codec->spec, strlen(codec->spec), 0);
}

wring_status wri_spec_parse(const char *spec, struct wring_codec *codec)
{
    struct parser parser = {.spec = spec};
    struct part rest = {spec, strlen(spec)};
    struct wri_text text = {.at = codec->spec, .size = sizeof(codec->spec)};
    int order = -1;
    if (rest.length >= WRI_SPEC_MAX)
        WRI_FAIL(WRING_E_SPEC, "codec \"%.32s...\" is longer than %d characters", spec,
                 WRI_SPEC_MAX - 1);
    while (next_part(&rest, '+', &parser.stage)) {
        struct wring_stage stage = {0};
        parser.number++;
        WRI_TRY(parse_stage(&parser, &stage));
        WRI_TRY(check_order(&parser, order));
        order = stage.ops->order;
        if (order == WRING_ORDER_LOSSLESS && !has_quantiser(codec))
            append_none(codec);
        append(codec, &stage);
        add_canonical(&stage, &text);
    }
    assert(!text.full); /* one stage of each kind, and their parameters, are far shorter */
    finish(codec);
    return WRING_OK;
}
