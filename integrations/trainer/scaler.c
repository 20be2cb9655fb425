/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic loss scaling (Micikevicius et al., 2018), in powers of two, so that a scale by itself
 * changes no bit of a gradient that is in range. */
#include "scaler.h"

bool scaler_update(struct scaler *scaler, bool nonfinite)
{
    if (!nonfinite) {
        scaler->good++;
        if (scaler->dynamic && scaler->good >= scaler->window && scaler->scale < SCALER_MAX) {
            scaler->scale *= 2;
            scaler->good = 0;
        }
        return true;
    }
    if (!scaler->dynamic || scaler->scale <= 1)
        return false;
    scaler->scale /= 2;
    scaler->good = 0;
    scaler->skipped++;
    return true;
}
