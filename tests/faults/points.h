/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named points inside the library where a test program can die, stop, or sleep for a moment. The
 * library knows nothing of them: the linker puts them in front of its functions (--wrap, see
 * CMakeLists.txt), in programs that link the static library and points.c. They work only where one
 * object file calls another.
 */
#ifndef WRING_TESTS_POINTS_H
#define WRING_TESTS_POINTS_H

/* Read from the environment, once:
 *   FAULT_POINT=NAME[:N]  at the N-th time (default 1) that point NAME is reached after FAULT_ARM
 *                         was called: print "killed NANOSECONDS" and raise FAULT_SIGNAL
 *   FAULT_SIGNAL=NUMBER   default 9
 *   FAULT_SLEEP=US:SEED   at every point, sleep 0 to US microseconds, a quarter of the times
 * Names: join (also before points_arm), encode, scatter, gather, decode, end, destroy. */
void points_arm(void);

#endif
