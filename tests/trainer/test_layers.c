/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's arithmetic: each layer's derivative against differences of its forward pass, the
 * convolution against its definition, the order of samples, the schedules. Values are small
 * binary fractions, so that all but elu and softmax must be exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "layer.h"
#include "optimizer.h"
#include "program.h"
#include "random.h"

#define BATCH 2

static const struct layer_case {
    const struct layer_ops *ops;
    struct shape in;
    size_t width;
} cases[] = {
    {&layer_dense, {3, 1, 1}, 5}, {&layer_dense, {2, 3, 4}, 1}, {&layer_conv, {1, 6, 4}, 3},
    {&layer_conv, {3, 4, 7}, 2},  {&layer_conv, {2, 1, 1}, 1},  {&layer_conv, {1, 1, 5}, 2},
    {&layer_pool, {3, 6, 4}, 0},
};
#define NCASES (sizeof cases / sizeof *cases)

/* Whole numbers and a half, -32.5 to 32.5. */
static void fill(float *x, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)random_below(random_bits(1, stream, i), 66) - 32.5f;
}

struct fixture {
    struct layer layer;
    size_t nx, ny;
    float *x, *y, *dx, *dy;
};

static void open_parameter(struct parameter *p, uint64_t stream)
{
    p->value = must_alloc(p->count, sizeof(float));
    p->grad = must_alloc(p->count, sizeof(float));
    fill(p->value, p->count, stream);
    fill(p->grad, p->count, stream + 1); /* backward must set, not add */
}

static void open_fixture(struct fixture *f, const struct layer_case *c)
{
    size_t scratch;
    f->layer = (struct layer){.ops = c->ops, .in = c->in};
    c->ops->plan(&f->layer, c->width, &scratch);
    f->layer.scratch = must_alloc(scratch, sizeof(float));
    open_parameter(&f->layer.weight, 10);
    open_parameter(&f->layer.bias, 20);
    f->nx = BATCH * shape_count(f->layer.in);
    f->ny = BATCH * shape_count(f->layer.out);
    f->x = must_alloc(f->nx, sizeof(float));
    f->y = must_alloc(f->ny, sizeof(float));
    f->dx = must_alloc(f->nx, sizeof(float));
    f->dy = must_alloc(f->ny, sizeof(float));
    fill(f->x, f->nx, 30);
    fill(f->dy, f->ny, 40);
    fill(f->dx, f->nx, 50);
}

static void close_fixture(struct fixture *f)
{
    float *blocks[] = {f->layer.scratch,
                       f->layer.weight.value,
                       f->layer.weight.grad,
                       f->layer.bias.value,
                       f->layer.bias.grad,
                       f->x,
                       f->y,
                       f->dx,
                       f->dy};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

/* The scalar whose derivative by y is dy. */
static double objective(struct fixture *f)
{
    f->layer.ops->forward(&f->layer, BATCH, f->x, f->y);
    double sum = 0;
    for (size_t i = 0; i < f->ny; i++)
        sum += (double)f->dy[i] * (double)f->y[i];
    return sum;
}

/* GRAD against central differences of the objective. */
static void check_derivative(struct fixture *f, float *value, const float *grad, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float kept = value[i];
        value[i] = kept + 0.25f;
        double up = objective(f);
        value[i] = kept - 0.25f;
        double down = objective(f);
        value[i] = kept;
        assert_true((up - down) / 0.5 == (double)grad[i]);
    }
}

static void test_derivatives(void **state)
{
    (void)state;
    for (size_t i = 0; i < NCASES; i++) {
        struct fixture f;
        open_fixture(&f, &cases[i]);
        objective(&f);
        f.layer.ops->backward(&f.layer, BATCH, f.x, f.y, f.dy, f.dx);
        check_derivative(&f, f.x, f.dx, f.nx);
        check_derivative(&f, f.layer.weight.value, f.layer.weight.grad, f.layer.weight.count);
        check_derivative(&f, f.layer.bias.value, f.layer.bias.grad, f.layer.bias.count);
        close_fixture(&f);
    }
}

/* One output pixel by the definition. */
static float conv_pixel(const struct layer *layer, const float *x, size_t out, long row,
                        long column)
{
    long height = (long)layer->in.height, width = (long)layer->in.width;
    float sum = layer->bias.value[out];
    const float *w = layer->weight.value + out * layer->weight.shape[1];
    for (size_t c = 0; c < layer->in.channels; c++) {
        for (long tap = 0; tap < 9; tap++, w++) {
            long r = row + tap / 3 - 1, k = column + tap % 3 - 1;
            if (r >= 0 && r < height && k >= 0 && k < width)
                sum += *w * x[((long)c * height + r) * width + k];
        }
    }
    return sum;
}

static void test_convolution(void **state)
{
    (void)state;
    for (size_t i = 0; i < NCASES; i++) {
        if (cases[i].ops != &layer_conv)
            continue;
        struct fixture f;
        open_fixture(&f, &cases[i]);
        f.layer.ops->forward(&f.layer, BATCH, f.x, f.y);
        size_t width = f.layer.out.width, pixels = f.layer.out.height * width;
        for (size_t j = 0; j < f.ny; j++) {
            size_t image = j / (f.layer.out.channels * pixels);
            float want = conv_pixel(&f.layer, f.x + image * shape_count(f.layer.in),
                                    j / pixels % f.layer.out.channels, (long)(j % pixels / width),
                                    (long)(j % width));
            assert_true(f.y[j] == want);
        }
        close_fixture(&f);
    }
}

static void test_elu(void **state)
{
    (void)state;
    struct layer layer = {.in = {1, 2, 2}};
    const float x[4] = {-20, -0.5f, 0, 3}, dy[4] = {2, 2, 2, 2};
    float y[4], dx[4];
    layer_elu.forward(&layer, 1, x, y);
    layer_elu.backward(&layer, 1, x, y, dy, dx);
    for (size_t i = 0; i < 4; i++) {
        assert_true(fabs((double)y[i] - (x[i] < 0 ? expm1(x[i]) : x[i])) < 1e-7);
        assert_true(fabs((double)dx[i] - (x[i] < 0 ? 2 * exp(x[i]) : 2)) < 1e-6);
    }
}

static void test_softmax(void **state)
{
    (void)state;
    const uint8_t labels[2] = {2, 0};
    float z[6] = {1000, 999, 1001, -3, 0.5f, 2}, dz[6], ignored[6];
    size_t correct = 0;
    double loss = softmax_loss(2, 3, z, labels, dz, &correct);
    assert_true(fabs(loss - (0.40760596 + 5.20690693)) < 1e-5);
    assert_int_equal(correct, 1);
    for (size_t i = 3; i < 6; i++) {
        float kept = z[i];
        z[i] = kept + 0.01f;
        double up = softmax_loss(2, 3, z, labels, ignored, NULL);
        z[i] = kept - 0.01f;
        double down = softmax_loss(2, 3, z, labels, ignored, NULL);
        z[i] = kept;
        assert_true(fabs((up - down) / 0.02 / 2 - (double)dz[i]) < 1e-4); /* of the mean over 2 */
    }
}

static void test_epoch_order(void **state)
{
    (void)state;
    enum { N = 1000 };
    uint32_t first[N], again[N], other[N];
    bool seen[N] = {false};
    epoch_order(first, N, 7, 3);
    epoch_order(again, N, 7, 3);
    epoch_order(other, N, 7, 4);
    size_t same = 0;
    for (size_t i = 0; i < N; i++) {
        assert_true(first[i] < N && !seen[first[i]]);
        seen[first[i]] = true;
        same += first[i] == other[i];
    }
    assert_memory_equal(first, again, sizeof first);
    assert_true(same < 10);
}

static void test_schedule(void **state)
{
    (void)state;
    const struct {
        enum schedule_kind kind;
        size_t step;
        double factor;
    } rows[] = {
        {SCHEDULE_CONSTANT, 0, 0.1}, {SCHEDULE_CONSTANT, 9, 1},  {SCHEDULE_CONSTANT, 109, 1},
        {SCHEDULE_STEP, 59, 1},      {SCHEDULE_STEP, 60, 0.1},   {SCHEDULE_STEP, 85, 0.01},
        {SCHEDULE_COSINE, 10, 1},    {SCHEDULE_COSINE, 60, 0.5}, {SCHEDULE_COSINE, 110, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double factor = schedule_factor(rows[i].kind, rows[i].step, 110, 10);
        assert_true(fabs(factor - rows[i].factor) < 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derivatives), cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_elu),         cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_epoch_order), cmocka_unit_test(test_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
