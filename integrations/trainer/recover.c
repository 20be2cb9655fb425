/* SPDX-License-Identifier: Apache-2.0 */
/* Losing ranks. Parameters and moments are the same on all ranks, so those that are left have all
 * that is needed. One may have finished a step that others have not: so what was before is kept
 * until all have met after the step, and whoever is ahead takes it back. */
#include "run.h"

#include "program.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

static void copy(struct run *run, float *dst, const float *src)
{
    if (src)
        run->device->ops->put(run->device, dst, src, run->model.count * sizeof *dst);
}

void recover_prepare(struct run *run)
{
    struct stage *before = &run->before;
    if (!before->values)
        return;
    copy(run, before->values, run->model.values);
    copy(run, before->first, run->optimizer.first);
    copy(run, before->second, run->optimizer.second);
    before->optimizer_steps = run->optimizer.steps;
    before->scaler = run->scaler;
}

/* Take the last step back. */
static void take_back(struct run *run)
{
    const struct stage *before = &run->before;
    copy(run, run->model.values, before->values);
    copy(run, run->optimizer.first, before->first);
    copy(run, run->optimizer.second, before->second);
    run->optimizer.steps = before->optimizer_steps;
    run->scaler = before->scaler;
    run->done--;
    assert(run->in_window > 0); /* a window ends where all ranks meet, with equal steps */
    run->in_window--;
}

/* A rank that knew that all had ended the round of before has counted it, and so all must: this one
 * has ended it, or nobody could have known. */
static void end_round(struct run *run)
{
    if (sync_most(run->sync, run->nrounds) > run->nrounds)
        tally_round(run);
}

void recover(struct run *run)
{
    struct sync *sync = run->sync;
    int before = sync->nranks;
    double started = now_s();
    size_t agreed = sync_shrink(sync, run->done);
    if (run->done > agreed + 1)
        die("this rank has done %zu steps, and another one %zu; start again with --resume",
            run->done, agreed);
    if (run->done > agreed)
        take_back(run);
    /* What the failed step has added to its score is of no step. */
    tally_clear(run, run->in_window, WINDOW + 1 - run->in_window);
    run_register(run);
    end_round(run);
    if (sync->rank != 0)
        return;
    if (!sync->failed) { /* what the round has logged stays if it counts, or goes */
        report_log_close(run->log, run->options->log);
        run->log = report_log_reopen(run->options->log, run->done - run->in_window);
    }
    progress_end(&run->progress);
    fprintf(stderr, "%s: lost %d of %d ranks after step %zu; went on with %d after %.1f s\n",
            program_invocation_short_name, before - sync->nranks, before, run->done, sync->nranks,
            now_s() - started);
}
