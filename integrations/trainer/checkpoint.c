/* SPDX-License-Identifier: Apache-2.0 */
/* The form of a checkpoint, and how one gets to the disk while the last one stands. */
#include "checkpoint.h"

#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoints are little-endian, and so must be the machine"
#endif

#define MAGIC "wringckp"
#define VERSION 1
#define PATH_NBYTES 4096

struct header {
    char magic[8];
    uint32_t version, nsections;
    uint64_t nbytes, hash;
};

struct row {
    char name[CHECKPOINT_NAME_NBYTES];
    uint64_t nbytes;
};

static char why[PATH_NBYTES + 256];

/* Fill WHY. */
__attribute__((format(printf, 1, 2))) static const char *reason(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return why;
}

static uint64_t hash_of(const struct header *header, const uint8_t *bytes, size_t nbytes)
{
    uint64_t seed = XXH3_64bits(header, offsetof(struct header, hash));
    return XXH3_64bits_withSeed(bytes + sizeof *header, nbytes - sizeof *header, seed);
}

/* ---- write ----------------------------------------------------------------------------------- */

static uint8_t *assemble(const struct section *sections, size_t nsections, size_t *nbytes_out)
{
    size_t nbytes = sizeof(struct header) + nsections * sizeof(struct row), used = nbytes;
    for (size_t i = 0; i < nsections; i++)
        nbytes += sections[i].nbytes;
    uint8_t *bytes = must_alloc(1, nbytes);
    struct header header = {.version = VERSION, .nsections = (uint32_t)nsections, .nbytes = nbytes};
    struct row *rows = (struct row *)(bytes + sizeof header);
    for (size_t i = 0; i < nsections; i++) {
        memcpy(rows[i].name, sections[i].name, sizeof rows[i].name);
        rows[i].nbytes = sections[i].nbytes;
        if (sections[i].nbytes)
            memcpy(bytes + used, sections[i].bytes, sections[i].nbytes);
        used += sections[i].nbytes;
    }
    memcpy(header.magic, MAGIC, sizeof header.magic);
    header.hash = hash_of(&header, bytes, nbytes);
    memcpy(bytes, &header, sizeof header);
    *nbytes_out = nbytes;
    return bytes;
}

/* All of BYTES to FD; false with errno set. */
static bool write_all(int fd, const uint8_t *bytes, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t n = write(fd, bytes + done, nbytes - done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static const char *write_file(const char *path, const uint8_t *bytes, size_t nbytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return reason("%s: %s", path, strerror(errno));
    bool written = write_all(fd, bytes, nbytes) && fsync(fd) == 0;
    int error = errno;
    if (close(fd) != 0 && written) { /* where the file system is remote, it may fail only here */
        written = false;
        error = errno;
    }
    if (written)
        return NULL;
    unlink(path);
    return reason("%s: %s", path, strerror(error));
}

static const char *sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return reason("%s: %s", folder, strerror(errno));
    int status = fsync(fd), error = errno;
    close(fd);
    return status == 0 ? NULL : reason("%s: %s", folder, strerror(error));
}

const char *checkpoint_folder(const char *folder)
{
    char inside[PATH_NBYTES]; /* what is no folder has no '.' */
    snprintf(inside, sizeof inside, "%s/.", folder);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return reason("%s: %s", folder, strerror(errno));
    return access(inside, W_OK | X_OK) == 0 ? NULL : reason("%s: %s", folder, strerror(errno));
}

const char *checkpoint_write(const char *folder, const struct section *sections, size_t nsections)
{
    char part[PATH_NBYTES], path[PATH_NBYTES];
    const char *failure = checkpoint_folder(folder);
    if (failure)
        return failure;
    if (snprintf(path, sizeof path, "%s/" CHECKPOINT_FILE, folder) >= PATH_NBYTES ||
        snprintf(part, sizeof part, "%s/" CHECKPOINT_FILE ".part", folder) >= PATH_NBYTES)
        return reason("%.100s...: the name is too long", folder);
    size_t nbytes;
    uint8_t *bytes = assemble(sections, nsections, &nbytes);
    failure = write_file(part, bytes, nbytes);
    free(bytes);
    if (failure)
        return failure;
    if (rename(part, path) != 0) {
        int error = errno;
        unlink(part);
        return reason("%s: %s", path, strerror(error));
    }
    return sync_folder(folder);
}

/* ---- read ------------------------------------------------------------------------------------ */

static const char *check_rows(const struct header *header, const uint8_t *bytes)
{
    size_t used = sizeof *header + header->nsections * sizeof(struct row);
    if (header->nsections > CHECKPOINT_SECTIONS_MAX || used > header->nbytes)
        return "its table is longer than the file; it is damaged";
    for (uint32_t i = 0; i < header->nsections; i++) {
        struct row row;
        memcpy(&row, bytes + sizeof *header + i * sizeof row, sizeof row);
        if (row.name[sizeof row.name - 1] != '\0' || row.nbytes > header->nbytes - used)
            return "a section lies outside the file; it is damaged";
        used += row.nbytes;
    }
    return used == header->nbytes ? NULL : "its sections end before the file; it is damaged";
}

const char *checkpoint_check(const uint8_t *bytes, size_t nbytes)
{
    struct header header;
    if (nbytes < sizeof header.magic || memcmp(bytes, MAGIC, sizeof header.magic) != 0)
        return "not a checkpoint of wring-train";
    if (nbytes < sizeof header)
        return "truncated: it ends within its header";
    memcpy(&header, bytes, sizeof header);
    if (header.version != VERSION)
        return reason("of version %u; this program reads version %d; go on with the program that "
                      "wrote it",
                      header.version, VERSION);
    if (header.nbytes > nbytes)
        return reason("truncated: %zu of %llu bytes", nbytes, (unsigned long long)header.nbytes);
    if (header.nbytes < nbytes)
        return reason("%zu bytes instead of %llu; it is damaged", nbytes,
                      (unsigned long long)header.nbytes);
    if (hash_of(&header, bytes, nbytes) != header.hash)
        return "its checksum does not fit; it is damaged";
    return check_rows(&header, bytes);
}

/* The whole of FD, in memory of malloc(); NULL with errno set. */
static uint8_t *read_all(int fd, size_t *nbytes_out)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return NULL;
    size_t room = (size_t)status.st_size, used = 0;
    uint8_t *bytes = malloc(room + 1);
    while (bytes && used < room) {
        ssize_t n = read(fd, bytes + used, room - used);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR) {
            free(bytes);
            return NULL;
        }
        used += n > 0 ? (size_t)n : 0;
    }
    *nbytes_out = used;
    return bytes;
}

const char *checkpoint_read(const char *folder, uint8_t **bytes_out, size_t *nbytes_out)
{
    char path[PATH_NBYTES];
    *bytes_out = NULL;
    if (snprintf(path, sizeof path, "%s/" CHECKPOINT_FILE, folder) >= PATH_NBYTES)
        return reason("%.100s...: the name is too long", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? NULL : reason("%s: %s", path, strerror(errno));
    size_t nbytes = 0;
    uint8_t *bytes = read_all(fd, &nbytes);
    int error = errno;
    close(fd);
    if (!bytes)
        return reason("%s: %s", path, strerror(error));
    const char *failure = checkpoint_check(bytes, nbytes);
    if (failure) {
        char text[256];
        snprintf(text, sizeof text, "%s", failure);
        free(bytes);
        return reason("%s: %s", path, text);
    }
    *bytes_out = bytes;
    *nbytes_out = nbytes;
    return NULL;
}

bool checkpoint_find(const uint8_t *bytes, const char *name, struct section *section_out)
{
    struct header header;
    memcpy(&header, bytes, sizeof header);
    size_t at = sizeof header + header.nsections * sizeof(struct row);
    for (uint32_t i = 0; i < header.nsections; i++) {
        struct row row;
        memcpy(&row, bytes + sizeof header + i * sizeof row, sizeof row);
        if (strcmp(row.name, name) == 0) {
            memcpy(section_out->name, row.name, sizeof row.name);
            section_out->bytes = bytes + at;
            section_out->nbytes = row.nbytes;
            return true;
        }
        at += row.nbytes;
    }
    return false;
}
