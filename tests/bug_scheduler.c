/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong in other libraries between backward and the wire, over all ranks of a group in
 * one process: gradients finish in different orders, a rank has none, a layer is used in one
 * micro-batch only, the last micro-batch is miscounted, fused and unfused paths differ.
 */
#include "scheduler_group.h"

/* pytorch 35137, 72843: ranks whose gradients come in different orders paired unlike buckets. Rank
 * R starts at parameter R and goes up or down. */
static void case_b73_ready_order_differs_between_ranks(void **state)
{
    (void)state;
    const size_t counts[PARAMS_MAX] = {5, 700, 1, 33};
    wring_scheduler_options options = options_of(1, WRING_SUM, 4096);
    for (int nranks = 1; nranks <= RANKS_MAX; nranks++) {
        options.bucket_nbytes = options.first_bucket_nbytes = 16;
        group_open(&group, nranks, PARAMS_MAX, counts, "none", &options);
        for (int r = 0; r < nranks; r++)
            for (int p = 0; p < PARAMS_MAX; p++)
                for (size_t i = 0; i < counts[p]; i++)
                    group.grad[r][p][i] = (float)((int)(i % 7) + 10 * p + r);
        for (int turn = 0; turn < PARAMS_MAX; turn++)
            for (int r = 0; r < nranks; r++)
                ready(&group, r, (r + (r & 1 ? PARAMS_MAX - turn : turn)) % PARAMS_MAX);
        finish_all(&group);
        for (int r = 0; r < nranks; r++)
            for (int p = 0; p < PARAMS_MAX; p++)
                for (size_t i = 0; i < counts[p]; i++)
                    assert_true(group.grad[r][p][i] == (float)(nranks * ((int)(i % 7) + 10 * p) +
                                                               nranks * (nranks - 1) / 2));
        group_close(&group);
    }
}

/* FunASR 3472: the first micro-batch was sent instead of the last; ranks ended at 4 and 7. */
static void case_b68_last_micro_batch_is_sent(void **state)
{
    (void)state;
    static const float micro_grad[2][2] = {{3, 5}, {6, 8}}; /* rank, micro-batch: means 4 and 7 */
    const size_t count = 1;
    wring_scheduler_options options = options_of(2, WRING_AVG, 4096);
    group_open(&group, 2, 1, &count, "none", &options);
    for (int step = 0; step < 3; step++) {
        for (int micro = 0; micro < 2; micro++) {
            for (int r = 0; r < 2; r++) {
                group.grad[r][0][0] = micro_grad[r][micro];
                ready(&group, r, 0);
            }
            finish_all(&group);
        }
        assert_true(group.grad[0][0][0] == 5.5f && group.grad[1][0][0] == 5.5f);
    }
    group_close(&group);
}

/* DeepSpeed 5046, 818: a compressed optimizer failed, or went wrong silently, where it did not
 * fit. What a codec cannot do is refused when a parameter is registered, and nothing is left. */
static void case_b37_what_does_not_fit_is_refused_before_training(void **state)
{
    static const struct {
        const char *codec;
        wring_dtype dtype;
        wring_op op;
    } rows[] = {{"int8", WRING_FLOAT64, WRING_AVG},
                {"int8", WRING_INT32, WRING_SUM},
                {"ef+topk:0.5", WRING_FLOAT64, WRING_SUM},
                {"none", WRING_INT64, WRING_AVG}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const size_t count = 5;
        int param;
        wring_scheduler_options options = options_of(1, rows[i].op, 4096);
        group_open(&group, 1, 0, NULL, rows[i].codec, &options);
        assert_int_equal(wring_scheduler_add(group.scheduler[0], "weight", rows[i].dtype, 1, &count,
                                             group.grad[0][0], &param),
                         WRING_E_UNSUPPORTED);
        assert_says("'weight'");
        assert_says(i == 3 ? "cannot be averaged" : rows[i].codec);
        require(wring_scheduler_finish(group.scheduler[0], NULL));
        group_close(&group);
    }
}

/* pytorch 69031, 124193: layer 0 is used in the first micro-batch only, layer 1 in the second only.
 * Who did not use a layer says so, with zeros or by name; both are in sync at the end and equal to
 * what one rank makes of all micro-batches. */
static void case_b67_layer_used_in_one_micro_batch(void **state)
{
    (void)state;
    const size_t counts[2] = {3, 3};
    wring_scheduler_options options = options_of(2, WRING_SUM, 4096);
    for (int zeros = 0; zeros < 2; zeros++) {
        group_open(&group, 2, 2, counts, "none", &options);
        for (int micro = 0; micro < 2; micro++) {
            for (int r = 0; r < 2; r++)
                for (int p = 0; p < 2; p++) {
                    bool used = p == micro;
                    for (size_t i = 0; i < 3; i++)
                        group.grad[r][p][i] = used ? (float)(10 * r + (int)i + 1) : 0.0f;
                    if (used || zeros)
                        ready(&group, r, p);
                    else
                        require(wring_scheduler_absent(group.scheduler[r], p));
                }
            finish_all(&group);
        }
        for (int r = 0; r < 2; r++)
            for (int p = 0; p < 2; p++)
                for (size_t i = 0; i < 3; i++)
                    assert_true(group.grad[r][p][i] == (float)(10 + 2 * ((int)i + 1)));
        group_close(&group);
    }
}

/* pytorch 35137, the other half: one rank skips a module in one step, another rank another one. */
static void case_b73_ranks_skip_modules(void **state)
{
    (void)state;
    const size_t counts[3] = {7, 2, 5};
    wring_scheduler_options options = options_of(1, WRING_SUM, 4);
    group_open(&group, 3, 3, counts, "none", &options);
    for (int step = 0; step < 4; step++) {
        for (int r = 0; r < 3; r++)
            for (int turn = 0; turn < 3; turn++) {
                int p = r == 1 ? 2 - turn : turn;
                for (size_t i = 0; i < counts[p]; i++)
                    group.grad[r][p][i] = (float)(1 << r);
                if ((r + p + step) % 3 == 0)
                    require(wring_scheduler_absent(group.scheduler[r], p));
                else
                    ready(&group, r, p);
            }
        finish_all(&group);
        for (int p = 0; p < 3; p++)
            for (int r = 0; r < 3; r++)
                assert_true(group.grad[r][p][0] == (float)(7 - (1 << (6 - p - step) % 3)));
        assert_ranks_agree(&group);
    }
    group_close(&group);
}

/* sglang 26923, distributed shampoo 149: a rank without gradients returned early and its peers
 * hung. Here its `finish` names what is missing and changes nothing; once it says that it has none,
 * or that its window is over, it takes part with zeros. */
static void case_b75_rank_without_gradient(void **state)
{
    (void)state;
    const size_t counts[3] = {4, 0, 9};
    for (int flush = 0; flush < 2; flush++) {
        wring_scheduler_options options = options_of(1, WRING_SUM, 4096);
        group_open(&group, 3, 3, counts, "none", &options);
        for (int r = 0; r < 3; r++)
            for (int p = 0; p < 3; p++)
                for (size_t i = 0; i < counts[p]; i++)
                    group.grad[r][p][i] = r < 2 ? 1.5f : NAN; /* never read */
        for (int r = 0; r < 2; r++)
            for (int p = 0; p < 3; p++)
                ready(&group, r, p);
        assert_int_equal(wring_scheduler_finish(group.scheduler[2], NULL), WRING_E_STATE);
        assert_non_null(strstr(wring_error_message(), "'p0', 'p1', 'p2'"));
        require(flush ? wring_scheduler_flush(group.scheduler[2])
                      : wring_scheduler_absent(group.scheduler[2], WRING_ALL_PARAMS));
        finish_together(&group);
        for (int r = 0; r < 3; r++)
            for (int p = 0; p < 3; p++)
                for (size_t i = 0; i < counts[p]; i++)
                    assert_true(group.grad[r][p][i] == 3.0f);
        group_close(&group);
    }
}

/* horovod 358: fused and unfused paths gave different results. The bits of one parameter are the
 * same whether its bucket is just too small for it, just right, or shared. */
static void reduce_in_company(const char *codec, size_t bucket_nbytes, int nparams, float *out)
{
    const size_t counts[3] = {1024, 7, 300};
    wring_scheduler_options options = options_of(1, WRING_AVG, bucket_nbytes);
    group_open(&group, 3, nparams, counts, codec, &options);
    for (int r = 0; r < 3; r++)
        for (int p = 0; p < nparams; p++)
            for (size_t i = 0; i < counts[p]; i++)
                group.grad[r][p][i] =
                    (float)((i * 2654435761u + (unsigned)(r * 40503)) % 1999) / 64;
    ready_all(&group);
    finish_all(&group);
    for (int r = 1; r < 3; r++)
        assert_memory_equal(group.grad[0], group.grad[r], sizeof group.grad[0]);
    memcpy(out, group.grad[0][0], 1024 * sizeof(float));
    group_close(&group);
}

static void case_b46_bucket_make_up_does_not_show(void **state)
{
    (void)state;
    static const char *const codecs[] = {"none", "bf16", "int8", "ef+int4", "topk:0.1"};
    static const size_t limits[] = {4092, 4096, 4100, 4124, 65536};
    static float first[1024], other[1024];
    for (size_t c = 0; c < sizeof codecs / sizeof codecs[0]; c++) {
        reduce_in_company(codecs[c], 4096, 1, first);
        for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++)
            for (int nparams = 1; nparams <= 3; nparams++) {
                reduce_in_company(codecs[c], limits[l], nparams, other);
                assert_memory_equal(first, other, sizeof first);
            }
    }
}

/* pytorch 187732: with accumulation nothing was reduced from the second step on. Ranks agree after
 * every step, lossy codec with state included, and the sum is right. */
static void case_b69_ranks_agree_step_after_step(void **state)
{
    (void)state;
    const size_t counts[2] = {COUNT_MAX, 130};
    wring_scheduler_options options = options_of(2, WRING_AVG, 4096);
    group_open(&group, 4, 2, counts, "ef+int8", &options);
    for (int step = 0; step < 3; step++) {
        for (int micro = 0; micro < 2; micro++) {
            for (int r = 0; r < 4; r++)
                for (int p = 0; p < 2; p++)
                    for (size_t i = 0; i < counts[p]; i++)
                        group.grad[r][p][i] = (float)(r + micro + step);
            ready_all(&group);
            finish_all(&group);
        }
        for (int r = 1; r < 4; r++)
            assert_memory_equal(group.grad[0], group.grad[r], sizeof group.grad[0]);
        for (size_t i = 0; i < COUNT_MAX; i++)
            assert_float_equal(group.grad[0][0][i], (float)step + 2.0f, 0.05f);
    }
    group_close(&group);
}

/* ---- buckets that change --------------------------------------------------------------------- */

/* Two steps of tensors a and b with error feedback, in one bucket or two as TOGETHER says by step;
 * rank 0's results and residuals of the last one go to OUT. */
static void reduce_in_buckets(const bool together[2], float out[4][1000])
{
    static const size_t counts[2] = {1000, 500};
    wring_tensor *tensor[3][2];
    wring_request *request[3][2];
    group_open(&group, 3, 0, NULL, "ef+int4", NULL);
    for (int r = 0; r < 3; r++)
        for (int t = 0; t < 2; t++)
            require(wring_tensor_create(group.comm[r], t ? "b" : "a", WRING_FLOAT32, 1, &counts[t],
                                        NULL, &tensor[r][t]));
    for (int step = 0; step < 2; step++) {
        int ncalls = together[step] ? 1 : 2;
        for (int r = 0; r < 3; r++) {
            wring_segment segment[2];
            for (int t = 0; t < 2; t++) {
                for (size_t i = 0; i < counts[t]; i++)
                    group.grad[r][t][i] = uneven(r, step, t, i);
                segment[t] = (wring_segment){.tensor = tensor[r][t],
                                             .send = group.grad[r][t],
                                             .recv = group.grad[r][t],
                                             .count = counts[t]};
            }
            for (int c = 0; c < ncalls; c++) {
                wring_call call = WRING_CALL_INIT;
                call.op = WRING_AVG;
                call.algorithm = "allgather"; /* where no rank keeps anything as an owner */
                call.segments = &segment[c];
                call.nsegments = (size_t)(3 - ncalls);
                require(wring_comm_start(group.comm[r], &call, &request[r][c]));
            }
        }
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < ncalls; c++)
                require(wring_request_wait(request[r][c], NULL));
    }
    for (int t = 0; t < 2; t++) {
        memcpy(out[t], group.grad[0][t], counts[t] * sizeof(float));
        require(wring_tensor_residual(tensor[0][t], out[2 + t], counts[t]));
    }
    for (int r = 0; r < 3; r++)
        for (int t = 0; t < 2; t++)
            wring_tensor_destroy(tensor[r][t]);
    group_close(&group);
}

/* pytorch 49418, 48867: a bucket of 1000 elements at the first step and 1500 at the second, and a
 * residual that no longer fitted. Here it belongs to the tensor: the bits do not change. */
static void case_b33_buckets_rebuilt(void **state)
{
    (void)state;
    static const bool apart[2] = {false, false}, rebuilt[2] = {false, true};
    static float expected[4][1000], found[4][1000];
    reduce_in_buckets(apart, expected);
    reduce_in_buckets(rebuilt, found);
    assert_memory_equal(expected, found, sizeof expected);
}

/* pytorch 51427: buckets were rebuilt after the first step and collided with what was compressed
 * already. Here the set of parameters is closed from the first gradient on, at whatever step. */
static void case_b34_no_rebuild_after_the_first_gradient(void **state)
{
    (void)state;
    const size_t counts[2] = {300, 40};
    wring_scheduler_options options = options_of(1, WRING_AVG, 4096);
    static float expected[PARAMS_MAX][COUNT_MAX];
    for (int start = -1; start <= 2; start++) {
        group_open(&group, 2, 2, counts, "ef+int8", &options);
        for (int step = 0; step < 3; step++) {
            for (int r = 0; r < 2; r++) {
                for (int p = 0; p < 2; p++)
                    for (size_t i = 0; i < counts[p]; i++)
                        group.grad[r][p][i] = uneven(r, step, p, i);
                ready(&group, r, 1);
                int param = -5;
                if (step == start) {
                    assert_int_equal(wring_scheduler_add(group.scheduler[r], "late", WRING_FLOAT32,
                                                         1, counts, group.grad[r][2], &param),
                                     WRING_E_STATE);
                    assert_int_equal(param, -5);
                }
                ready(&group, r, 0);
            }
            finish_all(&group);
        }
        assert_ranks_agree(&group);
        if (start == -1)
            memcpy(expected, group.grad[0], sizeof expected);
        assert_memory_equal(expected, group.grad[0], sizeof expected);
        group_close(&group);
    }
}

/* InfiniTrain 183: buckets rebuilt after micro-batch 1 of 4 lost what was added up until then. */
static void case_b70_rebuild_inside_a_window(void **state)
{
    (void)state;
    const size_t count = 5;
    wring_scheduler_options options = options_of(4, WRING_SUM, 4096);
    group_open(&group, 2, 1, &count, "none", &options);
    for (int micro = 0; micro < 4; micro++) {
        for (int r = 0; r < 2; r++) {
            int param;
            for (size_t i = 0; i < count; i++)
                group.grad[r][0][i] = 1;
            ready(&group, r, 0);
            assert_int_equal(wring_scheduler_add(group.scheduler[r], "late", WRING_FLOAT32, 1,
                                                 &count, group.grad[r][1], &param),
                             WRING_E_STATE);
        }
        finish_all(&group);
    }
    assert_true(group.grad[0][0][4] == 8.0f && group.grad[1][0][0] == 8.0f);
    group_close(&group);
}

/* Megatron 6187, pytorch 18465: memory of a gradient was used again while it was still read. Before
 * the last micro-step it is free after `ready`; on the last it is the scheduler's until
 * `finish`. */
static void case_b77_gradient_memory_used_again(void **state)
{
    (void)state;
    const size_t count = 2000;
    wring_scheduler_options options = options_of(3, WRING_SUM, 4096);
    group_open(&group, 2, 1, &count, "none", &options);
    for (int micro = 0; micro < 3; micro++) {
        for (int r = 0; r < 2; r++) {
            for (size_t i = 0; i < count; i++)
                group.grad[r][0][i] = (float)(micro + 1);
            ready(&group, r, 0);
            for (size_t i = 0; micro < 2 && i < count; i++)
                group.grad[r][0][i] = 7.0f;
        }
        finish_all(&group);
    }
    for (size_t i = 0; i < count; i++)
        assert_true(group.grad[0][0][i] == 12.0f && group.grad[1][0][i] == 12.0f);
    group_close(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_b73_ready_order_differs_between_ranks),
        cmocka_unit_test(case_b37_what_does_not_fit_is_refused_before_training),
        cmocka_unit_test(case_b68_last_micro_batch_is_sent),
        cmocka_unit_test(case_b67_layer_used_in_one_micro_batch),
        cmocka_unit_test(case_b75_rank_without_gradient),
        cmocka_unit_test(case_b46_bucket_make_up_does_not_show),
        cmocka_unit_test(case_b69_ranks_agree_step_after_step),
        cmocka_unit_test(case_b73_ranks_skip_modules),
        cmocka_unit_test(case_b33_buckets_rebuilt),
        cmocka_unit_test(case_b34_no_rebuild_after_the_first_gradient),
        cmocka_unit_test(case_b70_rebuild_inside_a_window),
        cmocka_unit_test(case_b77_gradient_memory_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
