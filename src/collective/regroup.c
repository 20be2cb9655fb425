/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New communicators out of one that exists, whether it has failed or not: what survives of it, or
 * parts of it. The ranks gather their cards over its control path, make the new one as any other,
 * and then seal it: it counts only if all its ranks say that it works, and that all of them hear.
 * Ranks may die in between; then a shrinking group tries again with those who are left.
 */
#include "collective/comm.h"

#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/exec.h"

#define ROUNDS_WITHOUT_DEATH 2 /* failures that nobody died of, before shrinking gives up */

/* What a rank brings. */
struct bid {
    int32_t color, key;
    struct wri_card card;
};

/* A communicator to be. */
struct plan {
    wring_comm *comm;
    int nranks;
    struct bid *bid; /* of its ranks, in their order */
    int *parent;     /* their ranks in the communicator that it comes from */
};

static void plan_close(struct plan *plan)
{
    if (plan->comm != NULL)
        wri_comm_destroy(plan->comm);
    wri_free(plan->bid);
    wri_free(plan->parent);
}

/* What calls that name nothing use there, too. */
static wring_comm_options defaults_of(const wring_comm *from)
{
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    options.codec = from->codec->spec;
    options.algorithm = from->algorithm ? from->algorithm->name : "auto";
    return options;
}

/* This rank's part, before anybody knows who will be in it. */
static wring_status prepare(wring_comm *from, struct plan *plan, struct bid *own)
{
    wring_context *context = from->context;
    wring_comm_options options = defaults_of(from);
    WRI_TRY(wri_alloc((size_t)from->nranks, sizeof(*plan->bid), (void **)&plan->bid));
    WRI_TRY(wri_alloc((size_t)from->nranks, sizeof(*plan->parent), (void **)&plan->parent));
    WRI_TRY(wri_comm_open(context, from->rank, from->nranks, &options, &plan->comm));
    plan->comm->rank = -1; /* not known yet */
    WRI_TRY(wri_card_init(&own->card));
    WRI_TRY(wri_comm_open_control(plan->comm, wri_control_host(from->control), &own->card));
    return wri_comm_introduce(plan->comm, &own->card);
}

static bool before(const struct plan *plan, int at, const struct bid *bid)
{
    return plan->bid[at].key <= bid->key;
}

/* Put a rank where it belongs by its key; who comes first stays first among equals. */
static void insert(struct plan *plan, const struct bid *bid, int parent)
{
    int at = plan->nranks++;
    for (; at > 0 && !before(plan, at - 1, bid); at--) {
        plan->bid[at] = plan->bid[at - 1];
        plan->parent[at] = plan->parent[at - 1];
    }
    plan->bid[at] = *bid;
    plan->parent[at] = parent;
}

static wring_status read_bids(wring_comm *from, const struct wri_gathered *gathered, int color,
                              struct plan *plan)
{
    plan->nranks = 0;
    for (size_t i = 0; i < gathered->n; i++) {
        struct bid bid;
        if (gathered->entry[i].nbytes != sizeof(bid))
            WRI_FAIL(WRING_E_CORRUPT, "rank %d sent a malformed card", gathered->entry[i].rank);
        memcpy(&bid, gathered->entry[i].block, sizeof(bid));
        WRI_TRY(wri_card_check(&bid.card, gathered->entry[i].rank));
        if (bid.color == color)
            insert(plan, &bid, gathered->entry[i].rank);
    }
    for (int q = 0; q < plan->nranks; q++)
        if (plan->parent[q] == from->rank)
            plan->comm->rank = q;
    plan->comm->nranks = plan->nranks;
    return WRING_OK;
}

/* Rank 0 of a stream-ordered transport names its group, now that it knows that it is rank 0. */
static wring_status exchange_names(wring_comm *from, struct plan *plan)
{
    struct wri_card *own = &plan->bid[plan->comm->rank].card;
    struct wri_gathered *gathered;
    wring_status made = wri_comm_introduce(plan->comm, own);
    WRI_TRY(wri_control_gather(from->control, WRI_GATHER_NAME, own->address, own->address_nbytes,
                               &gathered));
    struct wri_card *first = &plan->bid[0].card;
    first->address_nbytes = 0;
    for (size_t i = 0; i < gathered->n; i++) {
        size_t nbytes = gathered->entry[i].nbytes;
        if (gathered->entry[i].rank != plan->parent[0] || nbytes > sizeof(first->address))
            continue;
        memcpy(first->address, gathered->entry[i].block, nbytes);
        first->address_nbytes = (uint32_t)nbytes;
    }
    wri_free(gathered);
    return made;
}

static wring_status connect_plan(wring_comm *from, struct plan *plan)
{
    struct wri_card *cards;
    uint64_t nonce = from->nonce;
    wring_comm *comm = plan->comm;
    WRI_TRY(wri_alloc((size_t)plan->nranks, sizeof(*cards), (void **)&cards));
    for (int q = 0; q < plan->nranks; q++) {
        cards[q] = plan->bid[q].card;
        nonce = wri_hash(&cards[q].nonce, sizeof(nonce), nonce);
    }
    if (plan->nranks == 1) {
        wri_control_close(comm->control, false);
        comm->control = NULL;
    } else {
        wri_control_place(comm->control, comm->rank, comm->nranks);
    }
    wring_status status = wri_comm_connect(comm, cards, nonce);
    wri_free(cards);
    return status;
}

/* Do all ranks of FROM that are left, NRANKS of them, say that it works? */
static wring_status seal(wring_comm *from, wring_status own, size_t nranks, bool *died_out)
{
    struct wri_gathered *gathered;
    uint32_t word = own;
    wring_status status = WRING_OK;
    WRI_TRY(wri_control_gather(from->control, WRI_GATHER_SEAL, &word, sizeof(word), &gathered));
    *died_out = gathered->n != nranks;
    if (*died_out)
        status = WRING_E_PEER_LOST;
    for (size_t i = 0; i < gathered->n && status == WRING_OK; i++) {
        if (gathered->entry[i].nbytes == sizeof(word))
            memcpy(&word, gathered->entry[i].block, sizeof(word));
        if (gathered->entry[i].nbytes != sizeof(word) || word != WRING_OK)
            status = WRING_E_PEER_LOST;
    }
    wri_free(gathered);
    if (status == WRING_OK || own != WRING_OK)
        return own != WRING_OK ? own : status;
    return wri_fail(status, "a rank was lost, or could not join the new communicator");
}

/* One try. With *DIED_OUT another one makes sense. */
static wring_status regroup(wring_comm *from, enum wri_gather_kind kind, int color, int key,
                            wring_comm **comm_out, bool *died_out)
{
    struct bid own = {.color = color, .key = key};
    struct wri_gathered *gathered;
    struct plan plan = {0};
    wring_status prepared = prepare(from, &plan, &own);
    if (prepared != WRING_OK)
        wri_card_refuse(&own.card, prepared);
    wring_status status = wri_control_gather(from->control, kind, &own, sizeof(own), &gathered);
    size_t nranks = 0;
    bool all = status == WRING_OK; /* go on to the seal: the others do */
    if (all) {
        nranks = gathered->n;
        status = prepared == WRING_OK ? read_bids(from, gathered, color, &plan) : prepared;
        if (status == WRING_OK && kind == WRI_GATHER_SPLIT && nranks < (size_t)from->nranks)
            status = wri_fail(WRING_E_PEER_LOST, /* on every rank: all have the same list */
                              "%zu of %d ranks are left; wring_comm_shrink makes a communicator of "
                              "these, which can be split",
                              nranks, from->nranks);
        all = status == WRING_OK;
        wri_free(gathered);
    }
    if (all && wri_context_ordered(from->context))
        status = exchange_names(from, &plan);
    if (status == WRING_OK && color >= 0)
        status = connect_plan(from, &plan);
    if (status != WRING_OK && plan.comm != NULL && plan.comm->control != NULL)
        wri_comm_poison(plan.comm, status);
    if (all)
        status = seal(from, status, nranks, died_out);
    if (status == WRING_OK) {
        *comm_out = color >= 0 ? plan.comm : NULL;
        plan.comm = color >= 0 ? NULL : plan.comm;
    }
    plan_close(&plan);
    return status;
}

static wring_status check_kind(const wring_comm *comm)
{
    if (comm->control == NULL && comm->nranks > 1)
        WRI_FAIL(WRING_E_UNSUPPORTED, "ranks inside one process share its fate: transport %s",
                 comm->context->transport->name);
    return WRING_OK;
}

/* A communicator of this rank alone. */
static wring_status copy_alone(wring_comm *from, wring_comm **comm_out)
{
    wring_comm_options options = defaults_of(from);
    wring_comm *comm;
    struct wri_card own;
    WRI_TRY(wri_comm_open(from->context, 0, 1, &options, &comm));
    wring_status status = wri_card_init(&own);
    if (status == WRING_OK)
        status = wri_comm_introduce(comm, &own);
    if (status == WRING_OK)
        status = wri_comm_connect(comm, &own, own.nonce);
    if (status != WRING_OK)
        wri_comm_destroy(comm);
    else
        *comm_out = comm;
    return status;
}

wring_status wri_comm_agree(wring_comm *comm, uint64_t value, uint64_t *least_out)
{
    struct wri_gathered *gathered;
    WRI_TRY(check_kind(comm));
    if (comm->control == NULL) {
        *least_out = value;
        return WRING_OK;
    }
    WRI_TRY(wri_control_gather(comm->control, WRI_GATHER_AGREE, &value, sizeof(value), &gathered));
    wring_status status = WRING_OK;
    for (size_t i = 0; i < gathered->n && status == WRING_OK; i++) {
        uint64_t theirs;
        if (gathered->entry[i].nbytes != sizeof(theirs)) {
            status = wri_fail(WRING_E_CORRUPT, "rank %d sent no value", gathered->entry[i].rank);
            break;
        }
        memcpy(&theirs, gathered->entry[i].block, sizeof(theirs));
        value = theirs < value ? theirs : value;
    }
    wri_free(gathered);
    if (status == WRING_OK)
        *least_out = value;
    return status;
}

wring_status wri_comm_shrink(wring_comm *comm, wring_comm **comm_out)
{
    int rounds = 0;
    WRI_TRY(check_kind(comm));
    if (comm->control == NULL)
        return copy_alone(comm, comm_out);
    for (;;) {
        bool died = false;
        wring_status status = regroup(comm, WRI_GATHER_SHRINK, 0, 0, comm_out, &died);
        rounds += !died;
        if (status == WRING_OK || rounds >= ROUNDS_WITHOUT_DEATH)
            return status;
    }
}

wring_status wri_comm_split(wring_comm *comm, int color, int key, wring_comm **comm_out)
{
    bool died;
    WRI_TRY(check_kind(comm));
    if (color < -1)
        WRI_FAIL(WRING_E_ARGUMENT, "color %d", color);
    if (comm->control != NULL)
        return regroup(comm, WRI_GATHER_SPLIT, color, key, comm_out, &died);
    *comm_out = NULL;
    return color < 0 ? WRING_OK : copy_alone(comm, comm_out);
}
