/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: what calls change of state counts together or not at all, can be taken back, and a step
 * that is tried again gives the bits of one that was never tried. On the host, and on a device
 * where there is one. */
#include "scene.h"

#include "scheduler/scheduler.h"

enum { N = 3 };

static const struct scene scene = {.nranks = N,
                                   .kind = WRING_ALLREDUCE,
                                   .op = WRING_AVG,
                                   .spec = "ef+int4",
                                   .algorithm = "direct",
                                   .piece = "1K",
                                   .count = {3000, 500}};

static struct cast g;

/* Results are the last call's, whatever became of it; a picture without them is of state alone. */
static void clear_results(void)
{
    for (int q = 0; q < N; q++)
        for (size_t i = 0; i < 2; i++) {
            memset(g.actor[q].host, 0, scene.count[i] * sizeof(float));
            block_copy(g.actor[q].recv[i], g.actor[q].host, scene.count[i] * sizeof(float));
        }
}

static void open_group(void)
{
    cast_open(&g, &scene);
    clear_results();
}

/* Elements [0, COUNT) of tensor I, with the values of call number NUMBER; POISON: a NaN. */
static wring_status start(struct actor *actor, int i, size_t count, int number, bool poison)
{
    fill_buffer(actor, 10 + number, (size_t)i); /* not among those with a NaN of their own */
    if (poison)
        block_copy(actor->send[i], &(float){NAN}, sizeof(float));
    wring_segment segment = {
        .tensor = actor->tensor[i], .send = actor->send[i], .recv = actor->recv[i], .count = count};
    wring_call call = WRING_CALL_INIT;
    call.op = scene.op;
    call.segments = &segment;
    call.nsegments = 1;
    call.codec = actor->codec;
    call.algorithm = scene.algorithm;
    call.stream = there_stream;
    return wring_comm_start(actor->comm, &call, &actor->request);
}

static void reduce_part(int i, size_t count, int number, int poisoned)
{
    for (int q = 0; q < N; q++)
        ok(start(&g.actor[q], i, count, number, q == poisoned));
    for (int q = 0; q < N; q++)
        actor_wait(&g.actor[q]);
}

/* A call on each tensor. POISONED: the rank that has a NaN in the second; -1. */
static void reduce_both(int number, int poisoned)
{
    reduce_part(0, scene.count[0], number, -1);
    reduce_part(1, scene.count[1], number, poisoned);
}

/* All results and residuals of all ranks. */
struct picture {
    unsigned char *bytes[N];
    size_t nbytes[N];
};

static struct picture take_picture(void)
{
    struct picture picture;
    for (int q = 0; q < N; q++)
        picture.bytes[q] = actor_outcome(&g.actor[q], &picture.nbytes[q]);
    return picture;
}

static bool same(const struct picture *a, const struct picture *b)
{
    bool equal = true;
    for (int q = 0; q < N; q++)
        equal &= a->nbytes[q] == b->nbytes[q] && !memcmp(a->bytes[q], b->bytes[q], a->nbytes[q]);
    return equal;
}

/* Compare and drop what is there now; *KEPT stays. */
static bool still(const struct picture *kept)
{
    struct picture now = take_picture();
    bool equal = same(kept, &now);
    for (int q = 0; q < N; q++)
        free(now.bytes[q]);
    return equal;
}

static void drop(struct picture *picture)
{
    for (int q = 0; q < N; q++)
        free(picture->bytes[q]);
}

static struct picture take_state(void)
{
    clear_results();
    return take_picture();
}

static bool state_is(const struct picture *kept)
{
    clear_results();
    return still(kept);
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void steps_give_the_bits_of_calls(void)
{
    bool committed = false;
    open_group();
    for (int number = 0; number < 3; number++)
        reduce_both(number, -1);
    struct picture plain = take_picture();
    cast_close(&g);
    open_group();
    for (int number = 0; number < 3; number++) {
        struct picture before = take_state();
        ok(wring_step_begin(g.context));
        reduce_both(number, -1);
        if (number < 2) /* nothing counts before the commit */
            assert_true(state_is(&before));
        ok(wring_step_commit(g.context, &committed));
        assert_true(committed);
        drop(&before);
    }
    assert_true(still(&plain));
    drop(&plain);
    cast_close(&g);
}

/* A step that is given up, or meets a NaN in its last call, is as if it had not been tried. */
static void steps_that_do_not_count(void)
{
    bool committed = true;
    open_group();
    reduce_both(0, -1);
    struct picture before = take_state();
    ok(wring_step_begin(g.context));
    reduce_both(1, -1);
    ok(wring_step_rollback(g.context));
    assert_true(state_is(&before));
    ok(wring_step_begin(g.context));
    reduce_both(1, 2);
    for (int q = 0; q < N; q++)
        assert_true(g.actor[q].result.nonfinite);
    ok(wring_step_commit(g.context, &committed));
    assert_false(committed);
    assert_true(state_is(&before));
    reduce_both(1, -1);
    struct picture retried = take_picture();
    drop(&before);
    cast_close(&g);
    open_group();
    reduce_both(0, -1);
    reduce_both(1, -1);
    assert_true(still(&retried));
    drop(&retried);
    cast_close(&g);
}

/* Taken back after the commit: whole tensors, and parts. */
static void commits_are_undone(void)
{
    const size_t counts[] = {scene.count[0], 1280};
    for (int i = 0; i < 2; i++) {
        open_group();
        reduce_part(0, counts[i], 0, -1);
        struct picture before = take_state();
        ok(wring_step_begin(g.context));
        reduce_part(0, counts[i], 1, -1);
        ok(wring_step_commit(g.context, NULL));
        assert_false(state_is(&before));
        ok(wring_step_undo(g.context));
        assert_true(state_is(&before));
        assert_int_equal(wring_step_undo(g.context), WRING_E_STATE);
        ok(wring_step_begin(g.context));
        reduce_part(0, counts[i], 1, -1);
        ok(wring_step_commit(g.context, NULL));
        reduce_part(0, counts[i], 2, -1);
        assert_int_equal(wring_step_undo(g.context), WRING_E_STATE); /* a call came after it */
        struct picture after = take_picture();
        drop(&before);
        cast_close(&g);
        open_group();
        for (int number = 0; number < 3; number++)
            reduce_part(0, counts[i], number, -1);
        assert_true(still(&after));
        drop(&after);
        cast_close(&g);
    }
}

static void misuse_is_refused(void)
{
    open_group();
    assert_int_equal(wring_step_commit(g.context, NULL), WRING_E_STATE);
    assert_int_equal(wring_step_rollback(g.context), WRING_E_STATE);
    assert_int_equal(wring_step_undo(g.context), WRING_E_STATE);
    ok(wring_step_begin(g.context));
    assert_int_equal(wring_step_begin(g.context), WRING_E_STATE);
    ok(start(&g.actor[0], 0, 1280, 0, false));
    assert_int_equal(wring_step_commit(g.context, NULL), WRING_E_STATE); /* a call is under way */
    for (int q = 1; q < N; q++)
        ok(start(&g.actor[q], 0, 1280, 0, false));
    for (int q = 0; q < N; q++)
        actor_wait(&g.actor[q]);
    assert_int_equal(start(&g.actor[0], 0, 2560, 0, false), WRING_E_STATE); /* twice in a step */
    wring_tensor_destroy(g.actor[1].tensor[0]);                             /* and one of it goes */
    g.actor[1].tensor[0] = NULL;
    ok(wring_step_commit(g.context, NULL));
    ok(wring_step_undo(g.context));
    ok(wring_step_begin(g.context));
    cast_close(&g);
}

/* A NaN in one bucket of a scheduler's step keeps the residuals of all. */
static void a_schedulers_step_counts_as_one(void)
{
    wring_scheduler *scheduler[N];
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    static float residual[3][N][2][3000];
    open_group();
    options.bucket_nbytes = options.first_bucket_nbytes = 256;
    options.stream = there_stream;
    for (int q = 0; q < N; q++) {
        options.codec = g.actor[q].codec;
        ok(wring_scheduler_create(g.comm[q], &options, &scheduler[q]));
        for (int i = 0, param; i < 2; i++)
            ok(wring_scheduler_add(scheduler[q], i ? "weight" : "bias", WRING_FLOAT32, 1,
                                   &scene.count[i], g.actor[q].send[i], &param));
    }
    for (int step = 0; step < 3; step++) {
        for (int q = 0; q < N; q++)
            for (size_t i = 0; i < 2; i++) {
                fill_buffer(&g.actor[q], 10 + step, i);
                if (step == 1 && q == 0 && i == 0)
                    block_copy(g.actor[q].send[i], &(float){NAN}, sizeof(float));
                ok(wring_scheduler_ready(scheduler[q], (int)i));
            }
        for (int q = 0; q < N; q++) {
            wring_result result;
            ok(wring_scheduler_finish(scheduler[q], &result));
            assert_int_equal(result.nonfinite, step == 1);
            if (step == 2)
                ok(wring_scheduler_undo(scheduler[q]));
            for (int i = 0; i < 2; i++)
                ok(wring_tensor_residual(scheduler[q]->params[i].tensor, residual[step][q][i],
                                         scene.count[i]));
        }
    }
    assert_memory_equal(residual[0], residual[1], sizeof(residual[0]));
    assert_memory_equal(residual[0], residual[2], sizeof(residual[0]));
    for (int q = 0; q < N; q++)
        wring_scheduler_destroy(scheduler[q]);
    cast_close(&g);
}

#define EVERYWHERE(name)                                                                           \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        everywhere(name);                                                                          \
    }

EVERYWHERE(steps_give_the_bits_of_calls)
EVERYWHERE(steps_that_do_not_count)
EVERYWHERE(commits_are_undone)
EVERYWHERE(misuse_is_refused)
EVERYWHERE(a_schedulers_step_counts_as_one)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_give_the_bits_of_calls),
        cmocka_unit_test(test_steps_that_do_not_count),
        cmocka_unit_test(test_commits_are_undone),
        cmocka_unit_test(test_misuse_is_refused),
        cmocka_unit_test(test_a_schedulers_step_counts_as_one),
    };
    setenv("WRING_MODULES", getenv("WRING_LIB") ? getenv("WRING_LIB") : "", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
