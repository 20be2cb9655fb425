/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong in other libraries with means over micro-batches and ranks of different size; the
 * gradients as a whole; residuals without gradients; ranks that were set up differently. All ranks
 * of a group in one process.
 */
#include "scheduler_group.h"

/* ---- weights --------------------------------------------------------------------------------- */

static void weigh(struct group *group, int rank, double weight)
{
    require(wring_scheduler_weigh(group->scheduler[rank], weight));
}

/* transformers 34191, torchtune 1875: the mean of micro-batch means is not the mean over tokens.
 * The gradient of token T of rank R is T + 10 R; each rank has 8, cut anew in each step; a
 * micro-batch's gradient is its mean. The result is the mean over all tokens, exactly. */
static void case_b93_mean_over_tokens(void **state)
{
    (void)state;
    static const int cuts[][3] = {{2, 6, 0}, {1, 7, 0}, {4, 4, 0}, {8, 0, 0}, {0, 0, 8}, {2, 2, 4}};
    const size_t counts[2] = {1, 100};
    wring_scheduler_options options = options_of(3, WRING_AVG, 4096);
    options.weighted = true;
    for (int nranks = 1; nranks <= RANKS_MAX; nranks++) {
        group_open(&group, nranks, 2, counts, "none", &options);
        for (int step = 0; step < 6; step++) {
            int token[RANKS_MAX] = {0};
            for (int micro = 0; micro < 3; micro++) {
                for (int r = 0; r < nranks; r++) {
                    int ntokens = cuts[(step + r) % 6][micro], sum = 0;
                    for (int t = 0; t < ntokens; t++)
                        sum += token[r]++ + 10 * r;
                    for (int p = 0; p < 2; p++)
                        for (size_t i = 0; i < counts[p]; i++) /* 0 / 0: masked, not read */
                            group.grad[r][p][i] = (float)sum / (float)ntokens;
                    weigh(&group, r, ntokens);
                }
                ready_all(&group);
                finish_together(&group);
            }
            float expected = 0;
            for (int r = 0; r < nranks; r++)
                expected += 3.5f + (float)(10 * r);
            for (int p = 0; p < 2; p++)
                for (size_t i = 0; i < counts[p]; i++)
                    assert_true(group.grad[0][p][i] == expected / (float)nranks);
            assert_ranks_agree(&group);
        }
        group_close(&group);
    }
}

/* Two steps; WEIGHT < 0: a scheduler without weights. */
static void reduce_weighted(int nranks, int accumulate, const char *codec, double weight)
{
    const size_t counts[2] = {700, 33};
    wring_scheduler_options options = options_of(accumulate, WRING_AVG, 64);
    options.weighted = weight >= 0;
    group_open(&group, nranks, 2, counts, codec, &options);
    for (int micro = 0; micro < 2 * accumulate; micro++) {
        for (int r = 0; r < nranks; r++) {
            for (int p = 0; p < 2; p++)
                for (size_t i = 0; i < counts[p]; i++)
                    group.grad[r][p][i] = uneven(r, micro, p, i);
            if (weight >= 0 && (weight != 1 || r > 0)) /* 1 need not be said */
                weigh(&group, r, weight);
        }
        ready_all(&group);
        finish_together(&group);
    }
    assert_ranks_agree(&group);
}

static void test_equal_weights_change_no_bit(void **state)
{
    (void)state;
    static const double weights[] = {1, 2, 7, 12345, 0.25};
    static float plain[PARAMS_MAX][COUNT_MAX];
    for (int nranks = 1; nranks <= RANKS_MAX; nranks += 2)
        for (int accumulate = 1; accumulate <= 3; accumulate++)
            for (int lossy = 0; lossy < 2; lossy++) {
                const char *codec = lossy ? "ef+int8" : "none";
                reduce_weighted(nranks, accumulate, codec, -1);
                memcpy(plain, group.grad[0], sizeof plain);
                group_close(&group);
                for (size_t w = 0; w < sizeof weights / sizeof *weights; w++) {
                    reduce_weighted(nranks, accumulate, codec, weights[w]);
                    assert_memory_equal(plain, group.grad[0], sizeof plain);
                    group_close(&group);
                }
            }
}

/* mlx-lm 1413: a window whose labels are all masked divided zero by zero. Nothing is sent, no
 * residual drains or grows: the steps around it are as if it had never been. */
static void case_b94_window_without_tokens(void **state)
{
    (void)state;
    static float without[PARAMS_MAX][COUNT_MAX];
    const size_t count = 500;
    wring_scheduler_options options = options_of(2, WRING_AVG, 4096);
    options.weighted = true;
    for (int masked = 0; masked < 2; masked++) {
        group_open(&group, 3, 1, &count, "ef+int4", &options);
        for (int micro = 0; micro < 6; micro++) {
            bool empty = micro / 2 == 1;
            if (empty && !masked)
                continue;
            for (int r = 0; r < 3; r++) {
                for (size_t i = 0; i < count; i++)
                    group.grad[r][0][i] = empty ? NAN : uneven(r, micro, 0, i);
                weigh(&group, r, empty ? 0 : r + 1);
            }
            ready_all(&group);
            finish_together(&group);
            for (size_t i = 0; empty && micro % 2 && i < count; i++)
                assert_true(group.grad[0][0][i] == 0.0f);
        }
        assert_ranks_agree(&group);
        if (masked)
            assert_memory_equal(without, group.grad[0], sizeof without);
        memcpy(without, group.grad[0], sizeof without);
        group_close(&group);
    }
}

/* Nine batches dealt to three ranks in windows of two: each rank has its own number of micro-steps,
 * rank 1 has none at all in the last step, and the mean is over batches all the same. */
static void case_b94_ranks_run_out_of_batches(void **state)
{
    (void)state;
    static const int nbatches[3] = {4, 2, 3};
    const size_t count = 3;
    wring_scheduler_options options = options_of(2, WRING_AVG, 4096);
    options.weighted = true;
    group_open(&group, 3, 1, &count, "none", &options);
    for (int step = 0; step < 2; step++) {
        float sum = 0, weight = 0;
        for (int micro = 0; micro < 2; micro++) {
            for (int r = 0; r < 3; r++) {
                int batch = 2 * step + micro;
                if (batch >= nbatches[r])
                    continue;
                for (size_t i = 0; i < count; i++)
                    group.grad[r][0][i] = (float)(batch + r);
                weigh(&group, r, 4);
                sum += 4 * (float)(batch + r);
                weight += 4;
                ready(&group, r, 0);
                if (micro == 0)
                    require(wring_scheduler_finish(group.scheduler[r], NULL));
            }
        }
        for (int r = 0; r < 3; r++)
            if (2 * step + 1 >= nbatches[r])
                require(wring_scheduler_flush(group.scheduler[r]));
        finish_together(&group);
        for (int r = 0; r < 3; r++)
            assert_float_equal(group.grad[r][0][0], sum / weight, 1e-6f);
        assert_ranks_agree(&group);
    }
    group_close(&group);
}

/* SUM with weights needs no total. Weights that are refused. */
static void test_weighted_sum(void **state)
{
    (void)state;
    const size_t count = 2;
    wring_scheduler_options options = options_of(3, WRING_SUM, 4096);
    options.weighted = true;
    group_open(&group, 2, 1, &count, "none", &options);
    for (int step = 0; step < 2; step++) {
        for (int micro = 0; micro < 3; micro++) {
            for (int r = 0; r < 2; r++) {
                weigh(&group, r, step == 0 ? 3 : micro + r);
                group.grad[r][0][0] = 5;
                group.grad[r][0][1] = (float)(r + 1);
            }
            ready_all(&group);
            finish_all(&group);
        }
        assert_true(group.grad[0][0][0] == (step == 0 ? 5 * 18.0f : 5 * 9.0f));
        assert_true(group.grad[0][0][1] == (step == 0 ? 9 + 18.0f : 3 + 12.0f));
        assert_ranks_agree(&group);
    }
    wring_scheduler *scheduler = group.scheduler[0];
    static const double bad[] = {-1, NAN, INFINITY, 1e-10, 1e16};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(wring_scheduler_weigh(scheduler, bad[i]), WRING_E_ARGUMENT);
    weigh(&group, 0, 1);
    assert_int_equal(wring_scheduler_weigh(scheduler, 1), WRING_E_STATE); /* twice */
    int param;
    assert_int_equal(
        wring_scheduler_add(group.scheduler[1], "n", WRING_INT32, 1, &count, NULL, &param),
        WRING_E_STATE);
    group_close(&group);
    options.weighted = false;
    group_open(&group, 1, 1, &count, "none", &options);
    assert_int_equal(wring_scheduler_weigh(group.scheduler[0], 1), WRING_E_STATE);
    assert_non_null(strstr(wring_error_message(), "weighted"));
    group_close(&group);
}

/* ---- the gradients as a whole ---------------------------------------------------------------- */

static void test_norm_and_scale(void **state)
{
    (void)state;
    const size_t counts[3] = {3000, 0, 200};
    wring_scheduler_options options = options_of(2, WRING_AVG, 4096);
    group_open(&group, 3, 3, counts, "none", &options);
    double norm[3];
    assert_int_equal(wring_scheduler_norm(group.scheduler[0], norm), WRING_E_STATE);
    for (int micro = 0; micro < 2; micro++) {
        for (int r = 0; r < 3; r++) {
            memset(group.grad[r], 0, sizeof group.grad[r]);
            group.grad[r][0][2999] = (float)(2 * r + 1); /* 3 on average */
            group.grad[r][2][77] = micro ? -8 : 0;       /* -4 */
        }
        ready_all(&group);
        assert_int_equal(wring_scheduler_norm(group.scheduler[0], norm), WRING_E_STATE);
        finish_all(&group);
        assert_int_equal(wring_scheduler_norm(group.scheduler[0], norm),
                         micro ? WRING_OK : WRING_E_STATE);
    }
    for (int r = 0; r < 3; r++) {
        require(wring_scheduler_norm(group.scheduler[r], &norm[r]));
        assert_true(norm[r] == 5.0);
        require(wring_scheduler_scale(group.scheduler[r], 0.5));
        require(wring_scheduler_norm(group.scheduler[r], &norm[r]));
        assert_true(norm[r] == 2.5);
    }
    assert_true(group.grad[1][0][2999] == 1.5f && group.grad[1][2][77] == -2.0f);
    group.grad[0][2][5] = NAN;
    require(wring_scheduler_norm(group.scheduler[0], &norm[0]));
    assert_true(isnan(norm[0]));
    ready(&group, 0, 0);
    assert_int_equal(wring_scheduler_norm(group.scheduler[0], norm), WRING_E_STATE);
    assert_int_equal(wring_scheduler_scale(group.scheduler[0], 2), WRING_E_STATE);
    group_close(&group);
}

/* ---- what the table of reports implies ------------------------------------------------------- */

/* A residual whose gradient stays 0, or does not come at all, drains: what was put in comes out, to
 * the last bit, and nothing after it. */
static void test_residual_drains(void **state)
{
    (void)state;
    const size_t count = 600;
    static float sum[600];
    wring_scheduler_options options = options_of(1, WRING_SUM, 4096);
    group_open(&group, 2, 1, &count, "ef+topk:0.1", &options);
    memset(sum, 0, sizeof sum);
    for (int step = 0; step < 40; step++) {
        for (int r = 0; r < 2; r++) {
            for (size_t i = 0; i < count; i++)
                group.grad[r][0][i] = step == 0 ? (float)(i + 1) : 0.0f;
            if (step % 2)
                require(wring_scheduler_absent(group.scheduler[r], 0));
            else
                ready(&group, r, 0);
        }
        finish_all(&group);
        assert_ranks_agree(&group);
        for (size_t i = 0; i < count; i++) {
            sum[i] += group.grad[0][0][i];
            assert_true(step < 30 || group.grad[0][0][i] == 0.0f);
        }
    }
    for (size_t i = 0; i < count; i++)
        assert_true(sum[i] == 2 * (float)(i + 1));
    group_close(&group);
}

/* Two communicators of one context, of 2 and 3 ranks, with parameters of one name. */
static void test_groups_share_a_name(void **state)
{
    (void)state;
    static struct group other;
    static float alone[COUNT_MAX];
    const size_t count = 300;
    wring_scheduler_options options = options_of(1, WRING_AVG, 4096);
    for (int both = 0; both < 2; both++) {
        group_open(&group, 2, 1, &count, "ef+int4", &options);
        if (both)
            group_open(&other, 3, 1, &count, "ef+topk:0.1", &options);
        for (int step = 0; step < 3; step++) {
            for (int r = 0; r < 5; r++) {
                struct group *g = r < 2 ? &group : &other;
                int rank = r < 2 ? r : r - 2;
                for (size_t i = 0; i < count; i++)
                    g->grad[rank][0][i] = uneven(r, step, 0, i);
                if (r < 2 || both)
                    ready(g, rank, 0);
            }
            finish_all(&group);
            if (both)
                finish_all(&other);
        }
        if (both) {
            assert_memory_equal(alone, group.grad[0][0], sizeof alone);
            group_close(&other);
        }
        memcpy(alone, group.grad[0][0], sizeof alone);
        group_close(&group);
    }
}

static void *finish_badly(void *scheduler)
{
    return (void *)(intptr_t)wring_scheduler_finish(scheduler, NULL);
}

/* Ranks that were set up differently are told, each of them. */
static void test_ranks_that_disagree(void **state)
{
    (void)state;
    enum { WEIGHTED, RULES, COUNTS, REDUCTION, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        group_open(&group, 2, 0, NULL, "none", NULL);
        for (int r = 0; r < 2; r++) {
            wring_scheduler_options options = options_of(1, WRING_AVG, 4096);
            size_t count = kind == COUNTS && r ? 11 : 10;
            int param;
            options.weighted = kind == WEIGHTED && r;
            options.rules = kind == RULES && r ? "p = int8" : NULL;
            options.op = kind == REDUCTION && r ? WRING_SUM : WRING_AVG;
            wring_scheduler_destroy(group.scheduler[r]);
            require(wring_scheduler_create(group.comm[r], &options, &group.scheduler[r]));
            require(wring_scheduler_add(group.scheduler[r], "p", WRING_FLOAT32, 1, &count,
                                        group.grad[r][0], &param));
        }
        pthread_t thread[2];
        for (int r = 0; r < 2; r++)
            wring_scheduler_ready(group.scheduler[r], 0);
        for (int r = 0; r < 2; r++)
            pthread_create(&thread[r], NULL, finish_badly, group.scheduler[r]);
        for (int r = 0; r < 2; r++) {
            void *status;
            pthread_join(thread[r], &status);
            assert_int_equal((intptr_t)status, WRING_E_MISMATCH);
            assert_int_equal(wring_scheduler_ready(group.scheduler[r], 0), WRING_E_MISMATCH);
        }
        group_close(&group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_b93_mean_over_tokens),
        cmocka_unit_test(test_equal_weights_change_no_bit),
        cmocka_unit_test(case_b94_window_without_tokens),
        cmocka_unit_test(case_b94_ranks_run_out_of_batches),
        cmocka_unit_test(test_weighted_sum),
        cmocka_unit_test(test_norm_and_scale),
        cmocka_unit_test(test_residual_drains),
        cmocka_unit_test(test_groups_share_a_name),
        cmocka_unit_test(test_ranks_that_disagree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
