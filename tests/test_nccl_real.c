/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL that is installed, not the mock: it loads, has every function that the transport calls,
 * and answers what it can without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <string.h>

#include "base/module.h"
#include "transport/transport.h"

static const char *const places[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                     "/usr/local/cuda/lib/libnccl.so.2"};
static const char *library;
static const struct wring_transport_ops *ops;
static void *self;

static void it_loads_and_names_groups(void **state)
{
    (void)state;
    unsigned char id[2][WRING_ADDRESS_MAX];
    size_t nbytes[2] = {sizeof(id[0]), sizeof(id[1])};
    struct wring_transport_open options = {
        .size = sizeof options, .host = &wri_host_services, .library = library};
    assert_int_equal(wri_transport_find("nccl", "", &ops), WRING_OK);
    assert_int_equal(ops->open(&options, &self), WRING_OK);
    for (int i = 0; i < 2; i++) {
        wring_status status = ops->group_id(self, id[i], &nbytes[i]);
        if (status != WRING_OK) { /* no network interface that it likes: said in its own words */
            assert_non_null(strstr(wring_error_message(), "NCCL, naming a group: "));
            return;
        }
        assert_int_equal(nbytes[i], 128);
    }
    assert_memory_not_equal(id[0], id[1], 128);
}

/* Without a driver there is no communicator, and the error is NCCL's. */
static void joining_needs_a_gpu(void **state)
{
    (void)state;
    unsigned char id[WRING_ADDRESS_MAX] = {0};
    size_t nbytes = sizeof(id);
    void *endpoint = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver != NULL || ops->group_id(self, id, &nbytes) != WRING_OK)
        skip();
    wring_status status = ops->group_open(self, 0, 1, id, nbytes, NULL, &endpoint);
    for (int i = 0; status == WRING_OK && i < 1000; i++)
        status = ops->group_status(endpoint) == WRING_AGAIN ? WRING_OK : WRING_E_SYSTEM;
    assert_int_equal(status, WRING_E_SYSTEM);
    assert_non_null(strstr(wring_error_message(), "NCCL, "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_loads_and_names_groups),
        cmocka_unit_test(joining_needs_a_gpu),
    };
    for (size_t i = 0; library == NULL && i < sizeof(places) / sizeof(*places); i++)
        if (dlopen(places[i], RTLD_NOW) != NULL)
            library = places[i];
    if (library == NULL) {
        printf("skipped: no NCCL installed\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
