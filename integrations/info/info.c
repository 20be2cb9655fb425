/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wring-info: what is built in, what was found on this machine and what is missing and why, and how
 * everything is set. Prints the library's own tables, for people or as one JSON object, and decides
 * nothing itself.
 */
#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <wring/wring.h>

static void print_cpu(const wring_info *info)
{
    bool selected = strcmp(info->detail, "selected") == 0;
    printf("  %-18s %s%s\n", info->name, info->summary, selected ? " [selected]" : "");
    if (!selected && *info->detail)
        printf("  %-18s %s\n", "", info->detail);
}

static void print_found(const wring_info *info)
{
    printf("  %-18s %-8s %s\n", info->name, *info->detail ? "missing" : "found", info->summary);
    if (*info->detail)
        printf("  %-18s %-8s %s\n", "", "", info->detail);
}

/* VALUE is how the stage is written with its parameters. */
static void print_codec(const wring_info *info)
{
    printf("  %-18s %s\n", info->name, info->summary);
    if (strcmp(info->value, info->name) != 0)
        printf("  %-18s   %s\n", "", info->value);
}

static void print_plain(const wring_info *info)
{
    printf("  %-18s %s\n", info->name, info->summary);
}

/* SUMMARY is the variable by which it speaks. */
static void print_launcher(const wring_info *info)
{
    printf("  %-18s %-22s %s%s\n", info->name, info->summary, *info->value ? "says " : "",
           *info->detail ? info->detail : info->value);
}

static void print_setting(const wring_info *info)
{
    printf("  %-18s = %-16s %s\n", info->name, *info->value ? info->value : "\"\"", info->summary);
    printf("  %-18s   %-16s (%s)\n", "", "", info->detail);
}

/* One row for each kind of entry. */
static const struct section {
    wring_info_kind kind;
    const char *title, *key;
    void (*print)(const wring_info *);
} sections[] = {
    {WRING_INFO_CPU, "CPU levels", "cpu", print_cpu},
    {WRING_INFO_TRANSPORT, "transports", "transports", print_found},
    {WRING_INFO_DEVICE, "devices", "devices", print_found},
    {WRING_INFO_CODEC, "codec stages", "codecs", print_codec},
    {WRING_INFO_ALGORITHM, "algorithms", "algorithms", print_plain},
    {WRING_INFO_LAUNCHER, "launchers", "launchers", print_launcher},
    {WRING_INFO_SETTING, "settings", "settings", print_setting},
};
#define NSECTIONS (sizeof sections / sizeof sections[0])

static const char *version_text(void)
{
    static char text[32];
    int version = wring_version();
    snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return text;
}

static void print_text(void)
{
    printf("wring %s\n", version_text());
    for (size_t s = 0; s < NSECTIONS; s++) {
        wring_info info;
        printf("\n%s\n", sections[s].title);
        for (size_t i = 0; wring_info_get(sections[s].kind, i, &info); i++)
            sections[s].print(&info);
    }
}

static json_t *section_json(const struct section *section)
{
    json_t *entries = json_array();
    wring_info info;
    for (size_t i = 0; wring_info_get(section->kind, i, &info); i++)
        json_array_append_new(entries,
                              json_pack("{s:s, s:s, s:s, s:s}", "name", info.name, "summary",
                                        info.summary, "value", info.value, "detail", info.detail));
    return entries;
}

static void print_json(void)
{
    json_t *root = json_pack("{s:s}", "version", version_text());
    for (size_t s = 0; s < NSECTIONS; s++)
        json_object_set_new(root, sections[s].key, section_json(&sections[s]));
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    bool *json = state->input;
    switch (key) {
    case 'j':
        *json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "takes no argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    const struct argp_option options[] = {
        {"json", 'j', NULL, 0, "print one JSON object", 0},
        {0},
    };
    const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .doc =
            "Print what this installation of wring has: version, CPU levels, transports found or "
            "missing, codecs, algorithms, launchers, and all settings with their values."};
    bool json = false;
    argp_parse(&argp, argc, argv, 0, NULL, &json);
    if (json)
        print_json();
    else
        print_text();
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
