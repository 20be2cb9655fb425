/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint as a file. One file for all ranks, which rank 0 writes: then a single rename makes
 * it count, no set of files can be half of one step and half of another, and only rank 0 needs the
 * disk. Little-endian, no padding:
 *
 *     0   8  magic "wringckp"
 *     8   4  version
 *    12   4  number of sections
 *    16   8  bytes of the whole file
 *    24   8  XXH3 of the bytes from 32 on, seeded with the XXH3 of the bytes before 24
 *    32      a row for each section: 32 bytes name, ended by zeros; 8 bytes length
 *            the sections, in the order of the rows, without a gap
 *
 * The reader believes nothing before it is checked. */
#ifndef TRAINER_CHECKPOINT_H
#define TRAINER_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECKPOINT_NAME_NBYTES 32
#define CHECKPOINT_SECTIONS_MAX 4096
#define CHECKPOINT_FILE "checkpoint"

struct section {
    char name[CHECKPOINT_NAME_NBYTES];
    const void *bytes;
    size_t nbytes;
};

/* Make FOLDER if it is not there. NULL, or why nothing can be written into it. */
const char *checkpoint_folder(const char *folder);

/* Put SECTIONS into FOLDER, which is made if it is not there: written beside the last checkpoint,
 * synced, and renamed over it; the folder is synced, too. NULL, or why not: then the last one
 * stands as it was. */
const char *checkpoint_write(const char *folder, const struct section *sections, size_t nsections);

/* The checked checkpoint of FOLDER in memory of malloc(); *bytes_out is NULL if there is none.
 * NULL, or why it cannot be used. */
const char *checkpoint_read(const char *folder, uint8_t **bytes_out, size_t *nbytes_out);

/* NULL if BYTES are a checkpoint, else why they are not. */
const char *checkpoint_check(const uint8_t *bytes, size_t nbytes);

/* The section NAME of a checked checkpoint; false if it has none. */
bool checkpoint_find(const uint8_t *bytes, const char *name, struct section *section_out);

#endif
