/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3, 64 bit: checksums of frames, digests of specs and names. */
#ifndef WRI_BASE_HASH_H
#define WRI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t wri_hash(const void *data, size_t nbytes, uint64_t seed);

#endif
