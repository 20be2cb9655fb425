/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on device memory over a transport of the host, all ranks in this process: the same
 * bits, residuals and bytes on the wire as from host memory, for every algorithm, codec and type.
 * And what is refused. Emulated, or on a GPU where there is one. */
#include "scene.h"

#include <math.h>

static const struct wri_device *device;
static void *stream;

static void play(const struct scene *s)
{
    struct outcome host, other;
    char name[128];
    there = NULL;
    there_stream = NULL;
    play_here(s, &host);
    there = device;
    there_stream = stream;
    play_here(s, &other);
    scene_name(s, name);
    for (int q = 0; q < s->nranks; q++) {
        assert_int_equal(host.nbytes[q], other.nbytes[q]);
        if (memcmp(host.bytes[q], other.bytes[q], host.nbytes[q]) != 0)
            fail_msg("%s: rank %d has other bits from device memory", name, q);
        assert_int_equal(host.wire_nbytes[q], other.wire_nbytes[q]);
    }
    outcome_close(&host);
    outcome_close(&other);
}

static void same_bits_as_from_host_memory(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n += n == 1 ? 1 : 2)
        for_each_scene(n == 4 ? 3 : n, play);
}

static void every_type_and_operation_exactly(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < WRING_DTYPE_COUNT; dtype++)
        for (int op = 0; op < WRING_OP_COUNT; op++) {
            bool integers = dtype > WRING_FLOAT64;
            struct scene s = {.nranks = 3,
                              .kind = WRING_ALLREDUCE,
                              .op = (wring_op)op,
                              .dtype = (wring_dtype)dtype,
                              .spec = "none",
                              .algorithm = op % 2 ? "ring" : "direct",
                              .piece = "1K",
                              .count = {1001, 7}};
            if (!(integers && op == WRING_AVG))
                play(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_from_host_memory),
        cmocka_unit_test(every_type_and_operation_exactly),
    };
    int count = 0;
    setenv("WRING_MODULES", getenv("WRING_LIB") ? getenv("WRING_LIB") : "", 1);
    if (wri_device_find("cuda", getenv("WRING_MODULES"), &device) != WRING_OK ||
        device->count(&count) != WRING_OK) {
        printf("skipped: %s\n", wring_error_message());
        return 77;
    }
    ok(device->stream_open(&stream));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device->stream_close(stream);
    return failed;
}
