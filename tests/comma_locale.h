/* SPDX-License-Identifier: Apache-2.0 */
/* A locale with a decimal comma, made on the spot because few machines have one installed. */
#ifndef TESTS_COMMA_LOCALE_H
#define TESTS_COMMA_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Enter it; its files go to FOLDER, which ends in XXXXXX. False if this machine cannot make one. */
static inline bool comma_locale_enter(char *folder)
{
    static const char source[] = "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\n"
                                 "thousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";
    char command[512];
    if (!mkdtemp(folder))
        return false;
    snprintf(command, sizeof(command),
             "cd %s && printf '%%s' '%s' > source && "
             "localedef -c -i source --no-archive %s/comma >/dev/null 2>&1",
             folder, source, folder);
    if (system(command) == -1)
        return false;
    setenv("LOCPATH", folder, 1);
    return setlocale(LC_NUMERIC, "comma") != NULL;
}

/* Back to C, files removed; false if that failed. */
static inline bool comma_locale_leave(const char *folder)
{
    char command[64];
    setlocale(LC_NUMERIC, "C");
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) == 0;
}

#endif
