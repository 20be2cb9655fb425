/* SPDX-License-Identifier: Apache-2.0 */
/* wring-train: the order of things. What can be refused without the other ranks is refused first,
 * so that a mistake on the command line is reported once and not by every process. */
#include "device.h"
#include "options.h"
#include "program.h"
#include "report.h"
#include "spawn.h"
#include "sync.h"
#include "train.h"

#include <cblas.h>
#include <sched.h>
#include <stdlib.h>

/* The cores that this process may use, shared with the other ranks of this host. More than 8
 * threads do not pay for matrices of this size. */
static int blas_threads(int local_nranks)
{
    cpu_set_t cores;
    int n = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    n /= local_nranks;
    return n < 1 ? 1 : n > 8 ? 8 : n;
}

int main(int argc, char **argv)
{
    struct options options;
    options_parse(&options, argc, argv);
    char *codec = sync_codec_text(options.codec);
    char *algorithm = sync_algorithm_text(options.algorithm);
    const struct device_ops *ops = device_find(options.device);
    model_check(options.model, ops);
    if (options.precision != PRECISION_FLOAT32 && !ops->narrow)
        die("--grad-dtype %s: not there on device %s; leave it away, and take a codec of 16 bits",
            precision_names[options.precision], ops->name);
    if (options.spawn) {
        spawn_if_asked(argc, argv, options.shrink);
        die("--spawn cannot be abbreviated");
    }

    struct sync sync;
    struct device *device = device_open(ops, sync_local_rank());
    sync_open(&sync, codec, algorithm);
    openblas_set_num_threads(blas_threads(sync.local_nranks));

    struct summary summary = {.model = model_names[options.model],
                              .device = ops->name,
                              .codec = codec,
                              .algorithm = algorithm};
    train(&options, device, &sync, &summary);
    if (sync.rank == 0)
        report_summary(&summary, options.json);
    sync_close(&sync);
    ops->close(device); /* after wring, which knows its stream */
    free(codec);
    free(algorithm);
    if (summary.unsaved)
        die("the last checkpoint could not be written");
    if (!summary.replicas_equal)
        die("the replicas differ: please report this, with the command line and the digests");
    return 0;
}
