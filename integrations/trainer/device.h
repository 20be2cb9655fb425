/* SPDX-License-Identifier: Apache-2.0 */
/* Where the arrays of a run live and who computes on them: one table of functions, for the host in
 * host/, for CUDA in cuda/, which is a module that `--device cuda` loads. All else in the trainer
 * knows no difference.
 *
 * Work goes into one queue and is done in the order in which it got there, maybe after the call has
 * returned. So these calls do not fail: the first error stays with the device and wait() tells it.
 * Two runs give the same bits. Arrays are in the device's memory where nothing else is said. */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include "data.h"
#include "layer.h"

#include <stddef.h>
#include <stdint.h>

struct device {
    const struct device_ops *ops;
    void *stream; /* the queue, as wring is told of it; NULL: none, and host memory */
};

/* How gradients are handed to wring. */
enum precision { PRECISION_FLOAT32, PRECISION_BFLOAT16, PRECISION_FLOAT16 };

/* What softmax() adds up. */
struct score {
    double loss;      /* sum of -log p(label) */
    uint64_t correct; /* rows whose largest logit is the label's */
};

/* FACTOR: what each gradient is multiplied by first. */
struct sgd_step {
    float factor, lr, momentum, decay;
};

struct rmsprop_step {
    float factor, lr, momentum, decay;
    float beta, epsilon;
};

struct adam_step {
    float factor;
    float beta1, beta2, epsilon;
    float rate, scale; /* of the first and second moment, corrected for the start at 0 */
    float shrink;      /* what is taken off the weights, relative */
};

struct layer_ops {
    /* Floats of scratch memory for BATCH samples; NULL: none. */
    size_t (*scratch)(const struct layer *layer, size_t batch);

    void (*forward)(struct device *device, const struct layer *layer, size_t batch, const float *x,
                    float *y);

    /* Set the gradients of the parameters and, unless DX is NULL, DX. */
    void (*backward)(struct device *device, const struct layer *layer, size_t batch, const float *x,
                     const float *y, const float *dy, float *dx);
};

struct device_ops {
    size_t size; /* sizeof(struct device_ops) */
    const char *name;

    /* NULL, or why this machine has no such device. */
    const char *(*missing)(void);

    /* Open the device of the process LOCAL_RANK of this host. NULL, or why not. */
    const char *(*open)(int local_rank, struct device **device_out);
    void (*close)(struct device *device);

    /* Zeroed memory, NULL if there is none left; free(NULL) does nothing. Both may wait. */
    void *(*alloc)(struct device *device, size_t nbytes);
    void (*free)(struct device *device, void *block);

    /* Copy from or to host memory, after all that was enqueued. Return when it is done. */
    void (*put)(struct device *device, void *dst, const void *src, size_t nbytes);
    void (*get)(struct device *device, void *dst, const void *src, size_t nbytes);

    /* Wait for all that was enqueued. NULL, or the first error since open(). */
    const char *(*wait)(struct device *device);

    /* Make COUNT samples of DATA the network's INPUT by TABLE, a value for each value of a byte;
     * and write their LABELS. INDEX NULL takes the samples from FIRST on, else those numbered
     * INDEX[first..first+count). */
    void (*gather)(struct device *device, const struct dataset *data, const float *table,
                   const uint32_t *index, size_t first, size_t count, float *input,
                   uint8_t *labels);

    const struct layer_ops *layer[LAYER_KINDS]; /* NULL: this device has no such layer */

    /* Y += X, element by element. NULL: this device cannot. */
    void (*add)(struct device *device, size_t count, const float *x, float *y);

    /* Softmax and cross-entropy. LOGITS is rows x classes. Adds the rows to SCORE and, unless
     * DLOGITS is NULL, writes there SCALE times the derivative of their summed loss. */
    void (*softmax)(struct device *device, size_t rows, size_t classes, const float *logits,
                    const uint8_t *labels, float scale, float *dlogits, struct score *score);

    /* Change COUNT values by their gradients and moments, element by element. */
    void (*sgd)(struct device *device, struct sgd_step step, size_t count, float *value,
                const float *grad, float *velocity);
    void (*rmsprop)(struct device *device, struct rmsprop_step step, size_t count, float *value,
                    const float *grad, float *velocity, float *second);
    void (*adam)(struct device *device, struct adam_step step, size_t count, float *value,
                 const float *grad, float *first, float *second);

    /* Y = X in 16 bits, rounded to nearest even; and back, exactly. NULL: this device cannot. */
    void (*narrow)(struct device *device, enum precision precision, size_t count, const float *x,
                   uint16_t *y);
    void (*widen)(struct device *device, enum precision precision, size_t count, const uint16_t *x,
                  float *y);
};

/* Names of the devices, NULL at the end; the index is what device_find() takes. */
extern const char *const device_names[];

extern const struct device_ops trainer_device_host;

/* The only symbol of the module. */
extern __attribute__((visibility("default"))) const struct device_ops trainer_device_cuda;

/* The functions of device number KIND. Dies if this installation or this machine has none. */
const struct device_ops *device_find(int kind);

/* These die where the device fails. */
struct device *device_open(const struct device_ops *ops, int local_rank);
void *device_alloc(struct device *device, size_t count, size_t nbytes);
void device_wait(struct device *device);

/* Move DATA, which was loaded into host memory, into the memory of DEVICE, and back to nothing. */
void device_take(struct device *device, struct dataset *data);
void device_drop(struct device *device, struct dataset *data);

#endif
