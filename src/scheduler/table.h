/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of tables that are used by row (embeddings): only the rows that were used travel. */
#ifndef WRI_SCHEDULER_TABLE_H
#define WRI_SCHEDULER_TABLE_H

#include "base/memory.h"

/* COUNT rows with the numbers of their rows in the table. */
struct wri_rows {
    int64_t *id;
    char *row;
    size_t count, capacity;
};

struct wri_table {
    char *name;
    wring_dtype dtype;
    size_t height, width;
    double unit;             /* what `pending` holds, in units of this weight; 0: nothing yet */
    struct wri_rows pending; /* of this step, as they came, in the accumulator type */
    struct wri_rows mine;    /* these by ascending id, as they travel */
    struct wri_rows all;     /* of all ranks, each in a part of its own */
    struct wri_rows reduced; /* of the last finished step */
    wring_request *request[2];
};

wring_status wri_table_open(struct wri_table *table, const char *name, wring_dtype dtype,
                            size_t height, size_t width);
void wri_table_close(struct wri_table *table);

/* WEIGHT times NROWS rows join this step's. Checked: ids in 0..height. */
wring_status wri_table_add(struct wri_table *table, const int64_t *ids, const void *rows,
                           size_t nrows, double weight);

/* Reduce this step's rows of N tables over the ranks of COMM, each rank's divided by DIVISOR (0:
 * not) first; adds to TOTAL. All ranks call. Blocks. */
wring_status wri_tables_reduce(struct wri_table *tables, size_t n, wring_comm *comm, wring_op op,
                               double divisor, wring_result *total);

/* Forget this step's rows: there is no reduced one. */
void wri_tables_drop(struct wri_table *tables, size_t n);

#endif
