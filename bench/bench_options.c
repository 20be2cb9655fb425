/* SPDX-License-Identifier: Apache-2.0 */
/* Which options every subcommand has. Letters and suffixes are those of nccl-tests. */
#include "bench_options.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { OPTION_CODEC = 0x100, OPTION_JSON };

void bench_list_add(struct bench_list *list, const char *option, const char *item)
{
    if (list->n == BENCH_LIST_MAX)
        die("%s: at most %d", option, BENCH_LIST_MAX);
    list->item[list->n++] = item;
}

void bench_list_default(struct bench_list *list, const char *const *items)
{
    bool empty = list->n == 0;
    for (size_t i = 0; empty && items[i]; i++)
        bench_list_add(list, "default", items[i]);
}

size_t bench_parse_nbytes(const char *option, const char *text)
{
    static const char suffixes[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const char *suffix = *end ? strchr(suffixes, *end & ~0x20) : NULL;
    size_t factor = suffix ? (size_t)1 << (10 * (suffix - suffixes + 1)) : 1;
    if (suffix)
        end++;
    if (end == text || *text == '-' || *end || errno || value > SIZE_MAX / 2 / factor)
        die("%s: '%s' is not a size such as 4096, 256K, 64M or 1G", option, text);
    return (size_t)value * factor;
}

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
    struct bench_common *common = state->input;
    switch (key) {
    case OPTION_CODEC:
        bench_list_add(&common->codecs, "--codec", arg);
        return 0;
    case OPTION_JSON:
        common->json = true;
        return 0;
    case 'n':
        common->iterations = (int)parse_int("--iters", arg, 1, INT_MAX);
        return 0;
    case 'w':
        common->warmup = (int)parse_int("--warmup_iters", arg, 0, INT_MAX);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option common_options[] = {
    {"codec", OPTION_CODEC, "SPEC", 0, "codec to measure; may be given several times", 0},
    {"iters", 'n', "N", 0, "timed iterations", 0},
    {"warmup_iters", 'w', "N", 0, "iterations before timing starts", 0},
    {"json", OPTION_JSON, NULL, 0, "print one JSON object for each row", 0},
    {0},
};

const struct argp bench_common_argp = {.options = common_options, .parser = parse_common};
