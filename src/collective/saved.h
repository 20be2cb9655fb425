/* SPDX-License-Identifier: Apache-2.0 */
/* State of tensors as bytes, and what becomes of it elsewhere: saved.c knows the bytes, handover.c
 * where they go. The functions of the API have the contracts of their twins there; all others want
 * the lock. */
#ifndef WRI_COLLECTIVE_SAVED_H
#define WRI_COLLECTIVE_SAVED_H

#include "collective/state.h"

wring_status wri_state_save(wring_comm *comm, void **bytes_out, size_t *nbytes_out);
wring_status wri_state_load(wring_comm *comm, const void *const *states, const size_t *nbytes,
                            size_t nstates, wring_state_report *report_out);
wring_status wri_tensor_set_codec(wring_tensor *tensor, const wring_codec *codec,
                                  wring_state_report *report_out);

/* Values of a residual, to and from host memory; waits for the device. */
wring_status wri_residual_get(const wring_tensor *tensor, const struct wri_residual *residual,
                              void *dst);
wring_status wri_residual_put(const wring_tensor *tensor, struct wri_residual *residual,
                              const void *src);

/* WRING_E_STATE while a call, or an open step, may change the tensor's state. */
wring_status wri_state_check_idle(const wring_tensor *tensor);

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Who saved them. */
struct wri_saved {
    uint32_t rank, nranks, ntensors;
};

/* What is left to read. */
struct wri_reader {
    const unsigned char *at;
    size_t left;
};

enum wri_saved_flags { WRI_SAVED_LOCAL = 1, WRI_SAVED_MEAN = 2 };

struct wri_saved_head {
    uint64_t count, step;
    uint32_t dtype, flags, nowned, name_nbytes, spec_nbytes;
};

/* A tensor in the bytes, where its floats lie unaligned. */
struct wri_record {
    struct wri_saved_head head;
    const char *name, *spec; /* not terminated */
    const unsigned char *local;
    struct wri_reader owned;
};

struct wri_owned_head {
    uint64_t begin, end;
    float weight;
    uint32_t zero;
};

/* Whether a state is whole; hostile bytes. READER_OUT: its tensors, which then can be read. */
wring_status wri_saved_check(const void *bytes, size_t nbytes, struct wri_saved *saved_out,
                             struct wri_reader *reader_out);
bool wri_saved_next(struct wri_reader *reader, struct wri_record *record);
bool wri_saved_next_owned(struct wri_reader *reader, struct wri_owned_head *head,
                          const unsigned char **values_out);

/* One tensor as bytes, to be freed with wri_free, and as what they say. */
wring_status wri_saved_tensor(const wring_tensor *tensor, void **bytes_out,
                              struct wri_record *record_out);

#endif
