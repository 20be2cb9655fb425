/* SPDX-License-Identifier: Apache-2.0 */
/* Rules by name: the first glob that matches decides. They are parsed once, when a scheduler is
 * created, so that a mistake is refused before any parameter is registered. */
#include "scheduler/rules.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"

#define FILE_NBYTES_MAX (1 << 20)

struct wri_rule {
    char *glob, *reason;
    wring_codec *codec;
};

/* A part of the text without the blanks around it; where it is, for people. */
struct span {
    const char *at;
    size_t length;
};

struct parser {
    const char *source, *text;
    struct span line;
};

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct span trimmed(const char *begin, const char *end)
{
    while (begin < end && blank(*begin))
        begin++;
    while (begin < end && blank(end[-1]))
        end--;
    return (struct span){begin, (size_t)(end - begin)};
}

static size_t line_number(const struct parser *parser)
{
    size_t number = 1;
    for (const char *c = parser->text; c < parser->line.at; c++)
        number += *c == '\n';
    return number;
}

static size_t column(const struct parser *parser, const char *at)
{
    const char *begin = at;
    while (begin > parser->text && begin[-1] != '\n')
        begin--;
    return (size_t)(at - begin) + 1;
}

static wring_status refuse(const struct parser *parser, const char *at, const char *why)
{
    WRI_FAIL(WRING_E_CONFIG,
             "%s, line %zu, character %zu: %s in \"%.*s\"; a rule is: glob = codec, as in "
             "*.bias = none",
             parser->source, line_number(parser), column(parser, at), why, (int)parser->line.length,
             parser->line.at);
}

static wring_status copy_span(struct span span, char **out)
{
    void *block;
    WRI_TRY(wri_alloc(span.length + 1, 1, &block));
    memcpy(block, span.at, span.length);
    *out = block;
    return WRING_OK;
}

static wring_status parse_codec(const struct parser *parser, struct span span, wring_codec **out)
{
    char *spec;
    WRI_TRY(copy_span(span, &spec));
    wring_status status = wri_codec_create(spec, out);
    wri_free(spec);
    if (status != WRING_OK)
        return wri_fail_context(status, "%s, line %zu, character %zu", parser->source,
                                line_number(parser), column(parser, span.at));
    return WRING_OK;
}

static wring_status parse_rule(const struct parser *parser, size_t number, struct wri_rule *rule)
{
    struct span line = parser->line;
    const char *end = line.at + line.length, *equals = memchr(line.at, '=', line.length);
    if (equals == NULL)
        return refuse(parser, end, "'=' is missing");
    struct span glob = trimmed(line.at, equals), spec = trimmed(equals + 1, end);
    if (glob.length == 0)
        return refuse(parser, line.at, "the name is missing");
    if (spec.length == 0)
        return refuse(parser, end, "the codec is missing");
    WRI_TRY(copy_span(glob, &rule->glob));
    char reason[160];
    snprintf(reason, sizeof reason, "rule %zu of %s: %s", number, parser->source, rule->glob);
    WRI_TRY(wri_strdup(reason, &rule->reason));
    return parse_codec(parser, spec, &rule->codec);
}

/* The next line that holds anything; false if there is none. */
static bool next_line(struct parser *parser, const char **rest)
{
    while (**rest) {
        const char *begin = *rest, *end = begin + strcspn(begin, ";\n");
        const char *stop = memchr(begin, '#', (size_t)(end - begin));
        if (stop) /* a comment may hold a ';' */
            end = begin + strcspn(begin, "\n");
        *rest = *end ? end + 1 : end;
        parser->line = trimmed(begin, stop ? stop : end);
        if (parser->line.length > 0)
            return true;
    }
    return false;
}

static wring_status parse(struct wri_rules *rules, const char *source, const char *text)
{
    struct parser parser = {.source = source, .text = text};
    size_t count = 0;
    void *block;
    for (const char *rest = text; next_line(&parser, &rest);)
        count++;
    WRI_TRY(wri_alloc(count, sizeof(struct wri_rule), &block));
    rules->rule = block;
    rules->count = count;
    const char *rest = text;
    for (size_t i = 0; next_line(&parser, &rest); i++)
        WRI_TRY(parse_rule(&parser, i + 1, &rules->rule[i]));
    return WRING_OK;
}

static wring_status read_file(const char *path, char **text_out)
{
    void *block;
    WRI_TRY(wri_alloc(FILE_NBYTES_MAX + 1, 1, &block));
    char *text = block;
    FILE *file = fopen(path, "re");
    size_t nbytes = file ? fread(text, 1, FILE_NBYTES_MAX + 1, file) : 0;
    bool bad = !file || ferror(file);
    int error = errno;
    if (file)
        fclose(file);
    wring_status status = WRING_OK;
    if (bad)
        status = wri_fail(WRING_E_CONFIG, "rules in %s: %s", path, strerror(error));
    else if (nbytes > FILE_NBYTES_MAX)
        status = wri_fail(WRING_E_CONFIG, "rules in %s: more than 1 MiB", path);
    else if (memchr(text, '\0', nbytes) != NULL)
        status = wri_fail(WRING_E_CONFIG, "rules in %s: this is no text", path);
    if (status != WRING_OK)
        wri_free(text);
    else
        *text_out = text;
    return status;
}

wring_status wri_rules_open(struct wri_rules *rules, const char *source, const char *text)
{
    char *from_file = NULL;
    *rules = (struct wri_rules){0};
    if (text[0] == '@') {
        source = text + 1;
        WRI_TRY(read_file(source, &from_file));
        text = from_file;
    }
    wring_status status = parse(rules, source, text);
    wri_free(from_file);
    if (status != WRING_OK)
        wri_rules_close(rules);
    return status;
}

void wri_rules_close(struct wri_rules *rules)
{
    for (size_t i = 0; i < rules->count; i++) {
        wri_codec_destroy(rules->rule[i].codec);
        wri_free(rules->rule[i].reason);
        wri_free(rules->rule[i].glob);
    }
    wri_free(rules->rule);
    *rules = (struct wri_rules){0};
}

const wring_codec *wri_rules_find(const struct wri_rules *rules, const char *name,
                                  const char **reason_out)
{
    for (size_t i = 0; i < rules->count; i++)
        if (fnmatch(rules->rule[i].glob, name, 0) == 0) {
            *reason_out = rules->rule[i].reason;
            return rules->rule[i].codec;
        }
    return NULL;
}
