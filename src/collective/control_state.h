/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the control path share: the star of one communicator, and the monitor that
 * serves the stars of a context. Everything here is guarded by the monitor's lock. */
#ifndef WRI_COLLECTIVE_CONTROL_STATE_H
#define WRI_COLLECTIVE_CONTROL_STATE_H

#include <pthread.h>

#include "collective/control.h"
#include "collective/link.h"

#define WRI_STRANGERS_MAX 64 /* connections without a hello; the oldest makes room */

enum wri_member_state { WRI_MEMBER_ALIVE, WRI_MEMBER_GONE, WRI_MEMBER_LOST };

/* A rank of the communicator, as this one sees it. GONE: it said goodbye. */
struct wri_member {
    char host[WRI_CARD_HOST_MAX], name[WRI_CARD_NAME_MAX];
    int port;
    enum wri_member_state state;

    /* While this rank is the root. */
    struct wri_link *link;      /* NULL: not connected yet */
    struct wri_link *probe;     /* asks whether it is there */
    int64_t since_ns, probe_ns; /* waited for since; next probe */
    uint64_t gathers;           /* that it has the result of */
    unsigned char *block;       /* its part of gather `number`; NULL: none */
    size_t nbytes;
    uint64_t number;
};

enum wri_control_state {
    WRI_CONTROL_IDLE,      /* not started */
    WRI_CONTROL_SEEKING,   /* connects to `root`, which may not be one yet */
    WRI_CONTROL_FOLLOWING, /* connected to `root` */
    WRI_CONTROL_LEADING,   /* is the root */
    WRI_CONTROL_CUT_OFF    /* the others go on without this rank */
};

#define WRI_NOTES_MAX 128   /* in one message */
#define WRI_NOTES_KEPT 64   /* own calls that may still be asked for */
#define WRI_NOTES_OPEN 4096 /* calls by which ranks may be apart, for a root to compare them */
#define WRI_MAKES_MAX 1024

/* A call that some rank has started: its number, and a digest of all that ranks must agree on. */
struct wri_note {
    uint64_t operation, digest;
};
_Static_assert(WRI_NOTES_MAX * sizeof(struct wri_note) <= WRI_LINK_BLOCK_MAX, "fits a message");

struct wri_control {
    struct wri_control *next; /* in the monitor's list */
    struct wri_monitor *monitor;
    struct wri_alarm *alarm;
    int rank, nranks, root;
    uint64_t nonce;
    char host[WRI_CARD_HOST_MAX];
    int port;
    enum wri_control_state state;
    struct wri_member *member; /* nranks */
    int local_port, local_fd;  /* listens on loopback until it is known who is where; -1 */
    struct wri_link listener, *up;
    int64_t since_ns, retry_ns; /* seeks `root` since; next try */
    int64_t beat_ns;            /* next beat */
    bool formed;                /* the star was whole once */
    bool leaving, farewell;     /* this rank said goodbye; all have */
    bool failed_here;           /* the alarm was raised by this rank: the others must know */
    char cut_off[256];          /* why */

    /* notes */
    struct wri_frame kept[WRI_NOTES_KEPT]; /* own calls, by number */
    struct wri_note note[WRI_NOTES_MAX];   /* to be sent at notes_ns */
    size_t nnotes;
    int64_t notes_ns;
    uint64_t wanted;               /* notes of calls up to that, not included, were asked for */
    uint64_t *told;                /* WRI_MAKES_MAX digests whose frames the root was told */
    struct wri_compared *compared; /* of a root: WRI_NOTES_OPEN, by number; NULL: no note yet */
    struct wri_make *make;         /* of a root: WRI_MAKES_MAX, by digest */

    /* gather */
    uint64_t gathers;   /* done: numbers the next one */
    bool pending;       /* this rank waits for one */
    int asked;          /* of a root: rank that was asked for the result; -1: none */
    unsigned char *own; /* this rank's block */
    size_t own_nbytes;
    unsigned char *result, *coming; /* entries: of the last gather; of the one that comes in */
    size_t result_nbytes, result_n, coming_nbytes, coming_n, coming_capacity;
};

struct wri_monitor {
    wring_context *context;
    struct wri_secret secret;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for whom waits in a call */
    pthread_t thread;
    bool threaded, stop;
    int poll_fd;
    struct wri_link wake;
    struct wri_control *controls;
    struct wri_link *stranger[WRI_STRANGERS_MAX];
    uint64_t closings;           /* links closed so far: events seen before are not looked at */
    int64_t beat_ns, silence_ns; /* settings */
    int64_t tick_ns, ticked_ns;  /* next and last look at the time */
};

/* Have the monitor look at everything now. */
void wri_monitor_wake(struct wri_monitor *monitor);

/* Wait until something has changed for whom waits in a call; false at END_NS. */
bool wri_monitor_wait(struct wri_monitor *monitor, int64_t end_ns);

/* Close and free a link; NULL is none. */
void wri_monitor_drop(struct wri_monitor *monitor, struct wri_link **link);

/* A stranger said hello: true if its link was taken over. */
bool wri_control_hello(struct wri_control *control, struct wri_link *link);

/* Something came in on a link, or it closed. */
void wri_control_heard(struct wri_control *control, struct wri_link *link);

/* Time has passed; true if there is something to look at again soon. */
bool wri_control_tick(struct wri_control *control, int64_t now_ns);

/* This process did not run for a while: silence so far does not count. */
void wri_control_forgive(struct wri_control *control, int64_t now_ns);

/* To a link or to all that this rank leads, but rank EXCEPT. */
void wri_control_tell(struct wri_link *link, enum wri_message_type type, int rank, uint32_t value,
                      uint64_t number, const void *block, size_t nbytes);
void wri_control_tell_all(struct wri_control *control, int except, enum wri_message_type type,
                          int rank, uint32_t value, const char *text);

/* A rank did not keep to the protocol, or died. */
void wri_control_lose(struct wri_control *control, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Look for a root to follow; become one if this rank is the lowest. */
void wri_control_seek(struct wri_control *control);
/* All others have left or are lost; and a leaving rank that is alone may go. */
bool wri_control_is_alone(const struct wri_control *control);
void wri_control_check_farewell(struct wri_control *control);

/* The others go on without this rank. */
void wri_control_cut_off(struct wri_control *control, const char *why);

/* Notes: send what is due; a message about them came (false: it makes no sense). */
bool wri_notes_tick(struct wri_control *control, int64_t now_ns);
bool wri_notes_heard(struct wri_control *control, struct wri_link *link);
void wri_notes_close(struct wri_control *control);

/* This rank has found out that the communicator has failed. */
void wri_control_fail(struct wri_control *control, wring_status status, const char *message);

/* Gather: the star has changed; this rank has a root; a message of it came (false: it makes no
 * sense). */
void wri_gather_progress(struct wri_control *control);
void wri_gather_resume(struct wri_control *control);
bool wri_gather_heard(struct wri_control *control, struct wri_link *link);
void wri_gather_close(struct wri_control *control);

#endif
