/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how transfers of a group move, and when they end. All of them advance together, so that
 * their order in the group does not matter; those between the same two ranks in the same direction
 * are matched in the order of the calls, for which each takes a ticket. */
#include "mocknccl.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#define POLL_MS 20
#define PATIENCE_MS 200 /* with a lost rank that may not be why nothing moves */

typedef std::chrono::steady_clock timer;

/* ---- one transfer ---------------------------------------------------------------------------- */

static void put(channel &ring, uint64_t at, const void *data, size_t nbytes)
{
    size_t offset = at % RING_NBYTES, first = std::min(nbytes, RING_NBYTES - offset);
    if (nbytes == 0)
        return;
    memcpy(ring.data + offset, data, first);
    memcpy(ring.data, (const char *)data + first, nbytes - first);
}

static void get(const channel &ring, uint64_t at, void *data, size_t nbytes)
{
    size_t offset = at % RING_NBYTES, first = std::min(nbytes, RING_NBYTES - offset);
    if (nbytes == 0)
        return;
    memcpy(data, ring.data + offset, first);
    memcpy((char *)data + first, ring.data, nbytes - first);
}

static std::string describe(const message &message)
{
    static const char *const names[] = {"ncclSend or ncclRecv", "ncclAllGather", "ncclAllReduce",
                                        "ncclBroadcast"};
    const char *name = message.kind < 4 ? names[message.kind] : "nothing known";
    return std::to_string(message.nbytes) + " bytes (" + name + ")";
}

static void mismatch(ncclComm &comm, const transfer &t)
{
    int from = t.sends ? comm.rank : t.peer, to = t.sends ? t.peer : comm.rank;
    comm_fail(comm, ncclInvalidUsage, true,
              "rank " + std::to_string(from) + " sends " + describe(t.ring->sent) + " to rank " +
                  std::to_string(to) + ", which expects " + describe(t.ring->expected));
}

/* Both return whether anything changed. */
static bool send_some(ncclComm &comm, transfer &t)
{
    channel &ring = *t.ring;
    if (ring.refused) {
        mismatch(comm, t);
        return true;
    }
    if (t.begun && t.moved == t.wanted.nbytes)
        return t.finished = ring.tail >= t.end;
    uint64_t head = ring.head;
    size_t room = RING_NBYTES - (size_t)(head - ring.tail);
    if (*t.turn != t.ticket || room <= sizeof(message))
        return false;
    if (!t.begun) {
        put(ring, head, &t.wanted, sizeof(message));
        head += sizeof(message);
        room -= sizeof(message);
        t.begun = true;
    }
    size_t n = std::min(room, (size_t)(t.wanted.nbytes - t.moved));
    put(ring, head, t.data + t.moved, n);
    t.moved += n;
    ring.head = t.end = head + n;
    if (t.moved == t.wanted.nbytes)
        *t.turn = t.ticket + 1;
    return true;
}

static bool receive_some(ncclComm &comm, transfer &t)
{
    channel &ring = *t.ring;
    uint64_t tail = ring.tail;
    size_t there = (size_t)(ring.head - tail);
    if (ring.refused || *t.turn != t.ticket || there < (t.begun ? 1 : sizeof(message)))
        return false;
    if (!t.begun) {
        message sent;
        get(ring, tail, &sent, sizeof(sent));
        if (memcmp(&sent, &t.wanted, sizeof(sent)) != 0) {
            ring.sent = sent;
            ring.expected = t.wanted;
            ring.refused = true;
            mismatch(comm, t);
            return true;
        }
        tail += sizeof(message);
        there -= sizeof(message);
        t.begun = true;
    }
    size_t n = std::min(there, (size_t)(t.wanted.nbytes - t.moved));
    get(ring, tail, t.data + t.moved, n);
    t.moved += n;
    ring.tail = tail + n;
    t.finished = t.moved == t.wanted.nbytes;
    if (t.finished)
        *t.turn = t.ticket + 1;
    return true;
}

/* ---- one job --------------------------------------------------------------------------------- */

static bool advance(job &job, bool &finished)
{
    bool moved = false;
    ncclComm &comm = *job.comm;
    finished = true;
    for (transfer &t : job.transfers) {
        if (t.finished)
            continue;
        if (t.sends ? send_some(comm, t) : receive_some(comm, t)) {
            moved = true;
            seat_ring(comm.shared->seats[t.peer]);
            if (t.peer != comm.rank)
                seat_ring(comm.own()); /* another stream may wait for its turn */
        }
        finished = finished && t.finished;
    }
    return moved;
}

static bool concerns(const job &job, int rank)
{
    for (const transfer &t : job.transfers)
        if (!t.finished && t.peer == rank)
            return true;
    return false;
}

/* A rank that will not answer any more, or -1. THOROUGH: look at processes too. */
static int lost_rank(const job &job, bool thorough)
{
    int lost = -1;
    for (int rank = 0; rank < job.comm->nranks; rank++) {
        const seat &seat = job.comm->shared->seats[rank];
        bool needed = concerns(job, rank);
        bool gone = seat.state == SEAT_ABORTED || (seat.state == SEAT_LEFT && needed) ||
                    (seat.state == SEAT_TAKEN && thorough && seat_dead(seat));
        if (rank != job.comm->rank && gone && (lost < 0 || needed))
            lost = rank;
    }
    return lost;
}

/* Until an abort, or for LIMIT. */
static void wait_abort(ncclComm &comm, timer::time_point limit)
{
    for (;;) {
        uint32_t seen = comm.own().bell;
        auto now = timer::now();
        if (comm.aborted || now >= limit)
            return;
        auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - now).count();
        seat_sleep(comm.own(), seen, (int)std::min<int64_t>(left + 1, 1000));
    }
}

/* Whether all was done. */
static bool exchange(job &job)
{
    ncclComm &comm = *job.comm;
    int lost = -1;
    auto moved_at = timer::now();
    for (bool finished = false, late = false;;) {
        uint32_t seen = comm.own().bell;
        if (comm.aborted)
            return false;
        if (comm.error != ncclSuccess) {
            if (!comm.ended)
                wait_abort(comm, timer::time_point::max());
            return false;
        }
        bool moved = advance(job, finished);
        if (comm.error != ncclSuccess)
            continue;
        if (finished)
            return true;
        if (moved) {
            lost = -1;
            moved_at = timer::now();
            continue;
        }
        bool patient = timer::now() - moved_at < std::chrono::milliseconds(PATIENCE_MS);
        if (lost >= 0 && (concerns(job, lost) || !patient)) {
            comm_fail(comm, ncclRemoteError, false, "rank " + std::to_string(lost) + " is lost");
            continue;
        }
        lost = lost_rank(job, late); /* and once more, for what it did before */
        if (lost < 0 || !concerns(job, lost))
            late = !seat_sleep(comm.own(), seen, POLL_MS);
    }
}

void job_run(job &job)
{
    ncclComm &comm = *job.comm;
    {
        std::lock_guard<std::mutex> lock(comm.lock);
        comm.running++;
    }
    wait_abort(comm, timer::now() + std::chrono::microseconds(job.delay_us));
    if (job.stuck)
        wait_abort(comm, timer::time_point::max());
    if (!comm.aborted && comm.error == ncclSuccess)
        for (auto &step : job.before)
            step();
    if (exchange(job)) {
        if (job.corrupt)
            *job.corrupt ^= 0x40;
        for (auto &step : job.after)
            step();
    }
    std::lock_guard<std::mutex> lock(comm.lock);
    comm.running--;
    comm.enqueued--;
    comm.changed.notify_all();
}

/* ---- what a call moves ----------------------------------------------------------------------- */

static void add(job &job, const call &call, const void *send, void *receive, int peer)
{
    ncclComm &comm = *job.comm;
    bool sends = !receive;
    lane lane = call.kind == CALL_POINT ? LANE_POINT : LANE_COLLECTIVE;
    int from = sends ? comm.rank : peer, to = sends ? peer : comm.rank;
    transfer t = {};
    t.ring = &comm.shared->channels[lane][from][to];
    t.sends = sends;
    t.peer = peer;
    t.wanted = {call.count * type_size(call.type), (uint64_t)call.kind};
    t.data = sends ? (char *)send : (char *)receive;
    t.turn = &comm.served[sends][lane][peer];
    std::lock_guard<std::mutex> lock(comm.lock);
    t.ticket = comm.issued[sends][lane][peer]++;
    job.transfers.push_back(t);
}

static void add_copy(job &job, void *to, const void *from, size_t nbytes)
{
    if (to != from && nbytes > 0)
        job.before.push_back([=] { memmove(to, from, nbytes); });
}

static void add_allgather(job &job, const call &call, char *out)
{
    int nranks = job.comm->nranks, rank = job.comm->rank;
    size_t nbytes = call.count * type_size(call.type);
    for (int step = 1; step < nranks; step++) {
        int peer = (rank + step) % nranks;
        add(job, call, call.in, nullptr, peer);
        add(job, call, nullptr, out + (size_t)peer * nbytes, peer);
    }
}

static void add_allreduce(job &job, const call &call)
{
    size_t nbytes = call.count * type_size(call.type);
    auto scratch = std::make_shared<std::vector<char>>((size_t)job.comm->nranks * nbytes + 1);
    add_allgather(job, call, scratch->data());
    int rank = job.comm->rank, nranks = job.comm->nranks;
    job.after.push_back([=] {
        std::vector<const void *> rows;
        for (int peer = 0; peer < nranks; peer++)
            rows.push_back(peer == rank ? call.in : scratch->data() + (size_t)peer * nbytes);
        reduce(call.out, rows, call.count, call.type, call.op);
    });
}

static void add_broadcast(job &job, const call &call)
{
    if (job.comm->rank != call.peer) {
        add(job, call, nullptr, call.out, call.peer);
        return;
    }
    for (int peer = 0; peer < job.comm->nranks; peer++)
        if (peer != call.peer)
            add(job, call, call.in, nullptr, peer);
    add_copy(job, call.out, call.in, call.count * type_size(call.type));
}

void job_add(job &job, const call &call)
{
    size_t nbytes = call.count * type_size(call.type);
    switch (call.kind) {
    case CALL_POINT:
        add(job, call, call.in, call.out, call.peer);
        break;
    case CALL_ALLGATHER:
        add_allgather(job, call, (char *)call.out);
        add_copy(job, (char *)call.out + (size_t)job.comm->rank * nbytes, call.in, nbytes);
        break;
    case CALL_ALLREDUCE:
        add_allreduce(job, call);
        break;
    case CALL_BROADCAST:
        add_broadcast(job, call);
        break;
    }
}
