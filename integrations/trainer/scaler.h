/* SPDX-License-Identifier: Apache-2.0 */
/* The factor of the loss that keeps gradients of 16 bits from vanishing, and what happens to it.
 * Every rank hears the same verdicts from wring, so every rank has the same scale. */
#ifndef TRAINER_SCALER_H
#define TRAINER_SCALER_H

#include <stdbool.h>
#include <stddef.h>

#define SCALER_FIRST 65536.0 /* where a dynamic scale begins, */
#define SCALER_MAX 0x1p40    /* how far it grows */
#define SCALER_WINDOW 1000   /* by default: good steps until it doubles */

struct scaler {
    double scale;
    bool dynamic;        /* false: it stays as it is */
    size_t window, good; /* good steps since the last change */
    size_t skipped;      /* steps that were not finite */
};

/* A dynamic scale doubles after WINDOW good steps and halves after one that is not finite, which
 * is to be skipped. False where that does not help: the scale is fixed, or 1 already. */
bool scaler_update(struct scaler *scaler, bool nonfinite);

#endif
