/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of wring, as a program reads them. */
#ifndef TRAINER_SETTING_H
#define TRAINER_SETTING_H

/* Current value of setting NAME, to be freed. Dies if this wring does not know it. */
char *setting_text(const char *name);

#endif
