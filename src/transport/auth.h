/* SPDX-License-Identifier: Apache-2.0 */
/* Who belongs to the job: its secret, and how two processes prove to each other that they know it,
 * before anything else is read from a connection. */
#ifndef WRI_TRANSPORT_AUTH_H
#define WRI_TRANSPORT_AUTH_H

#include <wring/wring.h>
#include "base/config.h"

#define WRI_AUTH_GREETING_NBYTES 48
#define WRI_AUTH_PROOF_NBYTES 32

struct addrinfo;

/* `key` is all zeros, known to everyone, where no secret is set. */
struct wri_secret {
    bool known, insecure;
    unsigned char key[32];
};

/* WRING_SECRET, or what WRING_SECRET_FILE holds. */
wring_status wri_secret_load(const struct wri_config *config, struct wri_secret *secret_out);

/* WRING_E_CONFIG if other machines reach one of ADDRESSES, those of HOST, and neither a secret nor
 * WRING_INSECURE=1 is set. Ask before listening and before connecting. */
wring_status wri_secret_permits(const struct wri_secret *secret, const char *host,
                                const struct addrinfo *addresses);

/* The same for a host whose addresses are not at hand; that it has none is said later, by whoever
 * uses it. */
wring_status wri_secret_permits_host(const struct wri_secret *secret, const char *host);

/* One side of a conversation on one non-blocking connection. */
struct wri_auth {
    const struct wri_secret *secret;
    bool listens; /* the side that accepted */
    int turn;     /* who speaks: even the connecting side, odd the listening one */
    size_t done;  /* bytes of this turn */
    unsigned char greeting[2][WRI_AUTH_GREETING_NBYTES]; /* of the connecting, the listening side */
    unsigned char proof[WRI_AUTH_PROOF_NBYTES];
};

/* SECRET must stay until the end of the conversation. */
void wri_auth_init(struct wri_auth *auth, const struct wri_secret *secret, bool listens);

/* Go on as far as the socket goes. WRING_OK: both sides have proven themselves. WRING_AGAIN: later.
 * WRING_E_SYSTEM: the other side is gone, errno says why (0: it closed), no message.
 * WRING_E_CORRUPT: it does not talk like a rank at all. WRING_E_MISMATCH: it does, but has another
 * secret or version, and was told. */
wring_status wri_auth_advance(struct wri_auth *auth, int fd);

/* What to poll for before the next advance: true POLLOUT, false POLLIN. */
bool wri_auth_sends(const struct wri_auth *auth);

#endif
