/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm, codec, piece size? The scheduler and the API start every collective here. */
#ifndef WRI_PLANNER_PLANNER_H
#define WRI_PLANNER_PLANNER_H

#include <wring/wring.h>

/* Check CALL against the communicator, choose a plan, start it. The contract of
 * wring_comm_start. */
wring_status wri_planner_start(wring_comm *comm, const wring_call *call,
                               wring_request **request_out);

#endif
