/* SPDX-License-Identifier: Apache-2.0 */
/* Which options exist and what they default to. The defaults train the cnn well in five epochs, and
 * gpt in a few hundred steps. */
#include "options.h"

#include "program.h"
#include "sync.h"

#include <argp.h>
#include <limits.h>
#include <string.h>

enum key {
    KEY_MODEL = 256,
    KEY_DATA,
    KEY_DEVICE,
    KEY_OPTIMIZER,
    KEY_LR,
    KEY_MOMENTUM,
    KEY_DECAY,
    KEY_BATCH,
    KEY_ACCUMULATE,
    KEY_STEPS,
    KEY_EPOCHS,
    KEY_WARMUP,
    KEY_SCHEDULE,
    KEY_SEED,
    KEY_CODEC,
    KEY_ALGORITHM,
    KEY_SPAWN,
    KEY_LOG,
    KEY_JSON,
    KEY_EVAL,
    KEY_CLIP,
    KEY_PRECISION,
    KEY_SCALE,
    KEY_WINDOW,
    KEY_POISON,
    KEY_CHECKPOINT,
    KEY_CHECKPOINT_EVERY,
    KEY_RESUME,
    KEY_FAILURE
};

static const struct argp_option table[] = {
    {NULL, 0, NULL, 0, "What is trained:", 1},
    {"model", KEY_MODEL, "mlp|cnn|gpt", 0, "Network (default cnn)", 1},
    {"data", KEY_DATA, "PATH", 0,
     "Folder of the four IDX files (default /usr/share/datasets/fashion-mnist); for gpt any file, "
     "learned byte by byte (default: the text that `bible` prints)",
     1},
    {"device", KEY_DEVICE, "cpu|cuda", 0,
     "Where it is trained (default cpu); with cuda, each rank of a host takes a GPU of its own as "
     "far as there are",
     1},
    {"seed", KEY_SEED, "S", 0, "Seed of the weights and of the order of samples (default 1)", 1},
    {NULL, 0, NULL, 0, "How it is trained:", 2},
    {"optimizer", KEY_OPTIMIZER, "sgd|adam|rmsprop", 0, "Optimizer (default sgd; rmsprop for gpt)",
     2},
    {"lr", KEY_LR, "X", 0, "Learning rate (default 0.03 for sgd, else 0.001, or 0.004 for gpt)", 2},
    {"momentum", KEY_MOMENTUM, "X", 0,
     "Momentum (default 0.9 for sgd, 0 for rmsprop; adam has its own)", 2},
    {"weight-decay", KEY_DECAY, "X", 0, "Decay of the weights (default 0.0005)", 2},
    {"batch", KEY_BATCH, "N", 0, "Samples per step, over all ranks (default 64; 8 for gpt)", 2},
    {"accumulate", KEY_ACCUMULATE, "K", 0, "Micro-steps per step (default 1)", 2},
    {"epochs", KEY_EPOCHS, "N", 0, "Passes over the data (default 5; 1 for gpt)", 2},
    {"steps", KEY_STEPS, "N", 0, "Steps, instead of --epochs", 2},
    {"warmup", KEY_WARMUP, "N", 0,
     "Steps over which the rate rises from 0 (default: a twentieth; 200 for gpt, at most two "
     "thirds)",
     2},
    {"schedule", KEY_SCHEDULE, "constant|step|cosine", 0,
     "The rate after the warm-up: constant, tenfold down at 1/2 and 3/4 of the run, or half a "
     "cosine "
     "to 0 (default)",
     2},
    {"clip", KEY_CLIP, "X", 0,
     "Scale gradients down to a norm of X over all parameters (default: never)", 2},
    {NULL, 0, NULL, 0, "How gradients travel:", 3},
    {"grad-dtype", KEY_PRECISION, "float32|bfloat16|float16", 0,
     "What they are handed to wring as (default float32)", 3},
    {"loss-scale", KEY_SCALE, "X|dynamic", 0,
     "Multiply the loss by X, and the gradients by 1/X when they have arrived; dynamic begins at "
     "65536, halves and skips the step when a gradient is not finite on some rank, and doubles "
     "after good steps (default 1; dynamic for float16)",
     3},
    {"scale-window", KEY_WINDOW, "N", 0, "Good steps until a dynamic scale doubles (default 1000)",
     3},
    {"poison", KEY_POISON, "STEP", OPTION_HIDDEN, "For tests: an infinite gradient on one rank", 3},
    {"codec", KEY_CODEC, "SPEC", 0,
     "For example none, bf16, int8, ef+int4, ef+topk:0.01+int8 (default: setting WRING_CODEC)", 3},
    {"algorithm", KEY_ALGORITHM, "A", 0,
     "direct, ring, allgather, or auto (default: setting WRING_ALGORITHM)", 3},
    {"spawn", KEY_SPAWN, "N", 0, "Run N processes on this machine, without a launcher", 3},
    {NULL, 0, NULL, 0, "What outlives a failure:", 4},
    {"checkpoint", KEY_CHECKPOINT, "DIR", 0,
     "Save all that training needs to go on in DIR, which rank 0 writes", 4},
    {"checkpoint-every", KEY_CHECKPOINT_EVERY, "N", 0,
     "Save every N steps (default: once per epoch), and at the end", 4},
    {"resume", KEY_RESUME, NULL, 0,
     "Go on from the checkpoint in DIR, if there is one: bit for bit as if never interrupted, if "
     "options and number of ranks are the same",
     4},
    {"on-failure", KEY_FAILURE, "shrink|exit", 0,
     "When ranks are lost: go on without them from the last step that all others have done, or end "
     "(default)",
     4},
    {NULL, 0, NULL, 0, "What is reported:", 5},
    {"log", KEY_LOG, "FILE", 0, "Write each step and evaluation to FILE as a line of JSON", 5},
    {"json", KEY_JSON, NULL, 0, "Print the summary as one JSON object", 5},
    {"eval-every", KEY_EVAL, "N", 0, "Evaluate every N steps (default: once per epoch)", 5},
    {0}};

static error_t parse_model_and_reports(int key, char *arg, struct options *o)
{
    switch (key) {
    case KEY_MODEL:
        o->model = parse_word("--model", arg, model_names);
        return 0;
    case KEY_DATA:
        o->data = arg;
        return 0;
    case KEY_DEVICE:
        o->device = parse_word("--device", arg, device_names);
        return 0;
    case KEY_SEED:
        o->seed = (uint64_t)parse_int("--seed", arg, 0, LONG_MAX);
        return 0;
    case KEY_CODEC:
        o->codec = arg;
        return 0;
    case KEY_ALGORITHM:
        o->algorithm = arg;
        return 0;
    case KEY_SPAWN:
        o->spawn = (int)parse_int("--spawn", arg, 1, 1024);
        return 0;
    case KEY_LOG:
        o->log = arg;
        return 0;
    case KEY_JSON:
        o->json = true;
        return 0;
    case KEY_EVAL:
        o->eval_every = (size_t)parse_int("--eval-every", arg, 1, INT_MAX);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_travel_and_failure(int key, char *arg, struct options *o)
{
    switch (key) {
    case KEY_PRECISION:
        o->precision = (enum precision)parse_word("--grad-dtype", arg, precision_names);
        return 0;
    case KEY_SCALE:
        o->scaler.dynamic = strcmp(arg, "dynamic") == 0;
        o->scaler.scale =
            o->scaler.dynamic ? SCALER_FIRST : parse_real("--loss-scale", arg, 1e-6, SCALER_MAX);
        return 0;
    case KEY_WINDOW:
        o->scaler.window = (size_t)parse_int("--scale-window", arg, 1, INT_MAX);
        return 0;
    case KEY_CHECKPOINT:
        o->checkpoint = arg;
        return 0;
    case KEY_CHECKPOINT_EVERY:
        o->checkpoint_every = (size_t)parse_int("--checkpoint-every", arg, 1, INT_MAX);
        return 0;
    case KEY_RESUME:
        o->resume = true;
        return 0;
    case KEY_FAILURE:
        o->shrink = parse_word("--on-failure", arg, (const char *const[]){"exit", "shrink", NULL});
        return 0;
    case KEY_POISON:
        o->poison = (size_t)parse_int("--poison", arg, 1, INT_MAX);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_training(int key, char *arg, struct options *o)
{
    switch (key) {
    case KEY_OPTIMIZER:
        o->optimizer = (enum optimizer_kind)parse_word("--optimizer", arg, optimizer_names);
        return 0;
    case KEY_SCHEDULE:
        o->schedule = (enum schedule_kind)parse_word("--schedule", arg, schedule_names);
        return 0;
    case KEY_LR:
        o->lr = parse_real("--lr", arg, 1e-9, 1000);
        return 0;
    case KEY_MOMENTUM:
        o->momentum = parse_real("--momentum", arg, 0, 0.9999);
        return 0;
    case KEY_DECAY:
        o->weight_decay = parse_real("--weight-decay", arg, 0, 1);
        return 0;
    case KEY_BATCH:
        o->batch = (size_t)parse_int("--batch", arg, 1, 1 << 20);
        return 0;
    case KEY_ACCUMULATE:
        o->accumulate = (size_t)parse_int("--accumulate", arg, 1, 1 << 20);
        return 0;
    case KEY_STEPS:
        o->steps = (size_t)parse_int("--steps", arg, 1, INT_MAX);
        return 0;
    case KEY_EPOCHS:
        o->epochs = (size_t)parse_int("--epochs", arg, 1, 1000000);
        return 0;
    case KEY_WARMUP:
        o->warmup = parse_int("--warmup", arg, 0, INT_MAX);
        return 0;
    case KEY_CLIP:
        o->clip = parse_real("--clip", arg, 1e-9, 1e9);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    if (key == ARGP_KEY_ARG)
        argp_error(state, "'%s': every argument is an option", arg);
    error_t status = parse_training(key, arg, o);
    if (status == ARGP_ERR_UNKNOWN)
        status = parse_travel_and_failure(key, arg, o);
    return status == ARGP_ERR_UNKNOWN ? parse_model_and_reports(key, arg, o) : status;
}

static const struct argp parser = {
    table,
    parse_one,
    NULL,
    "Train a network on Fashion-MNIST, or on text, with compressed gradients.\v"
    "Runs alone, with --spawn N as N processes on this machine, or "
    "under mpirun, srun or torchrun. N "
    "ranks with K micro-steps see the same samples as one rank with "
    "the same --batch. Ends with status "
    "0 only if all ranks hold the same parameters, bit for bit.",
    NULL,
    NULL,
    NULL};

/* What depends on other options. */
static void complete(struct options *o)
{
    bool text = model_data(o->model) == DATA_TEXT;
    if (o->optimizer == OPTIMIZERS)
        o->optimizer = text ? OPTIMIZER_RMSPROP : OPTIMIZER_SGD;
    if (o->momentum < 0)
        o->momentum = o->optimizer == OPTIMIZER_SGD ? 0.9 : 0;
    if (o->scaler.scale == 0) {
        o->scaler.dynamic = o->precision == PRECISION_FLOAT16;
        o->scaler.scale = o->scaler.dynamic ? SCALER_FIRST : 1;
    }
    if (!o->batch)
        o->batch = text ? 8 : 64;
    if (!o->epochs)
        o->epochs = text ? 1 : 5;
    if (o->lr == 0)
        o->lr = o->optimizer == OPTIMIZER_SGD ? 0.03 : text ? 0.004 : 0.001;
}

void options_parse(struct options *options, int argc, char **argv)
{
    *options = (struct options){.model = 1,
                                .schedule = SCHEDULE_COSINE,
                                .momentum = -1,
                                .scaler = {.window = SCALER_WINDOW},
                                .weight_decay = 5e-4,
                                .optimizer = OPTIMIZERS,
                                .accumulate = 1,
                                .warmup = -1,
                                .seed = 1};
    argp_err_exit_status = 1;
    argp_parse(&parser, argc, argv, 0, NULL, options);
    if (options->steps && options->epochs)
        die("--steps and --epochs exclude each other; give one");
    if (!options->checkpoint && (options->checkpoint_every || options->resume))
        die("--checkpoint-every and --resume need --checkpoint DIR");
    complete(options);
}
