/* SPDX-License-Identifier: Apache-2.0 */
/* Random bits: the published answers of Philox4x32-10, frozen values of our own mix (every device
 * must give them), and that neighbours in any coordinate look independent. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/rng.h"

#define BLOCKS 2000
#define ELEMENTS 128

/* From the known-answer file of Random123, by the authors of Philox. */
static void philox_gives_the_published_answers(void **state)
{
    (void)state;
    const struct {
        struct wri_philox counter;
        uint32_t key[2];
        struct wri_philox answer;
    } cases[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct wri_philox got =
            wri_philox4x32_10(cases[i].counter, cases[i].key[0], cases[i].key[1]);
        assert_memory_equal(&got, &cases[i].answer, sizeof(got));
    }
}

static const struct wring_random_key origin = {.seed = 1, .tensor = 2, .step = 3, .rank = 4};

static void the_mix_is_frozen(void **state)
{
    (void)state;
    const uint32_t expected[8] = {0xc533, 0x70cd, 0x041a, 0x7ca7, 0x3696, 0x07a0, 0x4499, 0x09b8};
    struct wri_philox block = wri_random_block(&origin, 5);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(wri_random16(block, i), expected[i]);
}

/* Correlation, in standard deviations of independent draws, between element I of block B under KEY
 * and element I + DI of block B + DB under OTHER. */
static double correlation(const struct wring_random_key *key, const struct wring_random_key *other,
                          uint64_t db, uint32_t di)
{
    double sum = 0;
    for (uint64_t b = 0; b < BLOCKS; b++) {
        struct wri_philox left = wri_random_block(key, b), right = wri_random_block(other, b + db);
        for (uint32_t i = 0; i < ELEMENTS; i++)
            sum += (wri_random16(left, i) - 32767.5) * (wri_random16(right, i + di) - 32767.5);
    }
    const double variance = 65536.0 * 65536.0 / 12;
    return fabs(sum) / variance / sqrt((double)BLOCKS * ELEMENTS);
}

static void neighbours_look_independent(void **state)
{
    (void)state;
    struct wring_random_key seed = origin, tensor = origin, step = origin, rank = origin;
    seed.seed++;
    tensor.tensor++;
    step.step++;
    rank.rank++;
    const struct wring_random_key *const others[] = {&seed, &tensor, &step, &rank};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_true(correlation(&origin, others[i], 0, 0) < 4);
    assert_true(correlation(&origin, &origin, 1, 0) < 4);
    for (uint32_t distance = 1; distance <= 16; distance++)
        assert_true(correlation(&origin, &origin, 0, distance) < 4);
}

static void every_bit_is_balanced(void **state)
{
    (void)state;
    double ones[16] = {0};
    for (uint64_t b = 0; b < BLOCKS; b++) {
        struct wri_philox block = wri_random_block(&origin, b);
        for (uint32_t i = 0; i < ELEMENTS; i++)
            for (int bit = 0; bit < 16; bit++)
                ones[bit] += wri_random16(block, i) >> bit & 1;
    }
    for (int bit = 0; bit < 16; bit++) {
        double draws = (double)BLOCKS * ELEMENTS;
        assert_true(fabs(ones[bit] - draws / 2) < 4 * sqrt(draws / 4));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(the_mix_is_frozen),
        cmocka_unit_test(neighbours_look_independent),
        cmocka_unit_test(every_bit_is_balanced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
