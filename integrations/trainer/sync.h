/* SPDX-License-Identifier: Apache-2.0 */
/* All that the trainer asks of wring: the one file to read for how a training program uses it.
 * Every call here dies with wring's own message if wring reports an error. */
#ifndef TRAINER_SYNC_H
#define TRAINER_SYNC_H

#include "model.h"

#include <stdbool.h>
#include <wring/wring.h>

struct sync {
    wring_context *context;
    wring_comm *comm;
    wring_codec *codec; /* of the gradients */
    wring_scheduler *scheduler;
    const struct model *model; /* whose gradients are registered */
    bool weighted;
    enum precision precision;
    uint16_t *narrow; /* the gradients in 16 bits, as the model's; NULL: they go as they are */

    /* What the small collectives use, which are of host memory: comm, unless its transport moves
     * device memory only. */
    wring_context *control_context; /* NULL: comm's */
    wring_comm *control;

    int rank, nranks;
    int local_nranks; /* ranks on this host */
};

/* SPEC, checked; NULL means the setting WRING_CODEC. To be freed. */
char *sync_codec_text(const char *spec);

/* ALGORITHM, checked against those that wring knows; NULL means the setting WRING_ALGORITHM.
 * To be freed. */
char *sync_algorithm_text(const char *algorithm);

/* Number of this process on its host, as the launcher says; 0 where none does. */
int sync_local_rank(void);

/* Join the other ranks, or be the only one where no launcher has spoken. A device must be open: the
 * context works on the one that is current. CODEC is that of the gradients; the small collectives
 * below stay exact. */
void sync_open(struct sync *sync, const char *codec, const char *algorithm);
void sync_close(struct sync *sync);

/* Names of the precisions, NULL at the end. */
extern const char *const precision_names[];

/* Register the gradients of MODEL, to be averaged in PRECISION over ranks and ACCUMULATE
 * micro-steps; WEIGHTED if these have not all as many samples. */
void sync_register(struct sync *sync, const struct model *model, size_t accumulate, bool weighted,
                   enum precision precision);

/* Where gradients are weighted: the current micro-step has COUNT samples. Of 0 samples there are no
 * gradients, and sync_ready() is not called. */
void sync_weigh(struct sync *sync, size_t count);

/* A model_ready_fn; ARG is the struct sync. */
void sync_ready(void *arg, int parameter);

/* End of a micro-step; after the LAST one all gradients are averages. */
wring_result sync_finish(struct sync *sync, bool last);

/* Sum VALUES over ranks, exactly as float64. */
void sync_sum(struct sync *sync, double *values, size_t count);

/* True if DIGEST is the same on all ranks. */
bool sync_all_equal(struct sync *sync, uint64_t digest);

#endif
