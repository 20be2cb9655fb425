/* SPDX-License-Identifier: Apache-2.0 */
/* How much does each micro-step count? The weights of one step: this rank's, and their total over
 * all ranks, without which nobody can divide. */
#ifndef WRI_SCHEDULER_WEIGHTS_H
#define WRI_SCHEDULER_WEIGHTS_H

#include <wring/wring.h>

struct wri_weights {
    bool fixed;     /* that of this micro-step */
    double current; /* weight of this micro-step */
    double sum;     /* of this step's micro-steps on this rank */
    bool known;     /* `total` */
    double total;   /* of all ranks, the same bits on each */
    wring_request *request;
    double *there; /* `total` in device memory, where the transport moves nothing else; or NULL */
};

/* The weight of the current micro-step is VALUE. */
void wri_weights_fix(struct wri_weights *weights, double value);

/* Start to add up `sum` over the ranks of COMM, unless that was done in this step. */
wring_status wri_weights_start(struct wri_weights *weights, wring_comm *comm);

/* Whether `total` is known by now: WRING_AGAIN if not, unless WAIT. After start. */
wring_status wri_weights_test(struct wri_weights *weights, wring_comm *comm, bool wait);

/* End of a micro-step, and of a step. */
void wri_weights_next_micro(struct wri_weights *weights);
void wri_weights_next_step(struct wri_weights *weights);

#endif
