/* SPDX-License-Identifier: Apache-2.0 */
/* All that the trainer asks of wring: the one file to read for how a training program uses it.
 * Every call here dies with wring's own message if wring reports an error, but for lost ranks where
 * that is wanted. */
#ifndef TRAINER_SYNC_H
#define TRAINER_SYNC_H

#include "checkpoint.h"
#include "model.h"

#include <stdbool.h>
#include <wring/wring.h>

struct sync {
    wring_context *context;
    wring_comm *comm;
    wring_codec *codec; /* of the gradients */
    wring_scheduler *scheduler;
    const struct model *model; /* whose gradients are registered */
    size_t accumulate;
    bool weighted;
    enum precision precision;
    char *codec_text; /* as wring writes it */

    bool shrinks; /* lost ranks are no error, but */
    bool failed;  /* noted here; then all calls but sync_shrink() do nothing */
    void *kept;   /* what wring kept on this rank, from sync_shrink() to sync_register() */
    size_t kept_nbytes;
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

/* All ranks are ready to train: from here on they go on without those that are lost. Until then the
 * loss of one ends the run. */
void sync_survive(struct sync *sync);

/* Names of the precisions, NULL at the end. */
extern const char *const precision_names[];

/* Register the gradients of MODEL, to be averaged in PRECISION over ranks and ACCUMULATE
 * micro-steps; WEIGHTED if these have not all as many samples. Again after sync_shrink(). */
void sync_register(struct sync *sync, const struct model *model, size_t accumulate, bool weighted,
                   enum precision precision);

/* Where gradients are weighted: the current micro-step has COUNT samples. Of 0 samples there are no
 * gradients, and sync_ready() is not called. */
void sync_weigh(struct sync *sync, size_t count);

/* A model_ready_fn; ARG is the struct sync. */
void sync_ready(void *arg, int parameter);

/* End of a micro-step; after the LAST one all gradients are averages. */
wring_result sync_finish(struct sync *sync, bool last);

/* NBYTES at BYTES of rank ROOT become those of all ranks. */
void sync_broadcast(struct sync *sync, int root, void *bytes, size_t nbytes);

/* The same with a block of malloc() of any size, which is made on the other ranks. */
void sync_share(struct sync *sync, int root, uint8_t **bytes, size_t *nbytes);

/* What wring keeps on this rank from step to step, in memory of malloc(). */
uint8_t *sync_state(struct sync *sync, size_t *nbytes_out);

/* Go on with what it kept on NRANKS ranks, and tell what became of it. */
void sync_restore(struct sync *sync, const struct section *states, int nranks);

/* Return after all ranks have called. A rank that comes out of it knows that all have done the step
 * before; then none is ever more than one step ahead of another. */
void sync_meet(struct sync *sync);

/* After sync->failed: be the ranks that are left, whose gradients are to be registered again. DONE
 * is the number of steps that this rank has done; returns the least of all, and if that is less,
 * wring takes its part of the last step back. */
size_t sync_shrink(struct sync *sync, size_t done);

/* The norm of all averaged gradients. */
double sync_norm(struct sync *sync);

/* Sum VALUES over ranks, exactly as float64. */
void sync_sum(struct sync *sync, double *values, size_t count);

/* The largest VALUE of all ranks; VALUE itself if one was lost. */
uint64_t sync_most(struct sync *sync, uint64_t value);

/* True if DIGEST is the same on all ranks. */
bool sync_all_equal(struct sync *sync, uint64_t digest);

#endif
