/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table's rows are reduced by an allgather of ids and one of rows, and every rank adds up what it
 * got: by ascending id, in the order of ranks, in the accumulator type. So all ranks have the same
 * bits, and the same as the dense gradient would have had with codec none. Ranks have different
 * numbers of rows, so these are exchanged first, and the largest decides for all.
 */
#include "scheduler/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "collective/comm.h"
#include "collective/request.h"
#include "planner/planner.h"
#include "simd/array.h"

/* ---- rows ------------------------------------------------------------------------------------ */

static size_t row_nbytes(const struct wri_table *table, wring_dtype dtype)
{
    return table->width * wring_dtype_size(dtype);
}

static wring_dtype sum_dtype(const struct wri_table *table)
{
    return wri_dtype_accumulator(table->dtype);
}

static void rows_close(struct wri_rows *rows)
{
    wri_free(rows->id);
    wri_free(rows->row);
    *rows = (struct wri_rows){0};
}

/* Room for CAPACITY rows; what is there stays. */
static wring_status rows_reserve(struct wri_rows *rows, size_t capacity, size_t nbytes)
{
    struct wri_rows more = {.count = rows->count, .capacity = capacity};
    if (capacity <= rows->capacity)
        return WRING_OK;
    if (more.capacity < 2 * rows->capacity)
        more.capacity = 2 * rows->capacity;
    WRI_TRY(wri_alloc(more.capacity, sizeof(int64_t), (void **)&more.id));
    wring_status status = wri_alloc(more.capacity, nbytes, (void **)&more.row);
    if (status != WRING_OK) {
        wri_free(more.id);
        return status;
    }
    if (rows->count > 0) {
        memcpy(more.id, rows->id, rows->count * sizeof(int64_t));
        memcpy(more.row, rows->row, rows->count * nbytes);
    }
    rows_close(rows);
    *rows = more;
    return WRING_OK;
}

wring_status wri_table_open(struct wri_table *table, const char *name, wring_dtype dtype,
                            size_t height, size_t width)
{
    *table = (struct wri_table){.dtype = dtype, .height = height, .width = width};
    return wri_strdup(name, &table->name);
}

void wri_table_close(struct wri_table *table)
{
    rows_close(&table->pending);
    rows_close(&table->mine);
    rows_close(&table->all);
    rows_close(&table->reduced);
    wri_free(table->name);
}

void wri_tables_drop(struct wri_table *tables, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tables[i].pending.count = tables[i].reduced.count = 0;
        tables[i].unit = 0;
    }
}

/* ---- a rank's own rows ----------------------------------------------------------------------- */

static wring_status check_ids(const struct wri_table *table, const int64_t *ids, size_t nrows)
{
    for (size_t i = 0; i < nrows; i++)
        if (ids[i] < 0 || (uint64_t)ids[i] >= table->height)
            WRI_FAIL(WRING_E_ARGUMENT, "table '%s' has rows 0..%zu; id %zu is %lld", table->name,
                     table->height, i, (long long)ids[i]);
    return WRING_OK;
}

wring_status wri_table_add(struct wri_table *table, const int64_t *ids, const void *rows,
                           size_t nrows, double weight)
{
    wring_dtype dtype = sum_dtype(table);
    struct wri_rows *pending = &table->pending;
    size_t nbytes = row_nbytes(table, dtype), total;
    WRI_TRY(check_ids(table, ids, nrows));
    if (nrows == 0 || weight == 0)
        return WRING_OK;
    if (!wri_size_add(pending->count, nrows, &total))
        WRI_FAIL(WRING_E_MEMORY, "table '%s': too many rows", table->name);
    WRI_TRY(rows_reserve(pending, total, nbytes));
    /* Units as of the sums of dense gradients: accumulate.c. */
    bool plain = table->unit == 0 || table->unit == weight;
    if (!plain && table->unit != 1)
        wri_array_scale(dtype, pending->row, table->unit, pending->count * table->width);
    char *to = pending->row + pending->count * nbytes;
    wri_array_convert(dtype, to, table->dtype, rows, nrows * table->width);
    if (!plain)
        wri_array_scale(dtype, to, weight, nrows * table->width);
    table->unit = plain ? weight : 1;
    memcpy(pending->id + pending->count, ids, nrows * sizeof(int64_t));
    pending->count = total;
    return WRING_OK;
}

/* ---- sums by id ------------------------------------------------------------------------------ */

struct entry {
    int64_t id;
    size_t index; /* of the row */
};

static int by_id(const void *a_arg, const void *b_arg)
{
    const struct entry *a = a_arg, *b = b_arg;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Rows of IN, of type FROM, cut into parts of equal length of which the first present[p] are there;
 * their sums by id times SCALE (1: not) and divided by DIVISOR (0: not). */
struct summing {
    const struct wri_rows *in;
    wring_dtype from;
    const int64_t *present;
    size_t nparts, part;
    double scale, divisor;
};

/* The sum of the rows of N sorted entries, of one id, as row K of OUT; SUM is room for one. True if
 * it is not finite. */
static bool sum_entries(const struct wri_table *table, const struct summing *s,
                        const struct entry *entry, size_t n, void *sum, struct wri_rows *out)
{
    wring_dtype dtype = sum_dtype(table);
    size_t from_nbytes = row_nbytes(table, s->from);
    wri_array_convert(dtype, sum, s->from, s->in->row + entry[0].index * from_nbytes, table->width);
    for (size_t i = 1; i < n; i++)
        wri_array_reduce(WRING_SUM, dtype, sum, s->from, s->in->row + entry[i].index * from_nbytes,
                         table->width);
    if (s->scale != 1)
        wri_array_scale(dtype, sum, s->scale, table->width);
    if (s->divisor != 0)
        wri_array_divide(dtype, sum, s->divisor, table->width);
    char *to = out->row + out->count * row_nbytes(table, table->dtype);
    out->id[out->count++] = entry[0].id;
    return wri_array_convert(table->dtype, to, dtype, sum, table->width);
}

static size_t sort_entries(const struct summing *s, struct entry *entry)
{
    size_t n = 0;
    for (size_t p = 0; p < s->nparts; p++)
        for (size_t i = 0; i < (size_t)s->present[p]; i++, n++)
            entry[n] = (struct entry){s->in->id[p * s->part + i], p * s->part + i};
    qsort(entry, n, sizeof(struct entry), by_id);
    return n;
}

static wring_status sum_rows(const struct wri_table *table, const struct summing *s,
                             struct wri_rows *out, bool *nonfinite_out)
{
    struct wri_arena arena = {0};
    struct entry *entry;
    void *sum;
    size_t most = 0;
    for (size_t p = 0; p < s->nparts; p++)
        most += (size_t)s->present[p];
    out->count = 0;
    WRI_TRY(rows_reserve(out, most, row_nbytes(table, table->dtype)));
    for (int pass = 0; pass < 2; pass++) {
        entry = wri_arena_take(&arena, most, sizeof(struct entry));
        sum = wri_arena_take(&arena, 1, row_nbytes(table, sum_dtype(table)));
        if (pass == 0)
            WRI_TRY(wri_arena_open(&arena));
    }
    bool nonfinite = false;
    size_t n = sort_entries(s, entry);
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && entry[end].id == entry[begin].id; end++)
            ;
        nonfinite |= sum_entries(table, s, entry + begin, end - begin, sum, out);
    }
    wri_arena_close(&arena);
    *nonfinite_out = nonfinite;
    return WRING_OK;
}

/* ---- over ranks ------------------------------------------------------------------------------ */

static wring_status start_gather(wring_comm *comm, wring_dtype dtype, const void *send, void *recv,
                                 size_t count, wring_request **request_out)
{
    wring_segment segment = {.send = send, .recv = recv, .count = count};
    wring_call call = WRING_CALL_INIT;
    call.kind = WRING_ALLGATHER;
    call.op = WRING_SUM;
    call.dtype = dtype;
    call.segments = &segment;
    call.nsegments = 1;
    call.codec = comm->context->exact;
    return wri_planner_start(comm, &call, NULL, request_out);
}

static wring_status wait_gather(wring_request *request, wring_result *total)
{
    wring_result result;
    WRI_TRY(wri_request_wait(request, &result));
    total->wire_nbytes += result.wire_nbytes;
    total->dense_nbytes += result.dense_nbytes;
    return WRING_OK;
}

static size_t largest(const int64_t *counts, size_t n)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = counts[i] > most ? counts[i] : most;
    return (size_t)most;
}

/* Rows of this rank as they travel. */
static wring_status prepare(struct wri_table *table, double divisor)
{
    double unit = table->unit == 0 ? 1 : table->unit;
    int64_t present = (int64_t)table->pending.count;
    struct summing summing = {.in = &table->pending,
                              .from = sum_dtype(table),
                              .present = &present,
                              .nparts = 1,
                              .scale = divisor == 0 ? unit : 1,
                              .divisor = divisor / unit};
    bool nonfinite; /* the reduced rows will tell */
    WRI_TRY(sum_rows(table, &summing, &table->mine, &nonfinite));
    table->pending.count = 0;
    table->unit = 0;
    return WRING_OK;
}

static wring_status exchange(struct wri_table *table, wring_comm *comm, size_t part)
{
    size_t nbytes = row_nbytes(table, table->dtype), nall;
    if (!wri_size_mul(part, (size_t)comm->nranks, &nall))
        WRI_FAIL(WRING_E_MEMORY, "table '%s': too many rows", table->name);
    WRI_TRY(rows_reserve(&table->mine, part, nbytes));
    WRI_TRY(rows_reserve(&table->all, nall, nbytes));
    WRI_TRY(
        start_gather(comm, WRING_INT64, table->mine.id, table->all.id, part, &table->request[0]));
    return start_gather(comm, table->dtype, table->mine.row, table->all.row, part * table->width,
                        &table->request[1]);
}

/* What a rank sent: ascending ids of this table. */
static wring_status check_part(const struct wri_table *table, const int64_t *id, size_t count,
                               size_t rank)
{
    for (size_t i = 0; i < count; i++)
        if (id[i] < 0 || (uint64_t)id[i] >= table->height || (i > 0 && id[i] <= id[i - 1]))
            WRI_FAIL(WRING_E_CORRUPT, "table '%s': rank %zu sent row %lld of 0..%zu, or again",
                     table->name, rank, (long long)id[i], table->height);
    return WRING_OK;
}

/* Add up what the ranks sent; COUNTS: of this table, by rank. */
static wring_status finish(struct wri_table *table, wring_comm *comm, wring_op op, size_t part,
                           const int64_t *counts, wring_result *total)
{
    size_t nranks = (size_t)comm->nranks;
    bool nonfinite = false;
    for (size_t r = 0; r < nranks; r++)
        WRI_TRY(check_part(table, table->all.id + r * part, (size_t)counts[r], r));
    struct summing summing = {.in = &table->all,
                              .from = table->dtype,
                              .present = counts,
                              .nparts = nranks,
                              .part = part,
                              .scale = 1,
                              .divisor = op == WRING_AVG ? (double)nranks : 0};
    WRI_TRY(sum_rows(table, &summing, &table->reduced, &nonfinite));
    total->nonfinite |= nonfinite;
    return WRING_OK;
}

/* Both gathers of all tables, then their sums. COUNTS: by table, then rank. */
static wring_status exchange_all(struct wri_table *tables, size_t n, wring_comm *comm, wring_op op,
                                 const int64_t *counts, wring_result *total)
{
    size_t nranks = (size_t)comm->nranks;
    wring_status first = WRING_OK;
    for (size_t i = 0; i < n && first == WRING_OK; i++) {
        size_t part = largest(counts + i * nranks, nranks);
        if (part > 0)
            first = exchange(&tables[i], comm, part);
    }
    for (size_t i = 0; i < 2 * n; i++) {
        wring_request **request = &tables[i / 2].request[i % 2];
        wring_status status = *request ? wait_gather(*request, total) : WRING_OK;
        *request = NULL;
        first = first == WRING_OK ? status : first;
    }
    for (size_t i = 0; i < n && first == WRING_OK; i++)
        first = finish(&tables[i], comm, op, largest(counts + i * nranks, nranks),
                       counts + i * nranks, total);
    return first;
}

/* How many rows each rank has of each table: n of mine, then n of each rank's, to be turned
 * round. */
static wring_status gather_counts(struct wri_table *tables, size_t n, wring_comm *comm,
                                  int64_t *mine, int64_t *theirs, int64_t *counts,
                                  wring_result *total)
{
    wring_request *request;
    size_t nranks = (size_t)comm->nranks;
    for (size_t i = 0; i < n; i++)
        mine[i] = (int64_t)tables[i].mine.count;
    WRI_TRY(start_gather(comm, WRING_INT64, mine, theirs, n, &request));
    WRI_TRY(wait_gather(request, total));
    for (size_t r = 0; r < nranks; r++)
        for (size_t i = 0; i < n; i++) {
            int64_t count = theirs[r * n + i];
            if (count < 0 || (uint64_t)count > tables[i].height)
                WRI_FAIL(WRING_E_CORRUPT, "table '%s': rank %zu says %lld rows of %zu",
                         tables[i].name, r, (long long)count, tables[i].height);
            counts[i * nranks + r] = count;
        }
    return WRING_OK;
}

wring_status wri_tables_reduce(struct wri_table *tables, size_t n, wring_comm *comm, wring_op op,
                               double divisor, wring_result *total)
{
    struct wri_arena arena = {0};
    int64_t *mine, *theirs, *counts;
    size_t nranks = (size_t)comm->nranks;
    for (int pass = 0; pass < 2; pass++) {
        mine = wri_arena_take(&arena, n, sizeof(int64_t));
        theirs = wri_arena_take(&arena, n * nranks, sizeof(int64_t));
        counts = wri_arena_take(&arena, n * nranks, sizeof(int64_t));
        if (pass == 0)
            WRI_TRY(wri_arena_open(&arena));
    }
    wring_status status = WRING_OK;
    for (size_t i = 0; i < n && status == WRING_OK; i++)
        status = prepare(&tables[i], divisor);
    if (status == WRING_OK)
        status = gather_counts(tables, n, comm, mine, theirs, counts, total);
    if (status == WRING_OK)
        status = exchange_all(tables, n, comm, op, counts, total);
    wri_arena_close(&arena);
    return status;
}
