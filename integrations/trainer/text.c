/* SPDX-License-Identifier: Apache-2.0 */
/* Text, byte by byte: windows that follow each other without a gap. */
#include "data.h"

#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "bible -f Gen1:1-Rev22:21 2>/dev/null"
#define NBYTES_MAX ((size_t)1 << 31) /* a larger file is surely not meant */
#define TEST_SHARE 10                /* a tenth is kept for tests, */
#define TEST_WINDOWS 1024            /* of which so many windows are used, evenly spread */

/* All of FILE, which is NAMEd so in messages, in memory of malloc(). */
static uint8_t *read_all(FILE *file, const char *name, size_t *nbytes_out)
{
    size_t room = 1 << 16, used = 0, got;
    uint8_t *bytes = NULL;
    do {
        room *= 2;
        bytes = room <= NBYTES_MAX ? realloc(bytes, room) : NULL;
        if (!bytes)
            die("%s: does not fit into memory, or is larger than %zu bytes", name, NBYTES_MAX);
        got = fread(bytes + used, 1, room - used, file);
        used += got;
    } while (used == room);
    if (ferror(file))
        die("%s: %s", name, strerror(errno));
    *nbytes_out = used;
    return bytes;
}

static uint8_t *read_text(const char *path, size_t *nbytes_out)
{
    FILE *file = path ? fopen(path, "rb") : popen(COMMAND, "r");
    if (!file)
        die("--data %s: %s", path ? path : COMMAND, strerror(errno));
    uint8_t *bytes = read_all(file, path ? path : COMMAND, nbytes_out);
    if (path)
        fclose(file);
    else if (pclose(file) != 0)
        die("the default text is missing; install the Debian package bible-kjv, or name a file "
            "with --data");
    return bytes;
}

/* COUNT windows of TEXT, each STEP bytes after the one before. */
static struct dataset cut(const uint8_t *text, size_t count, size_t step)
{
    struct dataset data = {count, TEXT_WINDOW, TEXT_WINDOW, must_alloc(count, TEXT_WINDOW),
                           must_alloc(count, TEXT_WINDOW)};
    for (size_t i = 0; i < count; i++) {
        memcpy(data.inputs + i * TEXT_WINDOW, text + i * step, TEXT_WINDOW);
        memcpy(data.labels + i * TEXT_WINDOW, text + i * step + 1, TEXT_WINDOW);
    }
    return data;
}

void text_load(const char *path, struct dataset *train, struct dataset *test, float table[256])
{
    size_t nbytes;
    uint8_t *text = read_text(path, &nbytes);
    size_t kept = nbytes / TEST_SHARE, learned = nbytes - kept;
    if (kept <= TEXT_WINDOW)
        die("%s: %zu bytes are too few; %d at least are wanted", path ? path : COMMAND, nbytes,
            TEST_SHARE * (TEXT_WINDOW + 1));
    size_t windows = (kept - 1) / TEXT_WINDOW;
    size_t used = windows < TEST_WINDOWS ? windows : TEST_WINDOWS;
    *train = cut(text, (learned - 1) / TEXT_WINDOW, TEXT_WINDOW);
    *test = cut(text + learned, used, windows / used * TEXT_WINDOW);
    for (int value = 0; value < 256; value++)
        table[value] = (float)value;
    free(text);
}
