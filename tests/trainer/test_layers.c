/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's arithmetic on each device of the build: each layer's derivative against
 * differences of its forward pass, the convolution against its definition, the steps of the
 * optimizers; the order of samples, the schedules. Values are small binary fractions, so that
 * what is linear must be exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "device.h"
#include "layer.h"
#include "optimizer.h"
#include "program.h"
#include "random.h"
#include "scaler.h"

#define BATCH 2

static struct device *device; /* under test */

static const struct layer_case {
    enum layer_kind kind;
    struct shape in;
    size_t width;
} cases[] = {
    {LAYER_DENSE, {3, 1, 1}, 5}, {LAYER_DENSE, {2, 3, 4}, 1},    {LAYER_CONV, {1, 6, 4}, 3},
    {LAYER_CONV, {3, 4, 7}, 2},  {LAYER_CONV, {2, 1, 1}, 1},     {LAYER_CONV, {1, 1, 5}, 2},
    {LAYER_POOL, {3, 6, 4}, 0},  {LAYER_POSITION, {3, 1, 4}, 0}, {LAYER_LINEAR, {3, 1, 4}, 5},
};
#define NCASES (sizeof cases / sizeof *cases)

/* Whole numbers and a half, -32.5 to 32.5. */
static void fill(float *x, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)random_below(random_bits(1, stream, i), 66) - 32.5f;
}

/* An array on the host and its like on the device. */
struct array {
    size_t count;
    float *host, *there;
};

static void open_array(struct array *a, size_t count, uint64_t stream)
{
    *a = (struct array){count, must_alloc(count, sizeof(float)), NULL};
    a->there = device_alloc(device, count, sizeof(float));
    fill(a->host, count, stream);
}

static void close_array(struct array *a)
{
    free(a->host);
    device->ops->free(device, a->there);
}

static void put(const struct array *a)
{
    device->ops->put(device, a->there, a->host, a->count * sizeof(float));
}

static void get(struct array *a)
{
    device->ops->get(device, a->host, a->there, a->count * sizeof(float));
    device_wait(device);
}

enum { X, Y, DX, DY, WEIGHT, WEIGHT_GRAD, BIAS, BIAS_GRAD, ARRAYS };

struct fixture {
    const struct layer_ops *ops;
    struct layer layer;
    struct array array[ARRAYS];
};

static void open_fixture(struct fixture *f, const struct layer_case *c)
{
    layer_plan(&f->layer, c->kind, c->in, c->width);
    f->ops = device->ops->layer[c->kind];
    size_t scratch = f->ops->scratch ? f->ops->scratch(&f->layer, BATCH) : 0;
    f->layer.scratch = device_alloc(device, scratch, sizeof(float));
    size_t nx = BATCH * shape_count(f->layer.in), ny = BATCH * shape_count(f->layer.out);
    size_t weights = f->layer.weight.count, biases = f->layer.bias.count;
    const size_t counts[ARRAYS] = {nx, ny, nx, ny, weights, weights, biases, biases};
    for (size_t i = 0; i < ARRAYS; i++) /* filled, because backward must set and not add */
        open_array(&f->array[i], counts[i], 10 * (i + 1));
    f->layer.weight.value = f->array[WEIGHT].there;
    f->layer.weight.grad = f->array[WEIGHT_GRAD].there;
    f->layer.bias.value = f->array[BIAS].there;
    f->layer.bias.grad = f->array[BIAS_GRAD].there;
    for (size_t i = 0; i < ARRAYS; i++)
        put(&f->array[i]);
}

static void close_fixture(struct fixture *f)
{
    for (size_t i = 0; i < ARRAYS; i++)
        close_array(&f->array[i]);
    device->ops->free(device, f->layer.scratch);
}

static void run_forward(struct fixture *f)
{
    f->ops->forward(device, &f->layer, BATCH, f->array[X].there, f->array[Y].there);
    get(&f->array[Y]);
}

static void run_backward(struct fixture *f)
{
    f->ops->backward(device, &f->layer, BATCH, f->array[X].there, f->array[Y].there,
                     f->array[DY].there, f->array[DX].there);
    for (size_t i = 0; i < ARRAYS; i++)
        get(&f->array[i]);
}

/* The scalar whose derivative by y is dy. */
static double objective(struct fixture *f)
{
    run_forward(f);
    double sum = 0;
    for (size_t i = 0; i < f->array[Y].count; i++)
        sum += (double)f->array[DY].host[i] * (double)f->array[Y].host[i];
    return sum;
}

static double objective_at(struct fixture *f, struct array *value, size_t i, float x)
{
    float kept = value->host[i];
    value->host[i] = x;
    put(value);
    value->host[i] = kept;
    double result = objective(f);
    put(value);
    return result;
}

/* GRAD against central differences of the objective. */
static void check_derivative(struct fixture *f, int value, int grad)
{
    struct array *at = &f->array[value];
    for (size_t i = 0; i < at->count; i++) {
        double up = objective_at(f, at, i, at->host[i] + 0.25f);
        double down = objective_at(f, at, i, at->host[i] - 0.25f);
        assert_true((up - down) / 0.5 == (double)f->array[grad].host[i]);
    }
}

static void test_derivatives(void **state)
{
    (void)state;
    for (size_t i = 0; i < NCASES; i++) {
        struct fixture f;
        if (!device->ops->layer[cases[i].kind])
            continue; /* model_check() refuses what this device has not */
        open_fixture(&f, &cases[i]);
        run_forward(&f);
        run_backward(&f);
        check_derivative(&f, X, DX);
        check_derivative(&f, WEIGHT, WEIGHT_GRAD);
        check_derivative(&f, BIAS, BIAS_GRAD);
        close_fixture(&f);
    }
}

/* One output pixel by the definition. */
static float conv_pixel(const struct fixture *f, const float *x, size_t out, long row, long column)
{
    long height = (long)f->layer.in.height, width = (long)f->layer.in.width;
    float sum = f->array[BIAS].host[out];
    const float *w = f->array[WEIGHT].host + out * f->layer.weight.shape[1];
    for (size_t c = 0; c < f->layer.in.channels; c++) {
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
        if (cases[i].kind != LAYER_CONV)
            continue;
        struct fixture f;
        open_fixture(&f, &cases[i]);
        run_forward(&f);
        size_t width = f.layer.out.width, pixels = f.layer.out.height * width;
        for (size_t j = 0; j < f.array[Y].count; j++) {
            size_t image = j / (f.layer.out.channels * pixels);
            float want = conv_pixel(&f, f.array[X].host + image * shape_count(f.layer.in),
                                    j / pixels % f.layer.out.channels, (long)(j % pixels / width),
                                    (long)(j % width));
            assert_true(f.array[Y].host[j] == want);
        }
        close_fixture(&f);
    }
}

static void test_elu(void **state)
{
    (void)state;
    const float x[4] = {-20, -0.5f, 0, 3};
    struct fixture f;
    open_fixture(&f, &(struct layer_case){LAYER_ELU, {1, 1, 2}, 0});
    memcpy(f.array[X].host, x, sizeof x);
    put(&f.array[X]);
    run_forward(&f);
    run_backward(&f);
    for (size_t i = 0; i < 4; i++) {
        float y = f.array[Y].host[i], slope = f.array[DX].host[i] / f.array[DY].host[i];
        assert_true(fabs((double)y - (x[i] < 0 ? expm1(x[i]) : x[i])) < 1e-7);
        assert_true(fabs((double)slope - (x[i] < 0 ? exp(x[i]) : 1)) < 1e-6);
    }
    close_fixture(&f);
}

/* What is not linear, with features that are small and far from each other: differences of the
 * objective, which is about 1, are good to 1e-3. */
static void check_slope(struct fixture *f, int value, int grad)
{
    struct array *at = &f->array[value];
    for (size_t i = 0; i < at->count; i++) {
        const float step = 0x1p-7f;
        double up = objective_at(f, at, i, at->host[i] + step);
        double down = objective_at(f, at, i, at->host[i] - step);
        double got = (double)f->array[grad].host[i], want = (up - down) / (2 * (double)step);
        assert_true(fabs(want - got) < 2e-3);
    }
}

static void test_sequence_layers(void **state)
{
    (void)state;
    static const struct layer_case bent[] = {
        {LAYER_NORM, {3, 1, 9}, 0},
        {LAYER_GELU, {3, 1, 5}, 0},
        {LAYER_ATTENTION, {5, 1, 12}, 1},
        {LAYER_ATTENTION, {4, 1, 18}, 3},
    };
    for (size_t i = 0; i < sizeof bent / sizeof *bent; i++) {
        struct fixture f;
        if (!device->ops->layer[bent[i].kind])
            continue;
        open_fixture(&f, &bent[i]);
        for (size_t k = 0; k < ARRAYS; k++) {
            for (size_t j = 0; j < f.array[k].count; j++)
                f.array[k].host[j] /= 32;
            put(&f.array[k]);
        }
        run_forward(&f);
        run_backward(&f);
        check_slope(&f, X, DX);
        check_slope(&f, WEIGHT, WEIGHT_GRAD);
        check_slope(&f, BIAS, BIAS_GRAD);
        close_fixture(&f);
    }
}

/* What a position sees may not depend on what comes after it. */
static void test_causal(void **state)
{
    (void)state;
    struct fixture f;
    if (!device->ops->layer[LAYER_ATTENTION])
        return;
    open_fixture(&f, &(struct layer_case){LAYER_ATTENTION, {5, 1, 12}, 2});
    run_forward(&f);
    float before[12];
    memcpy(before, f.array[Y].host, sizeof before); /* 3 positions of 4 features */
    for (size_t i = 3 * 12; i < f.array[X].count; i++)
        f.array[X].host[i] += 1;
    put(&f.array[X]);
    run_forward(&f);
    assert_memory_equal(before, f.array[Y].host, sizeof before);
    assert_true(f.array[Y].host[12] != before[0]);
    close_fixture(&f);
}

/* Rows of the weight, chosen by whole numbers; their gradients add up. */
static void test_embed(void **state)
{
    (void)state;
    const float x[2 * 3] = {7, 0, 7, 255, 7, 1};
    struct fixture f;
    if (!device->ops->layer[LAYER_EMBED])
        return;
    open_fixture(&f, &(struct layer_case){LAYER_EMBED, {3, 1, 1}, 2});
    memcpy(f.array[X].host, x, sizeof x);
    put(&f.array[X]);
    run_forward(&f);
    run_backward(&f);
    float want[2 * TEXT_CLASSES] = {0};
    for (size_t i = 0; i < f.array[Y].count; i++) {
        size_t at = 2 * (size_t)x[i / 2] + i % 2;
        assert_true(f.array[Y].host[i] == f.array[WEIGHT].host[at]);
        want[at] += f.array[DY].host[i];
    }
    assert_memory_equal(want, f.array[WEIGHT_GRAD].host, sizeof want);
    close_fixture(&f);
}

/* Scores of COUNT samples of 3 classes, whose derivative goes to DZ, unless NULL. */
static struct score softmax(const float *z, const uint8_t *labels, size_t count, float *dz)
{
    struct score score;
    struct array logits, grad;
    uint8_t *labels_there = device_alloc(device, count, 1);
    struct score *score_there = device_alloc(device, 1, sizeof score);
    open_array(&logits, 3 * count, 1);
    open_array(&grad, 3 * count, 2);
    memcpy(logits.host, z, 3 * count * sizeof *z);
    put(&logits);
    device->ops->put(device, labels_there, labels, count);
    device->ops->softmax(device, count, 3, logits.there, labels_there, 0.5f, dz ? grad.there : NULL,
                         score_there);
    device->ops->get(device, &score, score_there, sizeof score);
    get(&grad);
    if (dz)
        memcpy(dz, grad.host, 3 * count * sizeof *dz);
    close_array(&logits);
    close_array(&grad);
    device->ops->free(device, labels_there);
    device->ops->free(device, score_there);
    return score;
}

static void test_softmax(void **state)
{
    (void)state;
    const uint8_t labels[2] = {2, 0};
    float z[6] = {1000, 999, 1001, -3, 0.5f, 2}, dz[6];
    struct score score = softmax(z, labels, 2, dz);
    assert_true(fabs(score.loss - (0.40760596 + 5.20690693)) < 1e-5);
    assert_int_equal(score.correct, 1);
    for (size_t i = 3; i < 6; i++) {
        float kept = z[i];
        z[i] = kept + 0.01f;
        double up = softmax(z, labels, 2, NULL).loss;
        z[i] = kept - 0.01f;
        double down = softmax(z, labels, 2, NULL).loss;
        z[i] = kept;
        assert_true(fabs((up - down) / 0.02 / 2 - (double)dz[i]) < 1e-4); /* SCALE is a half */
    }
}

/* More samples than a device has threads for. */
static void test_many_losses(void **state)
{
    (void)state;
    enum { N = 1000 };
    static float z[3 * N];
    static uint8_t labels[N];
    double loss = 0;
    for (size_t i = 0; i < N; i++) {
        labels[i] = (uint8_t)(i % 3);
        z[3 * i + i % 2] = 1; /* the largest is the label's for i % 6 == 0, 1 */
        loss += log(2 + exp(1.0)) - (i % 3 == i % 2);
    }
    struct score score = softmax(z, labels, N, NULL);
    assert_true(fabs(score.loss - loss) < 1e-3);
    assert_int_equal(score.correct, 2 * (N / 6) + 2);
}

static void test_gather(void **state)
{
    (void)state;
    enum { COUNT = 5, CHOSEN = 3, PIXELS = 300, LABELS = 2 };
    struct dataset data = {COUNT, PIXELS, LABELS, must_alloc(COUNT, PIXELS),
                           must_alloc(COUNT, LABELS)};
    const uint32_t index[1 + CHOSEN] = {1, 4, 0, 4};
    uint8_t labels[CHOSEN * LABELS];
    struct array table, input;
    open_array(&table, 256, 1);
    open_array(&input, (size_t)CHOSEN * PIXELS, 2);
    for (size_t i = 0; i < (size_t)COUNT * PIXELS; i++)
        data.inputs[i] = (uint8_t)(i / PIXELS + i);
    for (size_t i = 0; i < COUNT * LABELS; i++)
        data.labels[i] = (uint8_t)(i + 3);
    uint8_t *labels_there = device_alloc(device, CHOSEN, LABELS);
    uint32_t *index_there = device_alloc(device, 1 + CHOSEN, sizeof *index);
    device->ops->put(device, index_there, index, sizeof index);
    put(&table);
    device_take(device, &data);
    for (int indexed = 0; indexed < 2; indexed++) {
        device->ops->gather(device, &data, table.there, indexed ? index_there : NULL, 1, CHOSEN,
                            input.there, labels_there);
        device->ops->get(device, labels, labels_there, sizeof labels);
        get(&input);
        for (size_t i = 0; i < input.count; i++) {
            size_t sample = i / PIXELS, from = indexed ? index[1 + sample] : 1 + sample;
            size_t pixel = from * PIXELS + i % PIXELS;
            assert_true(input.host[i] == table.host[(uint8_t)(from + pixel)]);
            assert_int_equal(labels[sample * LABELS + i % LABELS], from * LABELS + i % LABELS + 3);
        }
    }
    device_drop(device, &data);
    device->ops->free(device, labels_there);
    device->ops->free(device, index_there);
    close_array(&table);
    close_array(&input);
}

/* The steps of the optimizers against the same in double. */
enum { VALUE, GRAD, FIRST, SECOND, STEP_ARRAYS };
#define STEP_COUNT 5000
static float before[STEP_ARRAYS][STEP_COUNT];

/* Arrays of whole numbers and a half, the second moment positive; BEFORE is what they hold. */
static void open_step(struct array a[STEP_ARRAYS])
{
    for (size_t i = 0; i < STEP_ARRAYS; i++) {
        open_array(&a[i], STEP_COUNT, i);
        for (size_t j = 0; i == SECOND && j < STEP_COUNT; j++)
            a[i].host[j] = fabsf(a[i].host[j]);
        put(&a[i]);
        memcpy(before[i], a[i].host, sizeof before[i]);
    }
}

static void close_step(struct array a[STEP_ARRAYS])
{
    for (size_t i = 0; i < STEP_ARRAYS; i++)
        close_array(&a[i]);
}

static void get_step(struct array a[STEP_ARRAYS])
{
    for (size_t i = 0; i < STEP_ARRAYS; i++)
        get(&a[i]);
}

static void test_sgd(void **state)
{
    (void)state;
    struct array a[STEP_ARRAYS];
    open_step(a);
    const struct sgd_step step = {2, 0.5f, 0.75f, 0.25f};
    device->ops->sgd(device, step, STEP_COUNT, a[VALUE].there, a[GRAD].there, a[FIRST].there);
    get_step(a);
    for (size_t i = 0; i < STEP_COUNT; i++) {
        float velocity = 0.75f * before[FIRST][i] + 2 * before[GRAD][i] + 0.25f * before[VALUE][i];
        assert_true(a[FIRST].host[i] == velocity);
        assert_true(a[VALUE].host[i] == before[VALUE][i] - 0.5f * velocity);
    }
    close_step(a);
}

static void test_rmsprop(void **state)
{
    (void)state;
    struct array a[STEP_ARRAYS];
    open_step(a);
    const struct rmsprop_step step = {2, 0.5f, 0.75f, 0.25f, 0.5f, 1e-8f};
    device->ops->rmsprop(device, step, STEP_COUNT, a[VALUE].there, a[GRAD].there, a[FIRST].there,
                         a[SECOND].there);
    get_step(a);
    for (size_t i = 0; i < STEP_COUNT; i++) {
        double g = 2 * before[GRAD][i] + 0.25 * before[VALUE][i];
        double second = 0.5 * before[SECOND][i] + 0.5 * g * g;
        double velocity = 0.75 * before[FIRST][i] + g / (sqrt(second) + 1e-8);
        assert_true(fabs(a[SECOND].host[i] - second) < 1e-3);
        assert_true(fabs(a[FIRST].host[i] - velocity) < 1e-4);
        assert_true(fabs(a[VALUE].host[i] - (before[VALUE][i] - 0.5 * velocity)) < 1e-4);
    }
    close_step(a);
}

static void test_adam(void **state)
{
    (void)state;
    struct array a[STEP_ARRAYS];
    open_step(a);
    const struct adam_step step = {2, 0.5f, 0.75f, 1e-8f, 0.125f, 2, 0.25f};
    device->ops->adam(device, step, STEP_COUNT, a[VALUE].there, a[GRAD].there, a[FIRST].there,
                      a[SECOND].there);
    get_step(a);
    for (size_t i = 0; i < STEP_COUNT; i++) {
        double g = 2 * before[GRAD][i], first = 0.5 * before[FIRST][i] + 0.5 * g;
        double second = 0.75 * before[SECOND][i] + 0.25 * g * g;
        double value = 0.75 * before[VALUE][i] - 0.125 * first / (sqrt(2 * second) + 1e-8);
        assert_true(a[FIRST].host[i] == first && fabs(a[SECOND].host[i] - second) < 1e-3);
        assert_true(fabs(a[VALUE].host[i] - value) < 1e-5);
    }
    close_step(a);
}

/* X in float16, by its definition: 11 bits, or fewer below 2^-14. */
static double float16_of(double x)
{
    double ulp = ldexp(1, (fabs(x) < 0x1p-14 ? -14 : ilogb(x)) - 10), rounded = rint(x / ulp) * ulp;
    return fabs(rounded) > 65504 ? copysign(INFINITY, x) : rounded;
}

/* 2^20 numbers of all sizes. */
static void test_narrow(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    if (!device->ops->narrow)
        return;
    float *x = must_alloc(N, sizeof *x), *back = must_alloc(N, sizeof *back);
    uint16_t *y = must_alloc(N, sizeof *y);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t bits = (i << 12) ^ (uint32_t)(random_bits(1, 1, i) & (i & 1 ? 0xFFF : 0));
        memcpy(&x[i], &bits, sizeof bits);
    }
    device->ops->narrow(device, PRECISION_FLOAT16, N, x, y);
    device->ops->widen(device, PRECISION_FLOAT16, N, y, back);
    for (size_t i = 0; i < N; i++) {
        assert_true(isnan(x[i])   ? isnan(back[i])
                    : isinf(x[i]) ? back[i] == x[i]
                                  : back[i] == (float)float16_of((double)x[i]));
        assert_true(signbit(back[i]) == signbit(x[i]));
    }
    device->ops->narrow(device, PRECISION_BFLOAT16, N, x, y);
    device->ops->widen(device, PRECISION_BFLOAT16, N, y, back);
    for (size_t i = 0; i < N; i++) {
        if (isnan(x[i]) || isinf(x[i])) {
            assert_true(isnan(x[i]) ? isnan(back[i]) : back[i] == x[i]);
        } else if (fabsf(x[i]) >= 0x1p-126f && !isinf(back[i])) {
            double lost = fabs((double)back[i] - (double)x[i]);
            double half = ldexp(1, ilogb(x[i]) - 8); /* of the last of 8 bits */
            assert_true(lost < half || (lost == half && (y[i] & 1) == 0));
        }
    }
    free(x);
    free(y);
    free(back);
}

static void test_scaler(void **state)
{
    (void)state;
    struct scaler scaler = {.scale = 4, .dynamic = true, .window = 2};
    assert_true(scaler_update(&scaler, true) && scaler.scale == 2 && scaler.skipped == 1);
    assert_true(scaler_update(&scaler, false) && scaler.scale == 2);
    assert_true(scaler_update(&scaler, true) && scaler.scale == 1); /* good steps count anew */
    assert_false(scaler_update(&scaler, true));
    assert_true(scaler_update(&scaler, false) && scaler.scale == 1);
    assert_true(scaler_update(&scaler, false) && scaler.scale == 2 && scaler.good == 0);
    scaler.dynamic = false;
    for (int i = 0; i < 5; i++)
        assert_true(scaler_update(&scaler, false) && scaler.scale == 2);
    assert_false(scaler_update(&scaler, true));
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

static int test_device(int kind)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derivatives), cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_elu),         cmocka_unit_test(test_sequence_layers),
        cmocka_unit_test(test_causal),      cmocka_unit_test(test_embed),
        cmocka_unit_test(test_softmax),     cmocka_unit_test(test_many_losses),
        cmocka_unit_test(test_gather),      cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_rmsprop),     cmocka_unit_test(test_adam),
        cmocka_unit_test(test_narrow),
    };
    const struct device_ops *ops = device_find(kind);
    device = device_open(ops, 0);
    int failed = cmocka_run_group_tests_name(ops->name, tests, NULL, NULL);
    ops->close(device);
    return failed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epoch_order),
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_scaler),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int kind = 0; kind < DEVICES; kind++)
        failed += test_device(kind);
    return failed;
}
