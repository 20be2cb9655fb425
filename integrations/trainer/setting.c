/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the library, so that its defaults are written down once. */
#include "setting.h"

#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <wring/wring.h>

char *setting_text(const char *name)
{
    wring_info info;
    for (size_t i = 0; wring_info_get(WRING_INFO_SETTING, i, &info); i++) {
        if (strcmp(info.name, name) != 0)
            continue;
        char *text = strdup(info.value);
        if (!text)
            die("out of memory");
        return text;
    }
    die("this wring has no setting %s; trainer and library are of different versions", name);
}
