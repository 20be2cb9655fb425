/* SPDX-License-Identifier: Apache-2.0 */
/* What a run is made of: counters, parameters, moments, losses not yet averaged, and what wring
 * keeps on each rank. Rank 0 reads and writes; all ranks get the same bytes, so all come to the
 * same verdict about them. */
#include "run.h"

#include "checkpoint.h"
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_NBYTES 2048

/* Settings without which the rest of a checkpoint means nothing, a line each. */
static void settings_text(const struct run *run, char text[TEXT_NBYTES])
{
    const struct options *o = run->options;
    snprintf(text, TEXT_NBYTES,
             "model %s\nparameters %zu\noptimizer %s\nbatch %zu\nseed %llu\ndata %016llx\n",
             model_names[o->model], run->model.count, optimizer_names[o->optimizer], o->batch,
             (unsigned long long)o->seed, (unsigned long long)run->data_digest);
}

/* Settings that may be changed, which then is told. */
static void changeable_text(const struct run *run, char text[TEXT_NBYTES])
{
    const struct options *o = run->options;
    snprintf(text, TEXT_NBYTES,
             "ranks %d\ncodec %s\nsteps %zu\nlr %.9g\nschedule %s\nwarmup %zu\naccumulate %zu\n"
             "grad-dtype %s\nclip %.9g\nmomentum %.9g\nweight-decay %.9g\n",
             run->sync->nranks, run->sync->codec_text, run->steps, o->lr,
             schedule_names[o->schedule], run->warmup, o->accumulate, precision_names[o->precision],
             o->clip, o->momentum, o->weight_decay);
}

/* ---- save ------------------------------------------------------------------------------------ */

enum { STEP, OPTIMIZER_STEPS, SCALE, GOOD, SKIPPED, RANKS, COUNTERS };

struct writer {
    struct section *sections;
    size_t nsections;
};

static void put(struct writer *writer, const char *name, const void *bytes, size_t nbytes)
{
    struct section *section = &writer->sections[writer->nsections++];
    snprintf(section->name, sizeof section->name, "%s", name);
    section->bytes = bytes;
    section->nbytes = nbytes;
}

/* COUNT floats of the device, copied to the host. */
static void put_floats(struct writer *writer, const char *name, struct device *device,
                       const float *values, size_t count)
{
    if (!values)
        return;
    float *copy = must_alloc(count, sizeof *copy);
    device->ops->get(device, copy, values, count * sizeof *copy);
    put(writer, name, copy, count * sizeof *copy);
}

static void rank_name(char name[CHECKPOINT_NAME_NBYTES], int rank)
{
    snprintf(name, CHECKPOINT_NAME_NBYTES, "wring of rank %d", rank);
}

/* The state of every rank's wring, on rank 0; the others only send theirs. */
static void put_wring(struct writer *writer, struct sync *sync)
{
    for (int rank = 0; rank < sync->nranks; rank++) {
        char name[CHECKPOINT_NAME_NBYTES];
        size_t nbytes = 0;
        uint8_t *bytes = rank == sync->rank ? sync_state(sync, &nbytes) : NULL;
        sync_share(sync, rank, &bytes, &nbytes);
        rank_name(name, rank);
        put(writer, name, bytes, nbytes);
    }
}

static void write_sections(struct run *run, struct writer *writer, const uint64_t *counters)
{
    char settings[TEXT_NBYTES], changeable[TEXT_NBYTES];
    settings_text(run, settings);
    changeable_text(run, changeable);
    put(writer, "settings", settings, strlen(settings));
    put(writer, "changeable", changeable, strlen(changeable));
    put(writer, "counters", counters, COUNTERS * sizeof *counters);
    put(writer, "losses", run->last_loss, sizeof run->last_loss);
    const char *why =
        checkpoint_write(run->options->checkpoint, writer->sections, writer->nsections);
    if (why)
        fprintf(stderr,
                "%s: step %zu could not be saved, and the last checkpoint stands: %s; training "
                "goes on, make room\n",
                program_invocation_short_name, run->done, why);
    run->unsaved = why != NULL;
}

void state_save(struct run *run)
{
    struct writer writer = {must_alloc((size_t)run->sync->nranks + 16, sizeof(struct section)), 0};
    uint64_t counters[COUNTERS] = {[STEP] = run->done,
                                   [OPTIMIZER_STEPS] = run->optimizer.steps,
                                   [GOOD] = run->scaler.good,
                                   [SKIPPED] = run->scaler.skipped,
                                   [RANKS] = (uint64_t)run->sync->nranks};
    memcpy(&counters[SCALE], &run->scaler.scale, sizeof run->scaler.scale);
    put_wring(&writer, run->sync);
    put_floats(&writer, "values", run->device, run->model.values, run->model.count);
    put_floats(&writer, "first", run->device, run->optimizer.first, run->model.count);
    put_floats(&writer, "second", run->device, run->optimizer.second, run->model.count);
    size_t owned = writer.nsections;
    device_wait(run->device);
    if (run->sync->rank == 0 && !run->sync->failed)
        write_sections(run, &writer, counters);
    for (size_t i = 0; i < owned; i++)
        free((void *)writer.sections[i].bytes);
    free(writer.sections);
}

/* ---- resume ---------------------------------------------------------------------------------- */

struct reader {
    const struct run *run;
    const uint8_t *bytes;
};

/* All ranks found the same: one tells, all end. */
_Noreturn static void refuse(const struct reader *reader, const char *what)
{
    if (reader->run->sync->rank == 0)
        die("--resume: %s/" CHECKPOINT_FILE " %s", reader->run->options->checkpoint, what);
    exit(EXIT_FAILURE);
}

/* Section NAME, which has NBYTES. */
static const void *take(const struct reader *reader, const char *name, size_t nbytes)
{
    struct section section;
    char what[128];
    if (checkpoint_find(reader->bytes, name, &section) && section.nbytes == nbytes)
        return section.bytes;
    snprintf(what, sizeof what, "has no section '%s' of %zu bytes; it is of another program", name,
             nbytes);
    refuse(reader, what);
}

static void take_floats(const struct reader *reader, const char *name, float *values)
{
    const struct run *run = reader->run;
    size_t nbytes = run->model.count * sizeof *values;
    if (values)
        run->device->ops->put(run->device, values, take(reader, name, nbytes), nbytes);
}

/* Section NAME as a text of lines. */
static void take_text(const struct reader *reader, const char *name, char text[TEXT_NBYTES])
{
    struct section section;
    if (!checkpoint_find(reader->bytes, name, &section) || section.nbytes >= TEXT_NBYTES)
        refuse(reader, "does not say with what settings it was made; it is of another program");
    memcpy(text, section.bytes, section.nbytes);
    text[section.nbytes] = '\0';
}

/* Call TOLD for each line in which WAS, which is taken apart, differs from IS. */
static void compare(const struct reader *reader, char *was, char *is,
                    void (*told)(const struct reader *, const char *was, const char *is))
{
    char *was_rest, *is_rest;
    const char *a = strtok_r(was, "\n", &was_rest), *b = strtok_r(is, "\n", &is_rest);
    while (a && b) {
        if (strcmp(a, b) != 0)
            told(reader, a, b);
        a = strtok_r(NULL, "\n", &was_rest);
        b = strtok_r(NULL, "\n", &is_rest);
    }
    if (a || b)
        refuse(reader, "has other settings than this program knows");
}

static void refuse_setting(const struct reader *reader, const char *was, const char *is)
{
    char what[TEXT_NBYTES];
    snprintf(what, sizeof what,
             "was made with '%.200s', and this run has '%.200s'; give the same, or another "
             "--checkpoint",
             was, is);
    refuse(reader, what);
}

static void tell_setting(const struct reader *reader, const char *was, const char *is)
{
    if (reader->run->sync->rank == 0)
        fprintf(stderr, "%s: --resume: was '%s', now is '%s'\n", program_invocation_short_name, was,
                is);
}

static void check_settings(const struct reader *reader)
{
    char was[TEXT_NBYTES], is[TEXT_NBYTES];
    take_text(reader, "settings", was);
    settings_text(reader->run, is);
    compare(reader, was, is, refuse_setting);
    take_text(reader, "changeable", was);
    changeable_text(reader->run, is);
    compare(reader, was, is, tell_setting);
}

static void take_counters(const struct reader *reader, struct run *run, uint64_t counters[COUNTERS])
{
    memcpy(counters, take(reader, "counters", COUNTERS * sizeof *counters),
           COUNTERS * sizeof *counters);
    if (counters[STEP] > run->steps) {
        char what[128];
        snprintf(what, sizeof what, "is of step %llu, behind the end of this run; raise --steps",
                 (unsigned long long)counters[STEP]);
        refuse(reader, what);
    }
    if (counters[RANKS] == 0 || counters[RANKS] > CHECKPOINT_SECTIONS_MAX)
        refuse(reader, "was made by no possible number of ranks");
    run->begun = run->done = counters[STEP];
    run->optimizer.steps = counters[OPTIMIZER_STEPS];
    run->scaler.skipped = counters[SKIPPED];
    if (!run->scaler.dynamic)
        return;
    memcpy(&run->scaler.scale, &counters[SCALE], sizeof run->scaler.scale);
    run->scaler.good = counters[GOOD];
}

/* What wring kept on the ranks of the old run goes to those of this one. */
static void take_wring(const struct reader *reader, struct sync *sync, int nranks)
{
    struct section *states = must_alloc((size_t)nranks, sizeof *states);
    for (int rank = 0; rank < nranks; rank++) {
        char name[CHECKPOINT_NAME_NBYTES];
        rank_name(name, rank);
        if (!checkpoint_find(reader->bytes, name, &states[rank]))
            refuse(reader, "lacks the state of a rank; it is of another program");
    }
    sync_restore(sync, states, nranks);
    free(states);
}

/* Rank 0's checkpoint on all ranks; NULL if there is none. */
static uint8_t *share_checkpoint(struct run *run)
{
    struct sync *sync = run->sync;
    uint8_t *bytes = NULL;
    size_t nbytes = 0;
    uint64_t verdict[2] = {0, 0}; /* none, unusable: equal on all ranks after this */
    const char *why = NULL;
    if (sync->rank == 0) {
        why = checkpoint_folder(run->options->checkpoint);
        if (!why)
            why = checkpoint_read(run->options->checkpoint, &bytes, &nbytes);
        verdict[0] = !bytes;
        verdict[1] = why != NULL;
    }
    sync_broadcast(sync, 0, verdict, sizeof verdict);
    if (why)
        die("--checkpoint: %s", why);
    if (verdict[1])
        exit(EXIT_FAILURE);
    if (verdict[0])
        return NULL;
    sync_share(sync, 0, &bytes, &nbytes);
    return bytes;
}

void state_resume(struct run *run)
{
    if (!run->options->checkpoint)
        return;
    uint8_t *bytes = share_checkpoint(run);
    if (!bytes) {
        if (run->options->resume && run->sync->rank == 0)
            fprintf(stderr, "%s: --resume: no checkpoint in %s yet; beginning at the beginning\n",
                    program_invocation_short_name, run->options->checkpoint);
        return;
    }
    struct reader reader = {run, bytes};
    uint64_t counters[COUNTERS];
    if (!run->options->resume)
        refuse(&reader, "exists; give --resume to go on from it, or another --checkpoint");
    check_settings(&reader);
    take_counters(&reader, run, counters);
    memcpy(run->last_loss, take(&reader, "losses", sizeof run->last_loss), sizeof run->last_loss);
    take_floats(&reader, "values", run->model.values);
    take_floats(&reader, "first", run->optimizer.first);
    take_floats(&reader, "second", run->optimizer.second);
    device_wait(run->device);
    take_wring(&reader, run->sync, (int)counters[RANKS]);
    free(bytes);
}
