/* SPDX-License-Identifier: Apache-2.0 */
/* Images with labels, and which of them a rank sees when. */
#ifndef TRAINER_DATA_H
#define TRAINER_DATA_H

#include <stddef.h>
#include <stdint.h>

#define IMAGE_SIDE 28
#define IMAGE_PIXELS (IMAGE_SIDE * IMAGE_SIDE)
#define CLASSES 10

struct dataset {
    size_t count;
    uint8_t *pixels; /* count x 28 x 28 */
    uint8_t *labels; /* count, each below CLASSES */
};

/* Read FOLDER/STEM-images-idx3-ubyte and -labels-idx1-ubyte, gzipped or not, into memory that
 * malloc() gave. Dies on a missing, short or foreign file, naming it. */
void dataset_load(struct dataset *dataset, const char *folder, const char *stem);

/* Pixel value -> network input: shifted and scaled so that DATASET's pixels have mean 0,
 * variance 1. */
void dataset_normaliser(const struct dataset *dataset, float table[256]);

/* The order of samples in an epoch: ORDER[0..count) becomes a permutation that depends on SEED and
 * EPOCH alone, so that any number of ranks walks through the same one. */
void epoch_order(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch);

#endif
