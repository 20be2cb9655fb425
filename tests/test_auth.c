/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job's secret and the proof that one knows it. An attacker sits on the wire between the two
 * sides: it forwards, changes, replays and reflects, and gets nothing for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "refuse.h"
#include "transport/auth.h"

#define GREETING WRI_AUTH_GREETING_NBYTES
#define PROOF WRI_AUTH_PROOF_NBYTES
#define SPOKEN (GREETING + PROOF) /* by either side */

static struct wri_secret secret_of(const char *text)
{
    struct wri_config config = {0};
    struct wri_secret secret;
    snprintf(config.secret, sizeof config.secret, "%s", text);
    assert_int_equal(wri_secret_load(&config, &secret), WRING_OK);
    return secret;
}

/* ---- the wire -------------------------------------------------------------------------------- */

enum { CONNECTS, LISTENS };

/* Both sides, and the attacker's ends of their connections. */
struct wire {
    struct wri_secret secret[2];
    struct wri_auth auth[2];
    int fd[2], attacker[2];
    wring_status status[2];
    char message[2][1024];
    unsigned char spoken[2][SPOKEN]; /* by each side, as it was said */
    size_t nspoken[2];
    size_t flip; /* bit that the attacker changes, of both sides' bytes one after the other */
};
#define NO_FLIP SIZE_MAX

static void side_open(struct wire *wire, int side, const char *secret)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    wire->fd[side] = ends[0];
    wire->attacker[side] = ends[1];
    wire->secret[side] = secret_of(secret);
    wri_auth_init(&wire->auth[side], &wire->secret[side], side == LISTENS);
    wire->status[side] = WRING_AGAIN;
}

static struct wire *wire_open(const char *connects, const char *listens)
{
    static struct wire wire;
    memset(&wire, 0, sizeof wire);
    wire.flip = NO_FLIP;
    side_open(&wire, CONNECTS, connects);
    side_open(&wire, LISTENS, listens);
    return &wire;
}

static void side_close(struct wire *wire, int side)
{
    if (wire->fd[side] >= 0)
        close(wire->fd[side]);
    close(wire->attacker[side]);
}

static void wire_close(struct wire *wire)
{
    side_close(wire, CONNECTS);
    side_close(wire, LISTENS);
}

/* One side goes on; it hangs up when it has failed. */
static void advance(struct wire *wire, int side)
{
    if (wire->status[side] != WRING_AGAIN)
        return;
    wire->status[side] = wri_auth_advance(&wire->auth[side], wire->fd[side]);
    if (wire->status[side] == WRING_OK || wire->status[side] == WRING_AGAIN)
        return;
    snprintf(wire->message[side], sizeof wire->message[side], "%s", wring_error_message());
    close(wire->fd[side]);
    wire->fd[side] = -1;
}

/* The attacker hears one byte of SIDE; false: none. */
static bool overhear(struct wire *wire, int side, unsigned char *byte_out)
{
    ssize_t got = recv(wire->attacker[side], byte_out, 1, 0);
    if (got == 1 && wire->nspoken[side] < SPOKEN)
        wire->spoken[side][wire->nspoken[side]++] = *byte_out;
    if (got == 0)
        shutdown(wire->attacker[!side], SHUT_WR);
    return got == 1;
}

static void forward(struct wire *wire, int side)
{
    unsigned char byte;
    if (!overhear(wire, side, &byte))
        return;
    size_t at = (size_t)side * SPOKEN + wire->nspoken[side] - 1;
    if (wire->flip / 8 == at)
        byte ^= (unsigned char)(1u << wire->flip % 8);
    (void)send(wire->attacker[!side], &byte, 1, MSG_NOSIGNAL);
}

/* Byte by byte until both sides have ended. */
static void talk(struct wire *wire)
{
    for (int turn = 0; turn < 4 * SPOKEN; turn++)
        for (int side = CONNECTS; side <= LISTENS; side++) {
            advance(wire, side);
            forward(wire, side);
        }
}

static void assert_ends(const struct wire *wire, wring_status connects, wring_status listens)
{
    if (wire->status[CONNECTS] != connects || wire->status[LISTENS] != listens)
        fail_msg("connecting side: %s (%s), listening side: %s (%s)",
                 wring_status_name(wire->status[CONNECTS]), wire->message[CONNECTS],
                 wring_status_name(wire->status[LISTENS]), wire->message[LISTENS]);
}

/* ---- honest sides ---------------------------------------------------------------------------- */

static void who_knows_the_secret_is_believed(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        const char *secret = known ? "sixteen bytes ok" : "";
        struct wire *wire = wire_open(secret, secret);
        assert_true(wri_auth_sends(&wire->auth[CONNECTS]));
        assert_false(wri_auth_sends(&wire->auth[LISTENS]));
        talk(wire);
        assert_ends(wire, WRING_OK, WRING_OK);
        assert_int_equal(wire->nspoken[CONNECTS], SPOKEN);
        assert_int_equal(wire->nspoken[LISTENS], SPOKEN);
        assert_int_equal(wri_auth_advance(&wire->auth[CONNECTS], wire->fd[CONNECTS]), WRING_OK);
        wire_close(wire);
    }
}

static void both_sides_say_what_differs(void **state)
{
    static const struct {
        const char *connects, *listens, *connects_says, *listens_says;
    } rows[] = {
        {"the secret of one", "the secret of two", "another job secret", "another job secret"},
        {"", "the secret of two", "here as there", "there as here"},
        {"the secret of one", "", "there as here", "here as there"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wire *wire = wire_open(rows[i].connects, rows[i].listens);
        talk(wire);
        assert_ends(wire, WRING_E_MISMATCH, WRING_E_MISMATCH);
        assert_non_null(strstr(wire->message[CONNECTS], rows[i].connects_says));
        assert_non_null(strstr(wire->message[LISTENS], rows[i].listens_says));
        wire_close(wire);
    }
}

static void another_version_is_named(void **state)
{
    (void)state;
    for (int side = CONNECTS; side <= LISTENS; side++) {
        struct wire *wire = wire_open("", "");
        wire->auth[side].greeting[side][8]++;
        talk(wire);
        assert_int_equal(wire->status[!side], WRING_E_MISMATCH);
        assert_non_null(strstr(wire->message[!side], "another version"));
        wire_close(wire);
    }
}

/* ---- attacks --------------------------------------------------------------------------------- */

/* Whatever bit is changed on the way, whoever it reaches believes nothing. */
static void no_bit_may_change_on_the_way(void **state)
{
    size_t step = getenv("WRING_TEST_SMALL") ? 7 : 1;
    (void)state;
    for (size_t bit = 0; bit < 2 * SPOKEN * 8; bit += step) {
        struct wire *wire = wire_open("a secret of the job", "a secret of the job");
        wire->flip = bit;
        talk(wire);
        bool last_proof = bit / 8 >= SPOKEN + GREETING; /* the listening side has ended by then */
        if (wire->status[CONNECTS] == WRING_OK || wire->status[CONNECTS] == WRING_AGAIN ||
            wire->status[LISTENS] == WRING_AGAIN ||
            (wire->status[LISTENS] == WRING_OK) != last_proof)
            fail_msg("bit %zu: %d %d", bit, wire->status[CONNECTS], wire->status[LISTENS]);
        wire_close(wire);
    }
}

/* The connection ends after any number of bytes of either side. */
static void who_hangs_up_is_dropped(void **state)
{
    (void)state;
    for (size_t nbytes = 0; nbytes < SPOKEN; nbytes++)
        for (int side = CONNECTS; side <= LISTENS; side++) {
            struct wire *wire = wire_open("a secret of the job", "a secret of the job");
            for (int turn = 0; turn < 4 * SPOKEN; turn++) {
                advance(wire, CONNECTS);
                advance(wire, LISTENS);
                forward(wire, !side);
                if (wire->nspoken[side] < nbytes)
                    forward(wire, side);
            }
            assert_int_equal(wire->status[!side], WRING_AGAIN); /* it waits, and nobody else */
            shutdown(wire->attacker[!side], SHUT_WR);
            errno = EINVAL;
            advance(wire, !side);
            assert_int_equal(wire->status[!side], WRING_E_SYSTEM);
            wire_close(wire);
        }
}

/* Say what was overheard to a fresh SIDE that has the same secret. */
static void replay(const struct wire *heard, int side, const char *secret)
{
    struct wire fresh = {.flip = NO_FLIP};
    side_open(&fresh, side, secret);
    advance(&fresh, side);
    assert_int_equal(send(fresh.attacker[side], heard->spoken[!side], SPOKEN, MSG_NOSIGNAL),
                     SPOKEN);
    advance(&fresh, side);
    assert_int_equal(fresh.status[side], WRING_E_MISMATCH);
    side_close(&fresh, side);
}

static void what_was_overheard_is_worth_nothing(void **state)
{
    const char *secret = "a secret of the job";
    struct wire *wire = wire_open(secret, secret);
    (void)state;
    talk(wire);
    assert_ends(wire, WRING_OK, WRING_OK);
    replay(wire, CONNECTS, secret);
    replay(wire, LISTENS, secret);
    wire_close(wire);
}

/* An attacker that has no secret lets the victim answer its own challenge. */
static void nothing_can_be_sent_back(void **state)
{
    struct wire wire = {.flip = NO_FLIP};
    unsigned char byte;
    (void)state;
    side_open(&wire, CONNECTS, "a secret of the job");
    for (int turn = 0; turn < 4 * SPOKEN; turn++) {
        advance(&wire, CONNECTS);
        if (overhear(&wire, CONNECTS, &byte))
            (void)send(wire.attacker[CONNECTS], &byte, 1, MSG_NOSIGNAL);
    }
    assert_int_equal(wire.nspoken[CONNECTS], SPOKEN); /* its own proof came back */
    assert_int_equal(wire.status[CONNECTS], WRING_E_MISMATCH);
    side_close(&wire, CONNECTS);
}

/* The challenge of one connection, used to greet on another. The listening side never proves
 * itself to someone who did not, so there is nothing to take back to the first. */
static void a_listener_does_not_answer_for_others(void **state)
{
    struct wire first = {.flip = NO_FLIP}, second = {.flip = NO_FLIP};
    unsigned char greeting[GREETING], heard[SPOKEN + 1], guess[PROOF] = {0};
    (void)state;
    side_open(&first, LISTENS, "a secret of the job");
    side_open(&second, LISTENS, "a secret of the job");
    memcpy(greeting, first.auth[LISTENS].greeting[LISTENS], GREETING);
    struct wire *wires[] = {&second, &first};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(send(wires[i]->attacker[LISTENS], greeting, GREETING, 0), GREETING);
        advance(wires[i], LISTENS);
        assert_int_equal(recv(wires[i]->attacker[LISTENS], heard, sizeof heard, 0), GREETING);
        memcpy(greeting, heard, GREETING);
        assert_int_equal(send(wires[i]->attacker[LISTENS], guess, PROOF, 0), PROOF);
        advance(wires[i], LISTENS);
        assert_int_equal(wires[i]->status[LISTENS], WRING_E_MISMATCH);
        assert_int_equal(recv(wires[i]->attacker[LISTENS], heard, sizeof heard, 0), PROOF);
        assert_memory_equal(heard, guess, PROOF); /* zeros: they prove nothing */
        side_close(wires[i], LISTENS);
    }
}

/* Garbage gets no answer at all. */
static void strangers_hear_nothing(void **state)
{
    struct wire wire = {.flip = NO_FLIP};
    unsigned char garbage[GREETING], heard;
    (void)state;
    memset(garbage, 'x', sizeof garbage);
    side_open(&wire, LISTENS, "");
    assert_int_equal(send(wire.attacker[LISTENS], garbage, GREETING, 0), GREETING);
    advance(&wire, LISTENS);
    assert_int_equal(wire.status[LISTENS], WRING_E_CORRUPT);
    assert_int_equal(recv(wire.attacker[LISTENS], &heard, 1, 0), 0);
    side_close(&wire, LISTENS);
}

/* ---- the secret ------------------------------------------------------------------------------ */

static char path[] = "/tmp/wring-secret-XXXXXX";
static char logged[1024];

static void keep_log(void *arg, wring_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

static wring_status load_file(const char *text, size_t nbytes, struct wri_secret *secret_out)
{
    struct wri_config config = {0};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, nbytes, file), nbytes);
    fclose(file);
    snprintf(config.secret_file, sizeof config.secret_file, "%s", path);
    return wri_secret_load(&config, secret_out);
}

static void a_file_may_hold_the_secret(void **state)
{
    static char text[4098];
    struct wri_secret written, read;
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    memset(text, 'k', sizeof text);
    snprintf(text, sizeof text, "a secret of the job\r\n");
    written = secret_of("a secret of the job");
    assert_int_equal(load_file(text, strlen(text), &read), WRING_OK);
    assert_memory_equal(read.key, written.key, sizeof read.key);
    assert_true(read.known && !read.insecure);

    wring_log_set(keep_log, NULL);
    logged[0] = '\0';
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(load_file(text, strlen(text), &read), WRING_OK);
    assert_non_null(strstr(logged, "chmod 600"));
    assert_null(strstr(logged, "a secret"));
    logged[0] = '\0'; /* a rank reads it to join, and again for its control path */
    assert_int_equal(load_file(text, strlen(text), &read), WRING_OK);
    assert_string_equal(logged, "");
    wring_log_set(NULL, NULL);
    assert_int_equal(chmod(path, 0600), 0);

    refuse("read", 0, 1, EINTR); /* a signal comes */
    assert_int_equal(load_file(text, strlen(text), &read), WRING_OK);
    assert_true(was_refused());
    assert_memory_equal(read.key, written.key, sizeof read.key);

    memset(text, 'k', sizeof text);
    assert_int_equal(load_file(text, 4096, &read), WRING_OK);
    static const size_t refused[] = {0, 15, 4097, 4098};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(load_file(text, refused[i], &read), WRING_E_CONFIG);
        assert_non_null(strstr(wring_error_message(), "16 to 4096"));
        assert_null(strstr(wring_error_message(), "kk"));
    }
    text[15] = '\n'; /* line ends do not count */
    assert_int_equal(load_file(text, 16, &read), WRING_E_CONFIG);
    unlink(path);
}

static void what_cannot_be_read_is_named(void **state)
{
    struct wri_config config = {.secret_file = "/no/such/secret"};
    struct wri_secret secret;
    (void)state;
    assert_int_equal(wri_secret_load(&config, &secret), WRING_E_CONFIG);
    assert_non_null(strstr(wring_error_message(), "/no/such/secret: No such file"));
    strcpy(config.secret_file, "/tmp");
    assert_int_equal(wri_secret_load(&config, &secret), WRING_E_CONFIG);
    assert_non_null(strstr(wring_error_message(), "/tmp: Is a directory"));
    strcpy(config.secret, "a secret of the job");
    assert_int_equal(wri_secret_load(&config, &secret), WRING_E_CONFIG);
    assert_non_null(strstr(wring_error_message(), "both set"));
    refuse("sodium_init", 0, 1, EIO);
    assert_int_equal(wri_secret_load(&config, &secret), WRING_E_SYSTEM);
    assert_non_null(strstr(wring_error_message(), "random"));
    assert_true(was_refused());
}

/* Without a secret, what other machines reach is refused, unless the user takes the risk. */
static void only_this_machine_without_a_secret(void **state)
{
    static const struct {
        const char *host;
        bool local;
    } rows[] = {
        {"127.0.0.1", true},
        {"127.8.9.1", true},
        {"::1", true},
        {"localhost", true},
        {"::ffff:127.0.0.1", true},
        {"0.0.0.0", false},
        {"::", false},
        {"10.0.0.1", false},
        {"fe80::1", false},
        {"::ffff:10.0.0.1", false},
        {"128.0.0.1", false},
        {"no.such.host.invalid", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int mode = 0; mode < 3; mode++) {
            struct wri_secret secret = secret_of(mode == 1 ? "a secret of the job" : "");
            secret.insecure = mode == 2;
            bool permitted = rows[i].local || mode > 0;
            wring_status status = wri_secret_permits_host(&secret, rows[i].host);
            if (status != (permitted ? WRING_OK : WRING_E_CONFIG))
                fail_msg("%s, mode %d: %s", rows[i].host, mode, wring_status_name(status));
            if (!permitted)
                assert_non_null(strstr(wring_error_message(), "WRING_SECRET"));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_knows_the_secret_is_believed),
        cmocka_unit_test(both_sides_say_what_differs),
        cmocka_unit_test(another_version_is_named),
        cmocka_unit_test(no_bit_may_change_on_the_way),
        cmocka_unit_test(who_hangs_up_is_dropped),
        cmocka_unit_test(what_was_overheard_is_worth_nothing),
        cmocka_unit_test(nothing_can_be_sent_back),
        cmocka_unit_test(a_listener_does_not_answer_for_others),
        cmocka_unit_test(strangers_hear_nothing),
        cmocka_unit_test(a_file_may_hold_the_secret),
        cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(only_this_machine_without_a_secret),
    };
    return cmocka_run_group_tests_name("auth", tests, NULL, NULL);
}
