/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a new communicator find each other: a callback of the caller's, a unique id, or
 * the environment. Each ends in one exchange of cards. */
#ifndef WRI_COLLECTIVE_JOIN_H
#define WRI_COLLECTIVE_JOIN_H

#include "collective/context.h"

#define WRI_CARD_HOST_MAX 48
#define WRI_CARD_NAME_MAX 64
#define WRI_CARD_HEAD (32 + WRI_CARD_HOST_MAX + WRI_CARD_NAME_MAX)

/* What a rank tells the others. */
struct wri_card {
    uint64_t nonce;                       /* drawn by each; rank 0's becomes the communicator's */
    uint64_t host;                        /* equal for ranks that reach each other on loopback */
    char name[WRI_CARD_NAME_MAX];         /* "host:pid", for messages */
    char control_host[WRI_CARD_HOST_MAX]; /* numeric: where its control path listens, */
    uint32_t control_port;                /* and if all ranks are on one host, */
    uint32_t control_local_port;          /* on loopback */
    uint32_t status; /* WRING_OK, or why this rank cannot join: then its message, not terminated, */
    uint32_t address_nbytes; /* is in place of the transport's address */
    unsigned char address[WRING_ADDRESS_MAX - WRI_CARD_HEAD];
};
_Static_assert(sizeof(struct wri_card) == WRING_ADDRESS_MAX, "a rendezvous blob holds a card");

/* Which way, and who this process is. */
struct wri_way {
    int rank, nranks;
    wring_allgather_fn allgather; /* NULL: by rendezvous */
    void *allgather_arg;
    char host[WRI_CONFIG_TEXT_MAX];
    int port, listen_fd; /* listen_fd -1: none */
    uint64_t job;
};

wring_status wri_way_find(wring_context *context, const wring_comm_options *options,
                          struct wri_way *way_out);

/* At which address other hosts reach this rank: the interface that the user names, or the one
 * towards the root, if the ranks find each other by one. HOST: WRI_CARD_HOST_MAX bytes. */
wring_status wri_way_host(wring_context *context, const struct wri_way *way, char *host);

/* A fresh nonce, and this host and process; addresses are left alone. */
wring_status wri_card_init(struct wri_card *card);

/* Make it say that this rank cannot join because of STATUS and the thread's message. */
void wri_card_refuse(struct wri_card *card, wring_status status);

/* Whether the card of RANK, from the network, makes sense; or what it says that rank failed of. */
wring_status wri_card_check(const struct wri_card *card, int rank);

/* Exchange: cards_out[0..nranks) and the nonce that all share. Blocks up to WRING_JOIN_TIMEOUT.
 * If a card says that its rank cannot join, that is the error on all. */
wring_status wri_join(wring_context *context, const struct wri_way *way, const struct wri_card *own,
                      struct wri_card *cards_out, uint64_t *nonce_out);

wring_status wri_unique_id_create(wring_context *context, wring_unique_id *id_out);

#endif
