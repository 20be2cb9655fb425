/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels of chosen samples as the network's input. */
#include "host.h"

void host_gather(struct device *device, const struct dataset *data, const float *table,
                 const uint32_t *index, size_t first, size_t count, float *input, uint8_t *labels)
{
    (void)device;
    for (size_t i = 0; i < count; i++) {
        size_t sample = index ? index[first + i] : first + i;
        const uint8_t *pixels = data->pixels + sample * IMAGE_PIXELS;
        for (size_t p = 0; p < IMAGE_PIXELS; p++)
            input[i * IMAGE_PIXELS + p] = table[pixels[p]];
        labels[i] = data->labels[sample];
    }
}
