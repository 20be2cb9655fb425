/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who belongs to the job. It decides what counts as a proof of that, and where one may do without.
 *
 * Four turns, the connecting side first:
 *
 *      greeting   8 magic, 4 version, 4 whether a secret is set, 32 nonce
 *      greeting   the same of the listening side
 *      proof      HMAC-SHA-512-256 by the secret of: role of the one who proves, both greetings
 *      proof      of the listening side
 *
 * Fresh nonces of both sides are in every proof, so none can be used again; the role is, so none
 * can be sent back; both greetings are, so nothing of them was changed on the way. The listening
 * side says nothing before it was greeted well, and proves nothing to those who did not. A wrong
 * proof is answered with zeros, which prove nothing either, so that honest ranks learn at once that
 * their secrets differ. All numbers are little-endian.
 *
 * Without a secret the key is known to everyone and the proofs prove nothing; that is allowed
 * between processes of one machine only, unless the user takes the risk.
 */
#include "transport/auth.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "transport/socket.h"

#define MAGIC 0x68747561474E5257u /* "WRNGauth" */
#define VERSION 1
#define TURNS 4
#define SECRET_MIN 16 /* as config.def has it */
#define SECRET_FILE_MAX 4096

struct greeting {
    uint64_t magic;
    uint32_t version, known;
    unsigned char nonce[32];
};
_Static_assert(sizeof(struct greeting) == WRI_AUTH_GREETING_NBYTES, "no padding");
_Static_assert(sizeof((struct wri_secret *)0)->key == crypto_auth_hmacsha512256_KEYBYTES &&
                   WRI_AUTH_PROOF_NBYTES == crypto_auth_hmacsha512256_BYTES,
               "sizes of the HMAC");

/* ---- the secret ------------------------------------------------------------------------------ */

static void derive_key(struct wri_secret *secret, const void *text, size_t nbytes)
{
    crypto_generichash(secret->key, sizeof secret->key, text, nbytes, NULL, 0);
    secret->known = true;
}

static ssize_t read_all(int fd, char *text, size_t capacity)
{
    size_t length = 0;
    while (length < capacity) {
        ssize_t got = read(fd, text + length, capacity - length);
        if (got < 0 && errno != EINTR)
            return -1;
        if (got == 0)
            break;
        length += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)length;
}

/* Once per file: a process reads it for every group that it joins and every control path. */
static void warn_of_readers(const char *path)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char warned[WRI_CONFIG_TEXT_MAX];
    pthread_mutex_lock(&lock);
    bool again = strcmp(warned, path) == 0;
    snprintf(warned, sizeof warned, "%s", path);
    pthread_mutex_unlock(&lock);
    if (!again)
        wri_log(WRING_LOG_WARN, "WRING_SECRET_FILE=%s: every user can read it; chmod 600", path);
}

/* The whole file, without the line end that editors leave. */
static wring_status read_secret_file(const char *path, struct wri_secret *secret)
{
    char text[SECRET_FILE_MAX + 1];
    struct stat status = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        WRI_FAIL(WRING_E_CONFIG, "WRING_SECRET_FILE=%s: %s", path, strerror(errno));
    (void)fstat(fd, &status);
    if (status.st_mode & (S_IROTH | S_IWOTH))
        warn_of_readers(path);
    ssize_t length = read_all(fd, text, sizeof text);
    int error = errno;
    close(fd);
    if (length < 0)
        WRI_FAIL(WRING_E_CONFIG, "WRING_SECRET_FILE=%s: %s", path, strerror(error));
    bool fits = length <= SECRET_FILE_MAX;
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r'))
        length--;
    if (fits && length >= SECRET_MIN)
        derive_key(secret, text, (size_t)length);
    sodium_memzero(text, sizeof text);
    if (!secret->known)
        WRI_FAIL(WRING_E_CONFIG, "WRING_SECRET_FILE=%s: expected from %d to %d bytes", path,
                 SECRET_MIN, SECRET_FILE_MAX);
    return WRING_OK;
}

wring_status wri_secret_load(const struct wri_config *config, struct wri_secret *secret_out)
{
    struct wri_secret secret = {.insecure = config->insecure == 1};
    if (sodium_init() < 0)
        WRI_FAIL(WRING_E_SYSTEM, "no random numbers from the system");
    if (config->secret[0] && config->secret_file[0])
        WRI_FAIL(WRING_E_CONFIG, "WRING_SECRET and WRING_SECRET_FILE are both set: unset one");
    if (config->secret[0])
        derive_key(&secret, config->secret, strlen(config->secret));
    if (config->secret_file[0])
        WRI_TRY(read_secret_file(config->secret_file, &secret));
    *secret_out = secret;
    return WRING_OK;
}

wring_status wri_secret_permits(const struct wri_secret *secret, const char *host,
                                const struct addrinfo *addresses)
{
    for (; addresses && !secret->known && !secret->insecure; addresses = addresses->ai_next)
        if (!wri_socket_address_is_loopback(addresses->ai_addr))
            WRI_FAIL(WRING_E_CONFIG,
                     "other machines reach %s, and the job has no secret: set the same "
                     "WRING_SECRET or WRING_SECRET_FILE for all ranks, or WRING_INSECURE=1 if "
                     "everyone on that network may join",
                     host);
    return WRING_OK;
}

wring_status wri_secret_permits_host(const struct wri_secret *secret, const char *host)
{
    struct addrinfo *addresses;
    if (wri_socket_resolve(host, 0, &addresses) != WRING_OK)
        return WRING_OK;
    wring_status status = wri_secret_permits(secret, host, addresses);
    freeaddrinfo(addresses);
    return status;
}

/* ---- the conversation ------------------------------------------------------------------------ */

void wri_auth_init(struct wri_auth *auth, const struct wri_secret *secret, bool listens)
{
    struct greeting own = {htole64(MAGIC), htole32(VERSION), htole32(secret->known), {0}};
    randombytes_buf(own.nonce, sizeof own.nonce);
    *auth = (struct wri_auth){.secret = secret, .listens = listens};
    memcpy(auth->greeting[listens], &own, sizeof own);
}

bool wri_auth_sends(const struct wri_auth *auth)
{
    return auth->turn % 2 == auth->listens;
}

static void make_proof(const struct wri_auth *auth, int role, unsigned char *proof_out)
{
    unsigned char text[1 + sizeof auth->greeting];
    text[0] = (unsigned char)role;
    memcpy(text + 1, auth->greeting, sizeof auth->greeting);
    crypto_auth_hmacsha512256(proof_out, text, sizeof text, auth->secret->key);
}

/* A first look at the other side's greeting. */
static wring_status check_magic(const struct wri_auth *auth, int fd)
{
    char name[WRI_SOCKET_NAME_MAX];
    struct greeting other;
    memcpy(&other, auth->greeting[!auth->listens], sizeof other);
    if (le64toh(other.magic) != MAGIC)
        WRI_FAIL(WRING_E_CORRUPT, "the process at %s is no rank of wring",
                 wri_socket_peer(fd, name));
    return WRING_OK;
}

/* Both have greeted: can they understand each other? */
static wring_status check_greetings(const struct wri_auth *auth, int fd)
{
    char name[WRI_SOCKET_NAME_MAX];
    struct greeting other;
    memcpy(&other, auth->greeting[!auth->listens], sizeof other);
    if (le32toh(other.version) != VERSION)
        WRI_FAIL(WRING_E_MISMATCH, "the process at %s runs another version of wring",
                 wri_socket_peer(fd, name));
    if (le32toh(other.known) == auth->secret->known)
        return WRING_OK;
    if (auth->secret->known)
        WRI_FAIL(WRING_E_MISMATCH,
                 "this process has a job secret, the one at %s has none: set WRING_SECRET or "
                 "WRING_SECRET_FILE there as here",
                 wri_socket_peer(fd, name));
    WRI_FAIL(WRING_E_MISMATCH,
             "the process at %s has a job secret, this one has none: set WRING_SECRET or "
             "WRING_SECRET_FILE here as there",
             wri_socket_peer(fd, name));
}

static wring_status check_proof(struct wri_auth *auth, int fd)
{
    char name[WRI_SOCKET_NAME_MAX];
    unsigned char expected[WRI_AUTH_PROOF_NBYTES];
    make_proof(auth, auth->turn % 2, expected);
    if (sodium_memcmp(expected, auth->proof, sizeof expected) == 0)
        return WRING_OK;
    memset(auth->proof, 0, sizeof auth->proof);
    if (auth->listens)
        (void)wri_socket_send(fd, auth->proof, sizeof auth->proof, &auth->done);
    WRI_FAIL(WRING_E_MISMATCH,
             "the process at %s has another job secret: WRING_SECRET or WRING_SECRET_FILE must "
             "be the same for all ranks",
             wri_socket_peer(fd, name));
}

static wring_status greet(struct wri_auth *auth, int fd)
{
    unsigned char *greeting = auth->greeting[auth->turn % 2];
    if (wri_auth_sends(auth)) {
        WRI_TRY(wri_socket_send(fd, greeting, WRI_AUTH_GREETING_NBYTES, &auth->done));
    } else {
        WRI_TRY(wri_socket_recv(fd, greeting, WRI_AUTH_GREETING_NBYTES, &auth->done));
        WRI_TRY(check_magic(auth, fd));
    }
    return auth->turn == 1 ? check_greetings(auth, fd) : WRING_OK;
}

static wring_status prove(struct wri_auth *auth, int fd)
{
    if (!wri_auth_sends(auth)) {
        WRI_TRY(wri_socket_recv(fd, auth->proof, sizeof auth->proof, &auth->done));
        return check_proof(auth, fd);
    }
    make_proof(auth, auth->turn % 2, auth->proof);
    return wri_socket_send(fd, auth->proof, sizeof auth->proof, &auth->done);
}

wring_status wri_auth_advance(struct wri_auth *auth, int fd)
{
    for (; auth->turn < TURNS; auth->turn++)
        WRI_TRY(auth->turn < 2 ? greet(auth, fd) : prove(auth, fd));
    return WRING_OK;
}
