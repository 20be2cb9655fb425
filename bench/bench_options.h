/* SPDX-License-Identifier: Apache-2.0 */
/* Options that the subcommands share, and the readers of their values. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#define BENCH_LIST_MAX 32

struct bench_list {
    const char *item[BENCH_LIST_MAX];
    size_t n;
};

struct bench_common {
    struct bench_list codecs; /* --codec, repeatable: a spec may hold commas */
    int iterations, warmup;
    bool json;
};

/* Child parser of every subcommand; its input is a struct bench_common, defaults filled in. */
extern const struct argp bench_common_argp;

void bench_list_add(struct bench_list *list, const char *option, const char *item);

/* Fill an empty LIST from the NULL-terminated ITEMS. */
void bench_list_default(struct bench_list *list, const char *const *items);

/* A number with suffix K, M or G (powers of 1024); dies naming OPTION. */
size_t bench_parse_nbytes(const char *option, const char *text);

#endif
