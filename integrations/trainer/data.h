/* SPDX-License-Identifier: Apache-2.0 */
/* Samples with labels, and which of them a rank sees when. A sample is an image with the label of
 * its class, or a stretch of text, in which the label of each byte is the next one. */
#ifndef TRAINER_DATA_H
#define TRAINER_DATA_H

#include <stddef.h>
#include <stdint.h>

#define IMAGE_SIDE 28
#define IMAGE_PIXELS (IMAGE_SIDE * IMAGE_SIDE)
#define IMAGE_CLASSES 10
#define TEXT_WINDOW 64 /* bytes of a sample of text */
#define TEXT_CLASSES 256

struct dataset {
    size_t count, ninputs, nlabels; /* samples; bytes and labels of each */
    uint8_t *inputs;                /* count x ninputs */
    uint8_t *labels;                /* count x nlabels */
};

enum data_kind { DATA_IMAGES, DATA_TEXT };

/* Read what PATH (NULL: the default of KIND) holds into memory that malloc() gave: what is learned,
 * what is tested on, and TABLE, the network's input for each value of a byte. Images come from the
 * folder of the four IDX files of MNIST, gzipped or not, and are shifted and scaled to mean 0 and
 * variance 1. Text is any file, by default what `bible` prints; its last tenth is kept for tests.
 * Dies on what is missing, short or foreign, naming it. */
void data_load(enum data_kind kind, const char *path, struct dataset *train, struct dataset *test,
               float table[256]);

/* The two kinds, which data_load() chooses from. */
void images_load(const char *folder, struct dataset *train, struct dataset *test, float table[256]);
void text_load(const char *path, struct dataset *train, struct dataset *test, float table[256]);

/* XXH3 of a dataset in host memory. */
uint64_t dataset_digest(const struct dataset *dataset);

/* The order of samples in an epoch: ORDER[0..count) becomes a permutation that depends on SEED and
 * EPOCH alone, so that any number of ranks walks through the same one. */
void epoch_order(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch);

#endif
