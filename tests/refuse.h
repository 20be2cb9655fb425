/* SPDX-License-Identifier: Apache-2.0 */
/* A system that refuses: which call, which one of them, and how often. Tests whose row in
 * CMakeLists.txt says so are linked with lib/refuse.c. */
#ifndef REFUSE_H
#define REFUSE_H

#include <stdbool.h>

/* After SKIP good calls of CALL, the next TIMES end with -1 and ERROR. */
void refuse(const char *call, int skip, int times, int error);

/* Nothing is refused any more. Has it come to that? */
bool was_refused(void);

/* Names have this address in front of their own; NULL: they have not. */
void resolve_first_to(const char *host);

#endif
