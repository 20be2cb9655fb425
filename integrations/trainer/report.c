/* SPDX-License-Identifier: Apache-2.0 */
/* The form of log and summary. Field names are those of the summary's description in docs, so that
 * scripts may rely on them. */
#include "report.h"

#include "program.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* JSON has no NaN; null stands for it. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Print OBJECT, which is consumed, as one line. */
static void print_line(FILE *file, json_t *object)
{
    char *text = object ? json_dumps(object, JSON_REAL_PRECISION(9)) : NULL;
    if (!text)
        die("out of memory");
    fprintf(file, "%s\n", text);
    fflush(file);
    free(text);
    json_decref(object);
}

static double ratio(const struct summary *s)
{
    return s->wire_bytes_per_step > 0 ? s->dense_bytes_per_step / s->wire_bytes_per_step : 1;
}

static void print_json(const struct summary *s)
{
    char digest[17];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)s->digest);
    print_line(stdout,
               json_pack("{s:i, s:s, s:s, s:I, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                         "s:o, s:s, s:b, s:o, s:I}",
                         "ranks", s->ranks, "model", s->model, "device", s->device, "parameters",
                         (json_int_t)s->parameters, "codec", s->codec, "algorithm", s->algorithm,
                         "steps", (json_int_t)s->steps, "train_loss", number(s->train_loss),
                         s->text ? "test_loss" : "test_accuracy",
                         number(s->text ? s->test_loss : s->test_accuracy), "seconds",
                         number(s->seconds), "seconds_compute", number(s->seconds_compute),
                         "seconds_exposed_comm", number(s->seconds_exposed_comm),
                         "dense_bytes_per_step", number(s->dense_bytes_per_step),
                         "wire_bytes_per_step", number(s->wire_bytes_per_step), "ratio",
                         number(ratio(s)), "digest", digest, "replicas_equal", s->replicas_equal,
                         "loss_scale", number(s->loss_scale), "steps_skipped",
                         (json_int_t)s->steps_skipped));
}

static void print_text(const struct summary *s)
{
    printf("%s, %zu parameters, %d rank%s on %s, codec %s, algorithm %s\n", s->model, s->parameters,
           s->ranks, s->ranks == 1 ? "" : "s", s->device, s->codec, s->algorithm);
    if (s->text)
        printf("  test loss %.4f", s->test_loss);
    else
        printf("  test accuracy %.2f %%", 100 * s->test_accuracy);
    printf(", train loss %.4f after %zu steps\n", s->train_loss, s->steps);
    printf("  %.1f s: %.1f s compute, %.1f s waiting for communication\n", s->seconds,
           s->seconds_compute, s->seconds_exposed_comm);
    printf("  %.0f bytes per step and rank instead of %.0f, ratio %.2f\n", s->wire_bytes_per_step,
           s->dense_bytes_per_step, ratio(s));
    if (s->steps_skipped)
        printf("  %zu steps skipped, whose gradients were not finite; loss scale %g\n",
               s->steps_skipped, s->loss_scale);
    printf("  replicas %s, digest %016llx\n", s->replicas_equal ? "equal" : "DIFFER",
           (unsigned long long)s->digest);
}

void report_summary(const struct summary *summary, bool json)
{
    if (json)
        print_json(summary);
    else
        print_text(summary);
}

FILE *report_log_open(const char *path)
{
    if (!path)
        return NULL;
    FILE *log = fopen(path, "w");
    if (!log)
        die("--log %s: %s", path, strerror(errno));
    return log;
}

/* Copy the lines of FROM to TO up to that of the first step after STEPS. */
static void copy_lines(FILE *from, FILE *to, size_t steps)
{
    char *line = NULL;
    size_t room = 0, step;
    while (getline(&line, &room, from) > 0 && sscanf(line, "{\"step\": %zu", &step) == 1 &&
           step <= steps)
        fputs(line, to);
    free(line);
}

FILE *report_log_reopen(const char *path, size_t steps)
{
    FILE *old = path ? fopen(path, "r") : NULL;
    if (!old)
        return report_log_open(path);
    char *part;
    if (asprintf(&part, "%s.part", path) < 0)
        die("out of memory");
    FILE *log = report_log_open(part);
    copy_lines(old, log, steps);
    fclose(old);
    if (fflush(log) != 0 || rename(part, path) != 0)
        die("--log %s: %s", path, strerror(errno));
    free(part);
    return log;
}

void report_log_close(FILE *log, const char *path)
{
    if (log && (ferror(log) | fclose(log)))
        die("--log %s: not written completely; is the disk full?", path);
}

void report_log_step(FILE *log, size_t step, double loss, const struct step_record *record)
{
    if (!log)
        return;
    json_t *line =
        json_pack("{s:I, s:o, s:o, s:I, s:o}", "step", (json_int_t)step, "loss", number(loss), "lr",
                  number(record->lr), "wire_bytes", (json_int_t)record->wire_nbytes, "loss_scale",
                  number(record->loss_scale));
    if (line && !isnan(record->norm))
        json_object_set_new(line, "grad_norm", number(record->norm));
    print_line(log, line);
}

void report_log_evaluation(FILE *log, size_t step, double accuracy, double loss)
{
    if (log)
        print_line(log, json_pack("{s:I, s:o, s:o}", "step", (json_int_t)step, "test_accuracy",
                                  number(accuracy), "test_loss", number(loss)));
}
