/* SPDX-License-Identifier: Apache-2.0 */
/* The frame: its bytes are frozen, and no changed byte passes for the frame that was expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collective/frame.h"

#include <string.h>

static const unsigned char payload[] = "thirteen bytes";

static struct wri_frame example(void)
{
    struct wri_frame frame = {.magic = WRI_FRAME_MAGIC,
                              .version = WRI_FRAME_VERSION,
                              .header_nbytes = WRI_FRAME_NBYTES,
                              .flags = WRI_FRAME_HASHED,
                              .kind = WRING_ALLREDUCE,
                              .op = WRING_AVG,
                              .dtype = WRING_BFLOAT16,
                              .nstages = 2,
                              .stage = {40, 10},
                              .tag = 3,
                              .spec_digest = 0x0102030405060708,
                              .count = 1000003,
                              .payload_nbytes = sizeof(payload) - 1,
                              .nonce = 0x1112131415161718,
                              .epoch = 0x21222324,
                              .source = 5,
                              .operation = 77,
                              .step = 78,
                              .last_good_step = 76,
                              .plan_epoch = 1,
                              .plan_digest = 0x31323334,
                              .piece = 9,
                              .tensor_digest = 0x41424344,
                              .payload_count = 250};
    wri_frame_seal(&frame, payload);
    return frame;
}

static void bytes_are_frozen(void **state)
{
    (void)state;
    static const unsigned char golden[WRI_FRAME_NBYTES] = {
        0x77, 0x72, 0x6e, 0x67, 1,    128,  4,    0,    0,    1,    2,    2,    40,   0,
        10,   0,    0,    0,    0,    0,    0,    0,    3,    0,    8,    7,    6,    5,
        4,    3,    2,    1,    0x43, 0x42, 0x0f, 0,    0,    0,    0,    0,    14,   0,
        0,    0,    0,    0,    0,    0,    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
        0x24, 0x23, 0x22, 0x21, 5,    0,    0,    0,    77,   0,    0,    0,    0,    0,
        0,    0,    78,   0,    0,    0,    0,    0,    0,    0,    76,   0,    0,    0,
        0,    0,    0,    0,    1,    0,    0,    0,    0x34, 0x33, 0x32, 0x31, 9,    0,
        0,    0,    0x44, 0x43, 0x42, 0x41, 250,  0,    0,    0,    0,    0,    0,    0};
    struct wri_frame frame = example();
    assert_memory_equal(&frame, golden, offsetof(struct wri_frame, payload_hash));
    assert_int_equal(frame.payload_hash, UINT64_C(0x36e6c13379874220));
    assert_int_equal(frame.header_hash, UINT64_C(0x2c5adfd1bf534061));
}

static void the_expected_frame_passes(void **state)
{
    (void)state;
    struct wri_frame frame = example();
    assert_int_equal(wri_frame_check(&frame, sizeof(frame), &frame), WRING_OK);
    assert_int_equal(wri_frame_check_payload(&frame, payload), WRING_OK);
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    const struct wri_frame expected = example();
    for (size_t bit = 0; bit < 8 * sizeof(expected); bit++) {
        struct wri_frame frame = expected;
        ((unsigned char *)&frame)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(wri_frame_check(&frame, sizeof(frame), &expected), WRING_E_CORRUPT);
    }
    unsigned char damaged[sizeof(payload)];
    for (size_t i = 0; i < sizeof(payload) - 1; i++) {
        memcpy(damaged, payload, sizeof(payload));
        damaged[i] ^= 0x40;
        assert_int_equal(wri_frame_check_payload(&expected, damaged), WRING_E_CORRUPT);
    }
}

static void short_messages_are_refused(void **state)
{
    (void)state;
    struct wri_frame frame = example();
    for (size_t nbytes = 0; nbytes < sizeof(frame); nbytes++)
        assert_int_equal(wri_frame_check(&frame, nbytes, &frame), WRING_E_CORRUPT);
}

/* A sealed frame that differs in one field: which error? */
static void differences_are_told_apart(void **state)
{
    (void)state;
#define CASE(field, want)                                                                          \
    {                                                                                              \
        offsetof(struct wri_frame, field), want                                                    \
    }
    static const struct {
        size_t offset;
        wring_status want;
    } cases[] = {
        CASE(version, WRING_E_MISMATCH),
        CASE(kind, WRING_E_MISMATCH),
        CASE(op, WRING_E_MISMATCH),
        CASE(dtype, WRING_E_MISMATCH),
        CASE(nstages, WRING_E_MISMATCH),
        CASE(stage, WRING_E_MISMATCH),
        CASE(spec_digest, WRING_E_MISMATCH),
        CASE(count, WRING_E_MISMATCH),
        CASE(plan_digest, WRING_E_MISMATCH),
        CASE(plan_epoch, WRING_E_MISMATCH),
        CASE(tensor_digest, WRING_E_MISMATCH),
        CASE(nonce, WRING_E_CORRUPT),
        CASE(epoch, WRING_E_CORRUPT),
        CASE(source, WRING_E_CORRUPT),
        CASE(operation, WRING_E_CORRUPT),
        CASE(piece, WRING_E_CORRUPT),
        CASE(tag, WRING_E_CORRUPT),
        CASE(payload_count, WRING_E_CORRUPT),
        CASE(payload_nbytes, WRING_E_CORRUPT),
    };
    const struct wri_frame expected = example();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct wri_frame frame = expected;
        ((unsigned char *)&frame)[cases[i].offset] ^= 1;
        wri_frame_seal(&frame, payload);
        assert_int_equal(wri_frame_check(&frame, sizeof(frame), &expected), cases[i].want);
    }
    /* As many stages as there is room for, known and unknown: all of them are named. */
    struct wri_frame frame = expected;
    for (size_t i = 0; i < sizeof(frame.stage) / sizeof(frame.stage[0]); i++)
        frame.stage[i] = i % 2 ? 10 : 0x7777;
    wri_frame_seal(&frame, payload);
    assert_int_equal(wri_frame_check(&frame, sizeof(frame), &expected), WRING_E_MISMATCH);
    assert_non_null(strstr(wring_error_message(), "?+int8+?+int8+?"));
    /* What a flag says that this version does not know cannot be left unread. */
    for (int bit = 0; bit < 16; bit++) {
        bool known = 1 << bit == WRI_FRAME_NONFINITE || 1 << bit == WRI_FRAME_HASHED;
        frame = expected;
        frame.flags |= (uint16_t)(1 << bit);
        wri_frame_seal(&frame, payload);
        assert_int_equal(wri_frame_check(&frame, sizeof(frame), &expected),
                         known ? WRING_OK : WRING_E_CORRUPT);
    }
    /* The sender's progress is its own affair. */
    frame = expected;
    frame.step = frame.last_good_step = 3;
    wri_frame_seal(&frame, payload);
    assert_int_equal(wri_frame_check(&frame, sizeof(frame), &expected), WRING_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_frozen),
        cmocka_unit_test(the_expected_frame_passes),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(short_messages_are_refused),
        cmocka_unit_test(differences_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
