/* SPDX-License-Identifier: Apache-2.0 */
/* What images and text have in common. */
#include "data.h"

#include "random.h"

#include <xxhash.h>

void data_load(enum data_kind kind, const char *path, struct dataset *train, struct dataset *test,
               float table[256])
{
    if (kind == DATA_IMAGES)
        images_load(path, train, test, table);
    else
        text_load(path, train, test, table);
}

uint64_t dataset_digest(const struct dataset *dataset)
{
    uint64_t inputs = XXH3_64bits(dataset->inputs, dataset->count * dataset->ninputs);
    return XXH3_64bits_withSeed(dataset->labels, dataset->count * dataset->nlabels, inputs);
}

void epoch_order(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch)
{
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count; i > 1; i--) { /* Fisher and Yates */
        size_t other = random_below(random_bits(seed, epoch, i), i);
        uint32_t swap = order[i - 1];
        order[i - 1] = order[other];
        order[other] = swap;
    }
}
