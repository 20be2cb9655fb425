/* SPDX-License-Identifier: Apache-2.0 */
/* State as bytes: what goes on from them gives the bits of what never stopped, on the host and on a
 * device; other groups and codecs get the same sum; and bytes that are not right are refused. */
#include "scene.h"

#include "base/hash.h"
#include "collective/state.h"

static struct scene scene = {.kind = WRING_ALLREDUCE,
                             .op = WRING_AVG,
                             .spec = "ef+int4",
                             .algorithm = "direct",
                             .piece = "1K",
                             .count = {3000, 500}};

static struct cast g;

static void open_group(int nranks, const char *spec)
{
    scene.nranks = nranks;
    scene.spec = spec;
    cast_open(&g, &scene);
}

/* ---- saved by all ranks ---------------------------------------------------------------------- */

struct states {
    int n;
    void *bytes[RANKS_MAX];
    size_t nbytes[RANKS_MAX];
};

static struct states save_all(void)
{
    struct states states = {.n = scene.nranks};
    for (int q = 0; q < states.n; q++)
        ok(wring_state_save(g.comm[q], &states.bytes[q], &states.nbytes[q]));
    return states;
}

static void drop(struct states *states)
{
    for (int q = 0; q < states->n; q++)
        free(states->bytes[q]);
}

/* Rank q of m takes those of ranks q, q + m, ... */
static wring_state_report load_all(const struct states *states)
{
    wring_state_report total = {0}, report;
    for (int q = 0; q < scene.nranks; q++) {
        const void *bytes[RANKS_MAX];
        size_t nbytes[RANKS_MAX], n = 0;
        for (int old = q; old < states->n; old += scene.nranks, n++) {
            bytes[n] = states->bytes[old];
            nbytes[n] = states->nbytes[old];
        }
        ok(wring_state_load(g.comm[q], bytes, nbytes, n, &report));
        total.nrestored += report.nrestored;
        total.nhanded += report.nhanded;
        total.ndropped += report.ndropped;
        total.dropped += report.dropped;
    }
    return total;
}

/* What residuals will still add to the reduction, element by element, of tensor I. */
static void still_to_come(int i, double *sum)
{
    size_t count = scene.count[i];
    float *values = malloc(count * sizeof(float));
    memset(sum, 0, count * sizeof(double));
    double share = scene.op == WRING_AVG ? 1.0 / scene.nranks : 1;
    for (int q = 0; q < scene.nranks; q++) {
        wring_tensor *tensor = g.actor[q].tensor[i];
        ok(wring_tensor_residual(tensor, values, count));
        for (size_t j = 0; j < count; j++)
            sum[j] += share * values[j];
        for (struct wri_residual *owned = there ? NULL : tensor->owned; owned;
             owned = owned->next) {
            wri_residual_widen(owned, owned->current, owned->begin, owned->end - owned->begin,
                               values);
            for (size_t j = owned->begin; j < owned->end; j++)
                sum[j] += values[j - owned->begin];
        }
    }
    free(values);
}

static void assert_same_sum(const double *expected, const double *found, size_t count)
{
    double most = 0;
    for (size_t j = 0; j < count; j++) {
        most = fabs(expected[j]) > most ? fabs(expected[j]) : most;
        if (fabs(expected[j] - found[j]) > 1e-5)
            fail_msg("element %zu: %g, not %g", j, found[j], expected[j]);
    }
    assert_true(most > 1e-3); /* there was something */
}

/* ---- on from where it was -------------------------------------------------------------------- */

static void goes_on_with_the_same_bits(void)
{
    static const char *const specs[] = {"ef+int4",
                                        "ef+topk:0.05,chunk=512+int8",
                                        "ef+sign",
                                        "int8:round=stochastic",
                                        "ef+topk:0.02,unit=tensor",
                                        "ef:bits=16+int4",
                                        "ef:bits=8+topk:0.05,chunk=512"};
    for (size_t s = 0; s < LENGTH(specs); s++) {
        struct outcome outcome = {0};
        if (there != NULL && strstr(specs[s], "bits="))
            continue; /* host only */
        scene.algorithm = strstr(specs[s], "unit=tensor") ? "allgather" : "direct";
        open_group(3, specs[s]);
        cast_play(&g, 0);
        struct states states = save_all();
        cast_play(&g, 1);
        cast_play(&g, 3);
        for (int q = 0; q < 3; q++)
            outcome.bytes[q] = actor_outcome(&g.actor[q], &outcome.nbytes[q]);
        cast_close(&g);
        open_group(3, specs[s]);
        wring_state_report report = load_all(&states);
        assert_int_equal(report.nrestored, 6);
        assert_int_equal(report.nhanded + report.ndropped, 0);
        cast_play(&g, 1);
        cast_play(&g, 3);
        for (int q = 0; q < 3; q++) {
            size_t nbytes;
            unsigned char *bytes = actor_outcome(&g.actor[q], &nbytes);
            if (memcmp(bytes, outcome.bytes[q], nbytes) != 0)
                fail_msg("%s: rank %d goes on with other bits", specs[s], q);
            free(bytes);
        }
        cast_close(&g);
        drop(&states);
        outcome_close(&outcome);
    }
    scene.algorithm = "direct";
}

static void other_groups_get_the_same_sum(void)
{
    static double before[3000], after[3000];
    if (there != NULL)
        return; /* the same code; what is owned cannot be looked at there */
    for (int op = WRING_SUM; op <= WRING_AVG; op++)
        for (int nranks = 1; nranks <= 5; nranks++) {
            if (nranks == 3)
                continue;
            scene.op = (wring_op)op;
            open_group(3, "ef+int4");
            cast_play(&g, 0);
            cast_play(&g, 1);
            struct states states = save_all();
            still_to_come(0, before);
            cast_close(&g);
            open_group(nranks, "ef+int4");
            wring_state_report report = load_all(&states);
            assert_int_equal(report.nrestored + report.ndropped, 0);
            assert_int_equal(report.nhanded, 2 * nranks);
            still_to_come(0, after);
            assert_same_sum(before, after, scene.count[0]);
            cast_close(&g);
            drop(&states);
        }
    scene.op = WRING_AVG;
}

static void another_codec_goes_on(void)
{
    static double before[3000], after[3000];
    wring_codec *codec, *plain;
    wring_state_report report;
    ok(wring_codec_create("ef+topk:0.1,chunk=512", &codec));
    ok(wring_codec_create("int8", &plain));
    open_group(3, "ef+int4");
    cast_play(&g, 0);
    still_to_come(0, before);
    for (int q = 0; q < 3; q++) {
        ok(wring_tensor_set_codec(g.actor[q].tensor[0], codec, &report));
        ok(wring_tensor_set_codec(g.actor[q].tensor[1], codec, NULL));
        assert_int_equal(report.nhanded, 1);
    }
    still_to_come(0, after);
    if (there == NULL)
        assert_same_sum(before, after, scene.count[0]);
    for (int q = 0; q < 3; q++) {
        wring_codec_destroy(g.actor[q].codec);
        ok(wring_codec_create("ef+topk:0.1,chunk=512", &g.actor[q].codec));
    }
    cast_play(&g, 1);
    for (int q = 0; q < 3; q++) {
        ok(wring_tensor_set_codec(g.actor[q].tensor[0], plain, &report));
        assert_int_equal(report.ndropped, 1);
        assert_true(report.dropped > 0);
        assert_int_equal(wring_tensor_state_nbytes(g.actor[q].tensor[0]), 0);
    }
    cast_close(&g);
    wring_codec_destroy(codec);
    wring_codec_destroy(plain);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(const void *bytes, size_t nbytes, wring_status expected, const char *words)
{
    const void *states[] = {bytes};
    wring_status status = wring_state_load(g.comm[0], states, &nbytes, 1, NULL);
    if (status != expected || strstr(wring_error_message(), words) == NULL)
        fail_msg("%s \"%s\", not %s with \"%s\"", wring_status_name(status), wring_error_message(),
                 wring_status_name(expected), words);
}

/* As the file's format says: the hash stands at 32 and is of all other bytes. */
static void seal(unsigned char *bytes, size_t nbytes)
{
    uint64_t hash = wri_hash(bytes + 40, nbytes - 40, wri_hash(bytes, 32, 0));
    memcpy(bytes + 32, &hash, sizeof(hash));
}

static void bytes_that_are_not_right(void)
{
    open_group(2, "ef+int4");
    cast_play(&g, 0);
    struct states states = save_all();
    size_t nbytes = states.nbytes[0];
    unsigned char *bytes = malloc(nbytes);
    memcpy(bytes, states.bytes[0], nbytes);
    for (size_t cut = 0; cut < nbytes; cut += cut < 200 ? 1 : 997)
        refused(bytes, cut, WRING_E_CORRUPT, "saved state");
    for (size_t at = 0; at < nbytes; at += at < 200 ? 1 : 997) {
        bytes[at] ^= 0x20;
        refused(bytes, nbytes, WRING_E_CORRUPT, "saved state");
        bytes[at] ^= 0x20;
    }
    memcpy(bytes, "PK\x03\x04 zip", 8);
    refused(bytes, nbytes, WRING_E_CORRUPT, "something else");
    memcpy(bytes, states.bytes[0], nbytes);
    bytes[8] = 0;
    refused(bytes, nbytes, WRING_E_CORRUPT, "version 0, this library reads 1");
    memcpy(bytes, states.bytes[0], nbytes);
    memcpy(bytes + nbytes - sizeof(float), &(float){NAN}, sizeof(float));
    seal(bytes, nbytes);
    refused(bytes, nbytes, WRING_E_CORRUPT, "holds NaN or Inf");
    for (uint32_t k = 0; k < 20000; k++) { /* forged: the hash fits */
        memcpy(bytes, states.bytes[0], nbytes);
        uint32_t x = (k + 1) * 2654435761u;
        size_t at = 8 + x % 112;
        uint64_t value = k % 3 == 0 ? UINT64_MAX >> (x >> 26) : (uint64_t)(x >> 7) << (x % 40);
        memcpy(bytes + at, &value, k % 2 ? 4 : 8);
        seal(bytes, nbytes);
        const void *forged[] = {bytes};
        wring_state_load(g.comm[0], forged, &nbytes, 1, NULL); /* does not crash */
    }
    free(bytes);
    drop(&states);
    cast_close(&g);
}

static void other_tensors(void)
{
    wring_state_report report;
    open_group(2, "ef+int4");
    cast_play(&g, 0);
    struct states states = save_all();
    cast_close(&g);
    scene.count[0] = 3001;
    open_group(2, "ef+int4");
    refused(states.bytes[0], states.nbytes[0], WRING_E_MISMATCH, "tensor 'a' has 3001 elements");
    cast_close(&g);
    scene.count[0] = 3000;
    open_group(2, "ef+int4");
    wring_tensor_destroy(g.actor[0].tensor[0]);
    g.actor[0].tensor[0] = NULL;
    ok(wring_state_load(g.comm[0], (const void *const *)states.bytes, states.nbytes, 1, &report));
    assert_int_equal(report.nrestored, 1);
    assert_int_equal(report.ndropped, 1);
    assert_true(report.dropped > 0);
    drop(&states);
    actor_go(&g.actor[1], 0);
    void *bytes;
    size_t nbytes;
    assert_int_equal(wring_state_save(g.comm[1], &bytes, &nbytes), WRING_E_STATE);
    wring_comm_destroy(g.comm[0]);
    wring_comm_destroy(g.comm[1]);
    assert_int_equal(wring_request_wait(g.actor[1].request, NULL), WRING_E_ABORTED);
    for (int q = 0; q < 2; q++)
        actor_close(&g.actor[q]);
    wring_context_destroy(g.context);
}

static void test_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    everywhere(goes_on_with_the_same_bits);
}
static void test_other_groups_get_the_same_sum(void **state)
{
    (void)state;
    everywhere(other_groups_get_the_same_sum);
}
static void test_another_codec_goes_on(void **state)
{
    (void)state;
    everywhere(another_codec_goes_on);
}
static void test_bytes_that_are_not_right(void **state)
{
    (void)state;
    bytes_that_are_not_right();
}
static void test_other_tensors(void **state)
{
    (void)state;
    everywhere(other_tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on_with_the_same_bits),
        cmocka_unit_test(test_other_groups_get_the_same_sum),
        cmocka_unit_test(test_another_codec_goes_on),
        cmocka_unit_test(test_bytes_that_are_not_right),
        cmocka_unit_test(test_other_tensors),
    };
    setenv("WRING_MODULES", getenv("WRING_LIB") ? getenv("WRING_LIB") : "", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
