/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of the control path, and the messages on it: a head of fixed size, then as many
 * bytes as it says, which are bounded. Before the first, both sides prove that they know the job's
 * secret. What comes in is hostile until its control has checked it. */
#ifndef WRI_COLLECTIVE_LINK_H
#define WRI_COLLECTIVE_LINK_H

#include <wring/plugin.h>

#include "transport/auth.h"

#define WRI_LINK_BLOCK_MAX (WRING_ADDRESS_MAX + 64) /* bytes after a head */

enum wri_message_type {
    WRI_MESSAGE_HELLO = 1, /* first on a connection. rank: sender; value: 1 to lead, it asks whether
                              the other is there; number: gathers done; bytes: ranks it gave up */
    WRI_MESSAGE_WELCOME,   /* the answer of a root */
    WRI_MESSAGE_REFUSED,   /* value: 1 the other ranks have given you up, 0 this is not the root */
    WRI_MESSAGE_BEAT,      /* I am there */
    WRI_MESSAGE_FAILED,    /* rank: where; value: status; bytes: in words */
    WRI_MESSAGE_LOST,      /* rank: which; bytes: why, in words */
    WRI_MESSAGE_GOODBYE,   /* rank: who needs nothing any more */
    WRI_MESSAGE_FAREWELL,  /* all have said goodbye */
    WRI_MESSAGE_BLOCK,     /* to the root. number: of the gather; bytes: what rank has for it */
    WRI_MESSAGE_ENTRY,     /* from the root: one rank's block */
    WRI_MESSAGE_GATHERED,  /* value: so many entries came before; number: of the gather */
    WRI_MESSAGE_WANT,      /* root to a rank that has the result of a gather: send it */
    WRI_MESSAGE_NOTES,     /* bytes: struct wri_note[]: calls that rank has started */
    WRI_MESSAGE_MAKE,      /* bytes: the frame of a call of a new make; comes before its note */
    WRI_MESSAGE_ASK,       /* number: of a call that some rank waits in: note yours */
    WRI_MESSAGE_TYPES
};

struct wri_message {
    uint32_t magic;
    uint16_t type, nbytes;
    uint32_t rank, value;
    uint64_t number;
};
_Static_assert(sizeof(struct wri_message) == 24, "no padding");

enum wri_link_role {
    WRI_LINK_LISTENER,
    WRI_LINK_WAKE,
    WRI_LINK_STRANGER, /* came in, has said no hello yet */
    WRI_LINK_UP,       /* to the root */
    WRI_LINK_DOWN,     /* a root's, to a rank */
    WRI_LINK_PROBE     /* a root's, to a rank that does not come */
};

struct wri_control;

struct wri_link {
    enum wri_link_role role;
    struct wri_control *control;
    int rank;        /* the other side's; -1 unknown */
    int fd, poll_fd; /* fd -1: closed. poll_fd: the epoll that watches it */
    int64_t opened_ns, heard_ns;
    struct wri_auth auth;
    bool known; /* the other side belongs to the job */
    struct wri_message head;
    unsigned char block[WRI_LINK_BLOCK_MAX];
    int error;             /* errno of a send that failed: a socket tells it only once */
    bool head_done, waits; /* waits: for room to send */
    size_t done;           /* bytes of what is coming in */
    unsigned char *queue;  /* to be sent: [sent, queued) */
    size_t sent, queued, capacity;
};

/* Take over FD, watched by POLL_FD from now on with LINK as its data. SECRET, of connections only,
 * must outlive it. */
wring_status wri_link_open(struct wri_link *link, enum wri_link_role role,
                           struct wri_control *control, int rank, int fd, int poll_fd,
                           const struct wri_secret *secret);
void wri_link_close(struct wri_link *link); /* closed links too */

/* Send as much as goes now and keep the rest. If the connection is gone, receiving will tell. */
void wri_link_send(struct wri_link *link, struct wri_message head, const void *block);
wring_status wri_link_flush(struct wri_link *link);

/* WRING_OK: a message is in head and block, until the next call. WRING_AGAIN: not yet.
 * WRING_E_SYSTEM: gone, errno says why (0: closed). WRING_E_CORRUPT: what came is no message.
 * WRING_E_MISMATCH: it does not belong to the job. */
wring_status wri_link_receive(struct wri_link *link);

#endif
