/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of wring-bench: each parses its own command line and returns an exit status. */
#ifndef BENCH_H
#define BENCH_H

int bench_codec(int argc, char **argv);
int bench_allreduce(int argc, char **argv);

#endif
