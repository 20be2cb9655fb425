/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks find each other before any transport is connected: one allgather of small blobs over
 * TCP through rank 0, as a state machine that never blocks; and who this process is, from the
 * launcher. */
#ifndef WRI_TRANSPORT_RENDEZVOUS_H
#define WRI_TRANSPORT_RENDEZVOUS_H

#include <wring/wring.h>
#include "base/config.h"
#include "transport/auth.h"

/* What the launcher says. `job` seeds the identity check and the derived port. */
struct wri_launch {
    int rank, nranks, local_rank, local_nranks; /* local ones -1 and 0 if unknown */
    char host[WRI_CONFIG_TEXT_MAX];             /* where rank 0 listens; "" for one rank */
    int port;
    int listen_fd; /* rank 0: socket that listens there already, for open to take over; or -1 */
    uint64_t job;  /* hash of the job's identity */
    const char *launcher; /* "wring", "torchrun", "Open MPI" */
};

/* Ask the settings and the launchers in the order of their table. WRING_E_CONFIG if they
 * contradict each other or none is there; the message says what to set. WRING_LISTEN_FD is taken
 * out of the environment, so that only the first detection hands it out. */
wring_status wri_launch_detect(const struct wri_config *config, struct wri_launch *launch_out);

/* What WRING_ROOT=TEXT says, "host", "host:port" or "[v6]:port", into LAUNCH; the port stays as it
 * is where the text has none. */
wring_status wri_launch_root(const char *text, struct wri_launch *launch);

/* True if a launcher or the settings say that all ranks meet on this machine's loopback. */
bool wri_launch_is_local(const struct wri_config *config);

/* The INDEX-th launcher, the settings first, and what it says, or why that is unclear; false past
 * the end. */
bool wri_launch_info(size_t index, wring_info *info_out);

struct wri_rendezvous;

struct wri_rendezvous_options {
    const char *host; /* where rank 0 listens */
    int port;
    int listen_fd; /* rank 0: a socket that listens there already, taken over in any case; or -1 */
    uint64_t job;
    int rank, nranks;
    struct wri_secret secret;
    int timeout_ms;
};

/* Begin: rank 0 listens, others connect, retrying until the deadline. BLOB is this rank's
 * contribution. */
wring_status wri_rendezvous_open(const struct wri_rendezvous_options *options, const void *blob,
                                 size_t nbytes, struct wri_rendezvous **rendezvous_out);

/* WRING_AGAIN until all blobs are here. WRING_E_TIMEOUT names the missing ranks. Sleeps at most
 * WAIT_MS for a socket. Strangers and garbage are dropped without harm; a rank whose secret, size
 * or number does not fit is refused, and told so at once. */
wring_status wri_rendezvous_poll(struct wri_rendezvous *rendezvous, int wait_ms);

/* After WRING_OK: rank's blob, valid until close. And a nonce that rank 0 drew, equal on all
 * ranks. */
const void *wri_rendezvous_blob(const struct wri_rendezvous *rendezvous, int rank, size_t *nbytes);
uint64_t wri_rendezvous_nonce(const struct wri_rendezvous *rendezvous);

void wri_rendezvous_close(struct wri_rendezvous *rendezvous);

#endif
