# SPDX-License-Identifier: Apache-2.0
# The README's ten lines compile as they stand and give the mean of two ranks.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n '/^```c$/,/^```$/p' "$WRING_SOURCE/README.md" | sed '/^```/d' >"$work/mean.c"
"$CC" -Wall -Wextra -Werror -I"$WRING_SOURCE/include" "$work/mean.c" -L"$WRING_LIB" -lwring \
    -Wl,-rpath,"$WRING_LIB" -o "$work/mean"
export WRING_SIZE=2 WRING_ROOT=127.0.0.1:$((20000 + $$ % 10000))
WRING_RANK=1 "$work/mean" >"$work/one" &
WRING_RANK=0 "$work/mean" >"$work/zero"
wait $!
grep -qx "rank 0 of 2: mean 0.5" "$work/zero"
grep -qx "rank 1 of 2: mean 0.5" "$work/one"
