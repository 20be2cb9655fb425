/* SPDX-License-Identifier: Apache-2.0 */
/* The IDX format of MNIST and its successors (big-endian: magic, extents, bytes), read through
 * zlib, which passes plain files on as they are. Nothing in a file is believed before it is
 * checked. */
#include "data.h"

#include "program.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define FOLDER "/usr/share/datasets/fashion-mnist"
#define MAGIC_IMAGES 0x00000803u
#define MAGIC_LABELS 0x00000801u
#define COUNT_MAX 10000000u /* samples; a larger number is a damaged header */

struct idx {
    gzFile file;
    char path[PATH_MAX];
};

static void idx_open(struct idx *idx, const char *folder, const char *stem, const char *suffix)
{
    snprintf(idx->path, sizeof idx->path, "%s/%s-%s.gz", folder, stem, suffix);
    if (access(idx->path, R_OK) != 0)
        snprintf(idx->path, sizeof idx->path, "%s/%s-%s", folder, stem, suffix);
    idx->file = gzopen(idx->path, "rb");
    if (!idx->file)
        die("%s(.gz): %s; install the Debian package dataset-fashion-mnist, or name the folder of "
            "the four IDX files with --data",
            idx->path, strerror(errno));
    gzbuffer(idx->file, 1 << 18);
}

static void idx_read(struct idx *idx, void *dst, size_t nbytes)
{
    /* gzread counts in int; the largest file of COUNT_MAX images is read in parts. */
    for (size_t done = 0; done < nbytes;) {
        size_t part = nbytes - done < (1u << 30) ? nbytes - done : 1u << 30;
        int got = gzread(idx->file, (char *)dst + done, (unsigned)part);
        if (got <= 0) {
            int code;
            const char *why = gzerror(idx->file, &code);
            die("%s: ends or is damaged after %zu of %zu bytes (%s); fetch the file again",
                idx->path, done, nbytes, code == Z_OK ? "end of file" : why);
        }
        done += (size_t)got;
    }
}

static void idx_close(struct idx *idx)
{
    char extra;
    if (gzread(idx->file, &extra, 1) != 0)
        die("%s: longer than its header says, or damaged; fetch the file again", idx->path);
    gzclose(idx->file);
}

static uint32_t idx_word(struct idx *idx)
{
    uint8_t b[4];
    idx_read(idx, b, sizeof b);
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static size_t idx_header(struct idx *idx, uint32_t magic)
{
    uint32_t found = idx_word(idx);
    if (found != magic)
        die("%s: not an IDX file of unsigned bytes (begins with %08x instead of %08x)", idx->path,
            found, magic);
    uint32_t count = idx_word(idx);
    if (count == 0 || count > COUNT_MAX)
        die("%s: holds %u samples; 1 to %u are accepted", idx->path, count, COUNT_MAX);
    return count;
}

static void load_images(struct dataset *dataset, const char *folder, const char *stem)
{
    struct idx idx;
    idx_open(&idx, folder, stem, "images-idx3-ubyte");
    *dataset = (struct dataset){idx_header(&idx, MAGIC_IMAGES), IMAGE_PIXELS, 1, NULL, NULL};
    uint32_t height = idx_word(&idx), width = idx_word(&idx);
    if (height != IMAGE_SIDE || width != IMAGE_SIDE)
        die("%s: images of %u x %u; the models take %d x %d", idx.path, height, width, IMAGE_SIDE,
            IMAGE_SIDE);
    dataset->inputs = must_alloc(dataset->count, IMAGE_PIXELS);
    idx_read(&idx, dataset->inputs, dataset->count * IMAGE_PIXELS);
    idx_close(&idx);
}

static void load_labels(struct dataset *dataset, const char *folder, const char *stem)
{
    struct idx idx;
    idx_open(&idx, folder, stem, "labels-idx1-ubyte");
    size_t count = idx_header(&idx, MAGIC_LABELS);
    if (count != dataset->count)
        die("%s: %zu labels for %zu images; the two files do not belong together", idx.path, count,
            dataset->count);
    dataset->labels = must_alloc(count, 1);
    idx_read(&idx, dataset->labels, count);
    for (size_t i = 0; i < count; i++) {
        if (dataset->labels[i] >= IMAGE_CLASSES)
            die("%s: label %u of sample %zu; the models know %d classes", idx.path,
                dataset->labels[i], i, IMAGE_CLASSES);
    }
    idx_close(&idx);
}

/* Pixel value -> network input. */
static void normalise(const struct dataset *dataset, float table[256])
{
    uint64_t sum = 0, squares = 0; /* exact: at most 2^33 pixels of 16 bits squared */
    size_t n = dataset->count * IMAGE_PIXELS;
    for (size_t i = 0; i < n; i++) {
        sum += dataset->inputs[i];
        squares += (uint64_t)dataset->inputs[i] * dataset->inputs[i];
    }
    double mean = (double)sum / (double)n;
    double variance = (double)squares / (double)n - mean * mean;
    double scale = variance > 0 ? 1 / sqrt(variance) : 1; /* images of one colour carry nothing */
    for (int value = 0; value < 256; value++)
        table[value] = (float)((value - mean) * scale);
}

static void load(struct dataset *dataset, const char *folder, const char *stem)
{
    load_images(dataset, folder, stem);
    load_labels(dataset, folder, stem);
}

void images_load(const char *folder, struct dataset *train, struct dataset *test, float table[256])
{
    load(train, folder ? folder : FOLDER, "train");
    load(test, folder ? folder : FOLDER, "t10k");
    normalise(train, table);
}
