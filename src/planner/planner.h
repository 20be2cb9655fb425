/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm, codec, piece size? The scheduler and the API start every collective here. */
#ifndef WRI_PLANNER_PLANNER_H
#define WRI_PLANNER_PLANNER_H

#include <wring/wring.h>

struct wri_step;

/* Check CALL against the communicator, choose a plan, start it. The contract of wring_comm_start.
 * What it changes waits for the context's step if one was begun, else for STEP; NULL: for
 * nothing. */
wring_status wri_planner_start(wring_comm *comm, const wring_call *call, struct wri_step *step,
                               wring_request **request_out);

/* The contract of wring_comm_start_group. */
wring_status wri_planner_start_group(wring_comm *comm, const wring_call *calls, size_t ncalls,
                                     wring_request **requests_out);

#endif
