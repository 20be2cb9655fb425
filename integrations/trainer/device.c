/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices there are, where the module of one is found, and that errors end the program. */
#include "device.h"

#include "program.h"
#include "setting.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULE "libwring-train-cuda.so"
#define PATH_NBYTES 4096

enum kind { KIND_HOST, KIND_CUDA };
const char *const device_names[] = {"cpu", "cuda", NULL};

/* In the folder of wring's modules: where the setting says, else beside libwring. */
static void module_path(char path[PATH_NBYTES])
{
    char *folder = setting_text("WRING_MODULES");
    Dl_info wring = {0};
    void *inside = dlsym(RTLD_DEFAULT, "wring_version");
    if (*folder)
        snprintf(path, PATH_NBYTES, "%s/%s", folder, MODULE);
    else if (inside && dladdr(inside, &wring) && strchr(wring.dli_fname, '/'))
        snprintf(path, PATH_NBYTES, "%.*s/%s",
                 (int)(strrchr(wring.dli_fname, '/') - wring.dli_fname), wring.dli_fname, MODULE);
    else
        snprintf(path, PATH_NBYTES, "%s", MODULE);
    free(folder);
}

static const struct device_ops *load_cuda(void)
{
    char path[PATH_NBYTES];
    module_path(path);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        die("--device cuda: %s; build with -DWRING_CUDA=ON, or name the folder of modules in "
            "WRING_MODULES",
            dlerror());
    const struct device_ops *ops = dlsym(module, "trainer_device_cuda");
    if (!ops || ops->size != sizeof *ops)
        die("--device cuda: %s is of another build than this program; install both from one", path);
    return ops;
}

const struct device_ops *device_find(int kind)
{
    const struct device_ops *ops = kind == KIND_CUDA ? load_cuda() : &trainer_device_host;
    const char *why = ops->missing();
    if (why)
        die("--device %s: %s", ops->name, why);
    return ops;
}

struct device *device_open(const struct device_ops *ops, int local_rank)
{
    struct device *device;
    const char *why = ops->open(local_rank, &device);
    if (why)
        die("--device %s: %s", ops->name, why);
    return device;
}

void *device_alloc(struct device *device, size_t count, size_t nbytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, nbytes, &total))
        die("%zu times %zu bytes do not fit the address space", count, nbytes);
    void *block = device->ops->alloc(device, total);
    if (!block)
        die("--device %s: out of memory: %zu bytes wanted", device->ops->name, total);
    return block;
}

void device_wait(struct device *device)
{
    const char *why = device->ops->wait(device);
    if (why)
        die("--device %s: %s", device->ops->name, why);
}

/* COUNT bytes of the host's heap, moved. */
static uint8_t *take(struct device *device, uint8_t *bytes, size_t count)
{
    uint8_t *block = device_alloc(device, count, 1);
    device->ops->put(device, block, bytes, count);
    free(bytes);
    return block;
}

void device_take(struct device *device, struct dataset *data)
{
    data->inputs = take(device, data->inputs, data->count * data->ninputs);
    data->labels = take(device, data->labels, data->count * data->nlabels);
}

void device_drop(struct device *device, struct dataset *data)
{
    device->ops->free(device, data->inputs);
    device->ops->free(device, data->labels);
}
