/* SPDX-License-Identifier: Apache-2.0 */
/* `--spawn N`: a program starts N copies of itself as the ranks of one group on this machine. */
#ifndef SPAWN_H
#define SPAWN_H

#include <stdbool.h>

/* Call first in main, before any thread or library call. Without `--spawn N` or `--spawn=N` among
 * the arguments it returns. With it, this process becomes the launcher and never returns: N
 * children run the same program with the other arguments and find in the environment who they are
 * (WRING_RANK and its like). Signals are passed on. When one rank fails, the others get a moment to
 * report what they saw and are then ended. The exit status is the worst of the ranks', 128 + signal
 * for a killed one; no child outlives the launcher. With OUTLIVE, ranks that were killed by SIGKILL
 * are told of and count for nothing, as long as another one is left. */
void spawn_if_asked(int argc, char **argv, bool outlive);

#endif
