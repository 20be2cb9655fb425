/* SPDX-License-Identifier: Apache-2.0 */
/* Which hash: XXH3, because it runs at memory speed and is the same on every machine. Compiled in
 * from xxHash's header, so that the library depends on nothing at run time. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t wri_hash(const void *data, size_t nbytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, nbytes, seed);
}
