/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of chosen samples as the network's input. */
#include "host.h"

#include <string.h>

void host_gather(struct device *device, const struct dataset *data, const float *table,
                 const uint32_t *index, size_t first, size_t count, float *input, uint8_t *labels)
{
    (void)device;
    for (size_t i = 0; i < count; i++) {
        size_t sample = index ? index[first + i] : first + i;
        const uint8_t *bytes = data->inputs + sample * data->ninputs;
        for (size_t p = 0; p < data->ninputs; p++)
            input[i * data->ninputs + p] = table[bytes[p]];
        memcpy(labels + i * data->nlabels, data->labels + sample * data->nlabels, data->nlabels);
    }
}
