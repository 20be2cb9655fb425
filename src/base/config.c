/* SPDX-License-Identifier: Apache-2.0 */
/* What a setting is and what it is set to. Values and help both come from config.def, so they
 * cannot disagree; numbers are read in the C locale whatever the program has set. An empty variable
 * counts as not set. */
#include "base/config.h"

#include <inttypes.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"

enum kind { TEXT, FOLDER, WORD, INT, MS, BYTES, REAL, FLAG, SECRET };

/* A row of config.def. Limits are kept as integers and as reals; the kind says which ones count. */
struct setting {
    enum kind kind;
    const char *env, *def, *choices, *help;
    size_t offset; /* in struct wri_config */
    int64_t int_min, int_max;
    double real_min, real_max;
};

static const struct setting settings[] = {
#define WRI_SETTING(kind, field, env, def, min, max, choices, help)                                \
    {kind,                                                                                         \
     env,                                                                                          \
     def,                                                                                          \
     choices,                                                                                      \
     help,                                                                                         \
     offsetof(struct wri_config, field),                                                           \
     (int64_t)(min),                                                                               \
     (int64_t)(max),                                                                               \
     (double)(min),                                                                                \
     (double)(max)},
#include "base/config.def"
#undef WRI_SETTING
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* Variables that others read: UCX options that are passed on, processes started by --spawn, and
 * where the tests find what was built. A name that ends with '_' stands for all that begin so. */
static const char *const foreign[] = {"WRING_UCX_", "WRING_SPAWN_", "WRING_LISTEN_FD", "WRING_BIN",
                                      "WRING_LIB",  "WRING_SOURCE", "WRING_TEST_"};

/* ---- numbers and words ----------------------------------------------------------------------- */

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Length of the decimal number that TEXT begins with: [+-]digits[.digits][e[+-]digits]; 0 if none.
 * Narrower than strtod, which also takes white space, hexadecimal, "inf" and "nan". */
static size_t decimal_length(const char *text)
{
    size_t at = strspn(text, "+-");
    if (at > 1)
        return 0;
    size_t whole = digits(text + at), fraction = 0;
    at += whole;
    if (text[at] == '.') {
        fraction = digits(text + at + 1);
        at += 1 + fraction;
    }
    if (whole + fraction == 0)
        return 0;
    if (text[at] == 'e' || text[at] == 'E') {
        size_t sign = text[at + 1] == '+' || text[at + 1] == '-';
        size_t exponent = digits(text + at + 1 + sign);
        at += exponent ? 1 + sign + exponent : 0;
    }
    return at;
}

static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void open_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool wri_parse_real(const char *text, size_t length, double *value_out)
{
    static const char hundredths[] = "e-2"; /* dividing by 100 would round a second time */
    char copy[64 + sizeof(hundredths)];
    if (length == 0 || length >= 64)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    size_t end = decimal_length(copy);
    bool percent = copy[end] == '%';
    if (end == 0 || end + percent != length || (percent && strpbrk(copy, "eE")))
        return false;
    if (percent)
        strcpy(copy + end, hundredths);
    pthread_once(&c_locale_once, open_c_locale);
    double value = strtod_l(copy, NULL, c_locale);
    if (!__builtin_isfinite(value))
        return false;
    *value_out = value;
    return true;
}

static bool parse_int(const char *text, int64_t *value_out)
{
    bool negative = *text == '-';
    int64_t value = 0;
    text += negative;
    if (!*text)
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        int digit = *text - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, negative ? -digit : digit, &value))
            return false;
    }
    *value_out = value;
    return *text == '\0';
}

/* An integer, and one of the letters K, M, G of either case for 2^10, 2^20, 2^30. */
static bool parse_bytes(const char *text, int64_t *value_out)
{
    static const char letters[] = "kmgKMG";
    char number[32];
    size_t length = strlen(text);
    const char *letter = length ? strchr(letters, text[length - 1]) : NULL;
    length -= letter != NULL;
    if (length >= sizeof(number))
        return false;
    memcpy(number, text, length);
    number[length] = '\0';
    int64_t unit = letter ? (int64_t)1 << 10 * ((letter - letters) % 3 + 1) : 1;
    return parse_int(number, value_out) && !__builtin_mul_overflow(*value_out, unit, value_out);
}

static bool parse_word(const char *text, const char *choices, int *index_out)
{
    size_t length = strlen(text);
    for (int index = 0; *choices; index++) {
        size_t word = strcspn(choices, " ");
        if (word == length && memcmp(choices, text, length) == 0) {
            *index_out = index;
            return true;
        }
        choices += word + strspn(choices + word, " ");
    }
    return false;
}

/* ---- settings -------------------------------------------------------------------------------- */

static bool parse_limited(const struct setting *setting, const char *text, int64_t *value_out)
{
    int64_t value;
    bool number = setting->kind == BYTES ? parse_bytes(text, &value) : parse_int(text, &value);
    if (!number || value < setting->int_min || value > setting->int_max)
        return false;
    *value_out = value;
    return true;
}

static bool parse_real_limited(const struct setting *setting, const char *text, double *value_out)
{
    double value;
    if (strchr(text, '%') || !wri_parse_real(text, strlen(text), &value) ||
        !(value >= setting->real_min && value <= setting->real_max))
        return false;
    *value_out = value;
    return true;
}

static bool parse_text(const struct setting *setting, const char *text, char *field)
{
    size_t length = strlen(text);
    bool is_short = setting->kind == SECRET && (int64_t)length < setting->int_min;
    bool is_relative = setting->kind == FOLDER && *text != '/';
    if (length >= WRI_CONFIG_TEXT_MAX || (length > 0 && (is_short || is_relative)))
        return false;
    memcpy(field, text, length + 1);
    return true;
}

/* Put the value of TEXT into FIELD, of the C type of the setting's kind; false if it is refused. */
static bool parse_setting(const struct setting *setting, const char *text, void *field)
{
    int64_t number;
    switch (setting->kind) {
    case TEXT:
    case FOLDER:
    case SECRET:
        return parse_text(setting, text, field);
    case WORD:
    case FLAG:
        return parse_word(text, setting->choices, field);
    case INT:
    case MS:
        return parse_limited(setting, text, field);
    case BYTES:
        if (!parse_limited(setting, text, &number))
            return false;
        *(uint64_t *)field = (uint64_t)number;
        return true;
    case REAL:
        return parse_real_limited(setting, text, field);
    }
    return false;
}

/* What the setting accepts, in words. */
static void describe(const struct setting *setting, char *out, size_t capacity)
{
    switch (setting->kind) {
    case TEXT:
        snprintf(out, capacity, "text of at most %d bytes", WRI_CONFIG_TEXT_MAX - 1);
        break;
    case FOLDER:
        snprintf(out, capacity, "an absolute path of at most %d bytes", WRI_CONFIG_TEXT_MAX - 1);
        break;
    case WORD:
    case FLAG:
        snprintf(out, capacity, "one of: %s", setting->choices);
        break;
    case INT:
        snprintf(out, capacity, "an integer from %" PRId64 " to %" PRId64, setting->int_min,
                 setting->int_max);
        break;
    case MS:
        snprintf(out, capacity, "milliseconds, an integer from %" PRId64 " to %" PRId64,
                 setting->int_min, setting->int_max);
        break;
    case BYTES:
        snprintf(out, capacity,
                 "bytes from %" PRId64 " to %" PRId64 ", K, M, G meaning 2^10, 2^20, 2^30",
                 setting->int_min, setting->int_max);
        break;
    case SECRET:
        snprintf(out, capacity, "text of %" PRId64 " to %d bytes", setting->int_min,
                 WRI_CONFIG_TEXT_MAX - 1);
        break;
    case REAL:
        snprintf(out, capacity, "a number from %g to %g", setting->real_min, setting->real_max);
        break;
    }
}

static const char *environment_text(const struct setting *setting)
{
    const char *text = getenv(setting->env);
    return text && *text ? text : NULL;
}

/* The value as people may see it. */
static const char *shown_text(const struct setting *setting, const char *text)
{
    return !text ? setting->def : setting->kind == SECRET ? "(not shown)" : text;
}

static wring_status load_setting(const struct setting *setting, struct wri_config *config)
{
    void *field = (char *)config + setting->offset;
    const char *text = environment_text(setting);
    if (parse_setting(setting, text ? text : setting->def, field))
        return WRING_OK;
    char accepted[160];
    describe(setting, accepted, sizeof(accepted));
    return wri_fail(WRING_E_CONFIG, "%s=%s: expected %s", setting->env, shown_text(setting, text),
                    accepted);
}

static bool is_setting(const char *name, size_t length)
{
    for (size_t i = 0; i < SETTINGS; i++)
        if (strlen(settings[i].env) == length && memcmp(settings[i].env, name, length) == 0)
            return true;
    return false;
}

static bool is_foreign(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        size_t own = strlen(foreign[i]);
        bool prefix = foreign[i][own - 1] == '_';
        if ((prefix ? own <= length : own == length) && memcmp(foreign[i], name, own) == 0)
            return true;
    }
    return false;
}

static void warn_unknown(void)
{
    for (char **variable = environ; variable && *variable; variable++) {
        const char *name = *variable;
        size_t length = strcspn(name, "=");
        if (strncmp(name, "WRING_", 6) == 0 && !is_setting(name, length) &&
            !is_foreign(name, length))
            wri_log(WRING_LOG_WARN, "%.*s is no setting of wring; wring-info lists them",
                    (int)length, name);
    }
}

wring_status wri_config_load(struct wri_config *config_out)
{
    static pthread_once_t warn_once = PTHREAD_ONCE_INIT;
    struct wri_config config;
    memset(&config, 0, sizeof(config));
    pthread_once(&warn_once, warn_unknown);
    for (size_t i = 0; i < SETTINGS; i++)
        WRI_TRY(load_setting(&settings[i], &config));
    *config_out = config;
    return WRING_OK;
}

int wri_config_word(const char *env)
{
    int index = 0;
    for (size_t i = 0; i < SETTINGS; i++) {
        if (strcmp(settings[i].env, env) != 0)
            continue;
        const char *text = environment_text(&settings[i]);
        if (!text || !parse_word(text, settings[i].choices, &index))
            parse_word(settings[i].def, settings[i].choices, &index);
    }
    return index;
}

bool wri_config_info(size_t index, wring_info *info_out)
{
    static _Thread_local char value[WRI_CONFIG_TEXT_MAX], detail[256];
    if (index >= SETTINGS)
        return false;
    const struct setting *setting = &settings[index];
    struct wri_config config;
    const char *text = environment_text(setting);
    bool good = !text || parse_setting(setting, text, (char *)&config + setting->offset);
    snprintf(value, sizeof(value), "%s%s", shown_text(setting, text), good ? "" : " (refused)");
    char accepted[160];
    describe(setting, accepted, sizeof(accepted));
    snprintf(detail, sizeof(detail), "default %s; %s", *setting->def ? setting->def : "empty",
             accepted);
    *info_out = (wring_info){setting->env, setting->help, value, detail};
    return true;
}
