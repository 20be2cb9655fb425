/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs by name: which rule matches, what is refused and where it says the mistake is, and what a
 * scheduler makes of them. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "scheduler/rules.h"
#include "says.h"

static void first_match_counts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *spec;
    } cases[] = {
        {"*.bias = none; layer?.* = int8; * = bf16", "layer1.bias", "none"},
        {"*.bias = none; layer?.* = int8; * = bf16", "layer1.weight", "int8"},
        {"*.bias = none; layer?.* = int8; * = bf16", "layer10.weight", "bf16"},
        {"*.bias=none;layer?.*=int8", "head", NULL},
        {"# all; of = it\n\t w = int8:block=64 # ; v = bf16 \r\n;;\n[uv] = ef+topk:2%", "w",
         "int8:64"},
        {"# all; of = it\n\t w = int8:block=64 # ; v = bf16 \r\n;;\n[uv] = ef+topk:2%", "v",
         "ef+topk:0.02"},
        {"", "w", NULL},
        {" ;\n# nothing", "w", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wri_rules rules;
        const char *reason = NULL;
        require(wri_rules_open(&rules, "here", cases[i].text));
        const wring_codec *codec = wri_rules_find(&rules, cases[i].name, &reason);
        assert_int_equal(codec != NULL, cases[i].spec != NULL);
        if (codec) {
            assert_string_equal(wring_codec_spec(codec), cases[i].spec);
            assert_text_says(reason, "of here: ");
        }
        wri_rules_close(&rules);
    }
}

static void mistakes_are_located(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        wring_status status;
        const char *says[2];
    } cases[] = {
        {"a = int8\nb int8", WRING_E_CONFIG, {"here, line 2, character 7", "'=' is missing"}},
        {"a = int8; = int8", WRING_E_CONFIG, {"line 1, character 11", "name is missing"}},
        {"a =", WRING_E_CONFIG, {"line 1, character 4", "codec is missing"}},
        {"a = # int8", WRING_E_CONFIG, {"line 1, character 4", "codec is missing"}},
        {"\n\n  a = int9", WRING_E_SPEC, {"here, line 3, character 7", "int9"}},
        {"a = int8; b = topk:7", WRING_E_SPEC, {"line 1, character 15", "ratio is out of range"}},
        {"@/nowhere/at all", WRING_E_CONFIG, {"/nowhere/at all", "No such file"}},
        {"@/tmp", WRING_E_CONFIG, {"/tmp", "directory"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wri_rules rules;
        assert_int_equal(wri_rules_open(&rules, "here", cases[i].text), cases[i].status);
        assert_says(cases[i].says[0]);
        assert_says(cases[i].says[1]);
        assert_null(rules.rule);
    }
}

static void write_file(char *path, const void *bytes, size_t nbytes)
{
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, bytes, nbytes) == (ssize_t)nbytes);
    close(fd);
}

static void rules_from_a_file(void **state)
{
    (void)state;
    char path[] = "/tmp/wring-rules-XXXXXX", binary[] = "/tmp/wring-rules-XXXXXX", at[64];
    static const char text[] = "# by name\n*.bias = none\n* = ef+int4\n";
    struct wri_rules rules;
    const char *reason;
    write_file(path, text, sizeof text - 1);
    snprintf(at, sizeof at, "@%s", path);
    require(wri_rules_open(&rules, "here", at));
    assert_string_equal(wring_codec_spec(wri_rules_find(&rules, "w", &reason)), "ef+int4");
    assert_text_says(reason, path);
    wri_rules_close(&rules);
    write_file(binary, text, sizeof text); /* with the zero at its end */
    snprintf(at, sizeof at, "@%s", binary);
    assert_int_equal(wri_rules_open(&rules, "here", at), WRING_E_CONFIG);
    unlink(path);
    unlink(binary);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct wri_rules rules;
    wring_status status = WRING_E_MEMORY;
    for (uint64_t n = 1; status != WRING_OK; n++) {
        assert_true(n < 100);
        wri_alloc_fail_at(n);
        status = wri_rules_open(&rules, "here", "a = int8; b = ef+topk:0.1+int8");
        assert_true(status == WRING_OK || status == WRING_E_MEMORY);
    }
    wri_alloc_fail_at(0);
    wri_rules_close(&rules);
}

/* ---- a scheduler under rules ----------------------------------------------------------------- */

static void explain(const char *rules, size_t min_nbytes, char *out, size_t out_nbytes)
{
    static const char *const names[] = {"l1.weight", "l1.bias", "head"};
    static const size_t counts[] = {1000, 10, 500};
    static float grads[3][1000];
    wring_context *context;
    wring_comm *comm;
    wring_codec *codec;
    wring_scheduler *scheduler;
    char *text;
    int param;
    wring_context_options context_options = WRING_CONTEXT_OPTIONS_INIT;
    context_options.transport = "self";
    require(wring_context_create(&context_options, &context));
    require(wring_comm_create_local(context, 1, NULL, &comm));
    require(wring_codec_create("bf16", &codec));
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.codec = codec;
    options.rules = rules;
    options.min_nbytes = min_nbytes;
    require(wring_scheduler_create(comm, &options, &scheduler));
    for (int i = 0; i < 3; i++)
        require(wring_scheduler_add(scheduler, names[i], WRING_FLOAT32, 1, &counts[i], grads[i],
                                    &param));
    for (int i = 0; i < 3; i++)
        require(wring_scheduler_ready(scheduler, i));
    require(wring_scheduler_finish(scheduler, NULL));
    require(wring_comm_explain(comm, &text));
    snprintf(out, out_nbytes, "%s", text);
    free(text);
    wring_scheduler_destroy(scheduler);
    wring_codec_destroy(codec);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
}

static void a_scheduler_follows_them(void **state)
{
    (void)state;
    char text[4096];
    explain("l1.* = ef+int8", 0, text, sizeof text);
    assert_text_says(text,
                     "l1.weight: 1000 float32, codec ef+int8 (rule 1 of WRING_RULES: l1.*), ");
    assert_text_says(text, " of 4000 bytes, state 8000 bytes");
    assert_text_says(text, "l1.bias: 10 float32, codec ef+int8");
    assert_text_says(text, "head: 500 float32, codec bf16 (of the scheduler), 1000 of 2000 bytes");
    explain("l1.* = ef+int8", 41, text, sizeof text);
    assert_text_says(text,
                     "l1.bias: 10 float32, codec none (below WRING_MIN_BYTES), 40 of 40 bytes");
    explain("l1.* = ef+int8", 40, text, sizeof text);
    assert_text_says(text, "l1.bias: 10 float32, codec ef+int8");

    explain("* = ef+topk:0.99", 0, text, sizeof text); /* values, and who has been chosen */
    assert_text_says(text, "l1.weight: 1000 float32, codec none (its codec would make it larger), "
                           "4000 of 4000 bytes, state 0 bytes");
    assert_text_says(text, "l1.bias: 10 float32, codec ef+topk:0.99"); /* a frame is more */

    setenv("WRING_RULES", "head = int4", 1);
    setenv("WRING_MIN_BYTES", "1K", 1);
    explain(NULL, 0, text, sizeof text);
    assert_text_says(text, "head: 500 float32, codec int4 (rule 1 of WRING_RULES: head)");
    assert_text_says(text, "l1.weight: 1000 float32, codec bf16 (of the scheduler)");
    assert_text_says(text, "l1.bias: 10 float32, codec none (below WRING_MIN_BYTES)");
    explain("", 0, text, sizeof text); /* the program's rules, none, go before the user's */
    assert_text_says(text, "head: 500 float32, codec bf16");
    unsetenv("WRING_RULES");
    unsetenv("WRING_MIN_BYTES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_match_counts),       cmocka_unit_test(mistakes_are_located),
        cmocka_unit_test(rules_from_a_file),        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_scheduler_follows_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
