/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the host, and the table of what the files beside this one compute. */
#include "host.h"

#include "program.h"

#include <stdlib.h>
#include <string.h>

static const char *missing(void)
{
    return NULL;
}

static const char *host_open(int local_rank, struct device **device_out)
{
    (void)local_rank;
    struct device *device = must_alloc(1, sizeof *device);
    device->ops = &trainer_device_host;
    *device_out = device;
    return NULL;
}

static void host_close(struct device *device)
{
    free(device);
}

static void *host_alloc(struct device *device, size_t nbytes)
{
    (void)device;
    return must_alloc(1, nbytes);
}

static void host_free(struct device *device, void *block)
{
    (void)device;
    free(block);
}

static void copy(struct device *device, void *dst, const void *src, size_t nbytes)
{
    (void)device;
    if (nbytes)
        memcpy(dst, src, nbytes);
}

static const char *host_wait(struct device *device)
{
    (void)device;
    return NULL;
}

const struct device_ops trainer_device_host = {
    .size = sizeof(struct device_ops),
    .name = "cpu",
    .missing = missing,
    .open = host_open,
    .close = host_close,
    .alloc = host_alloc,
    .free = host_free,
    .put = copy,
    .get = copy,
    .wait = host_wait,
    .gather = host_gather,
    .layer = {[LAYER_DENSE] = &host_dense,
              [LAYER_CONV] = &host_conv,
              [LAYER_POOL] = &host_pool,
              [LAYER_ELU] = &host_elu,
              [LAYER_EMBED] = &host_embed,
              [LAYER_POSITION] = &host_position,
              [LAYER_NORM] = &host_norm,
              [LAYER_LINEAR] = &host_linear,
              [LAYER_ATTENTION] = &host_attention,
              [LAYER_GELU] = &host_gelu},
    .add = host_add,
    .softmax = host_softmax,
    .sgd = host_sgd,
    .rmsprop = host_rmsprop,
    .adam = host_adam,
    .narrow = host_narrow,
    .widen = host_widen,
};
