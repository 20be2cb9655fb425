/* SPDX-License-Identifier: Apache-2.0 */
/* wring-bench: which subcommand, and does it start ranks of its own? */
#include "bench.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
    bool group; /* of ranks: knows --spawn */
} commands[] = {
    {"allreduce", "time and correctness of all-reduce between ranks, compressed and not",
     bench_allreduce, true},
    {"codec", "speed, size and error of codecs on one core", bench_codec, false},
};
#define NCOMMANDS (sizeof commands / sizeof commands[0])

static void print_help(FILE *stream)
{
    fprintf(stream, "Usage: wring-bench COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        fprintf(stream, "  %-12s %s\n", commands[i].name, commands[i].help);
    fprintf(stream, "\n'wring-bench COMMAND --help' lists the options of a command.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) {
            if (commands[i].group)
                spawn_if_asked(argc, argv, false);
            char full_name[64];
            snprintf(full_name, sizeof full_name, "wring-bench %s", name);
            argv[1] = full_name;
            return commands[i].run(argc - 1, argv + 1);
        }
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    print_help(help ? stdout : stderr);
    return help ? EXIT_SUCCESS : EXIT_FAILURE;
}
