# SPDX-License-Identifier: Apache-2.0
# Any number of ranks and micro-steps sees the samples that one rank sees in one go: with codec none the
# loss of each step is the same but for the order of float32 sums.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

run one --steps 50
for ranks in 2 4; do
    for accumulate in 1 2; do
        run many --steps 50 --spawn $ranks --accumulate $accumulate --codec none
        check 'len(loss["one"]) == 50' one
        check 'max(abs(a - b) / a for a, b in zip(loss["one"], loss["many"])) <= 1e-4' one many
    done
done
# Cuts that are not equal: 64 samples in 6 and in 70 parts.
run many --steps 50 --spawn 3 --accumulate 2 --codec none
check 'max(abs(a - b) / a for a, b in zip(loss["one"], loss["many"])) <= 1e-4' one many
run few --steps 3 --codec none
run many --steps 3 --spawn 2 --accumulate 35 --codec none
check 'max(abs(a - b) / a for a, b in zip(loss["few"], loss["many"])) <= 1e-4' few many
run many --steps 50 --accumulate 4
check 'max(abs(a - b) / a for a, b in zip(loss["one"], loss["many"])) <= 1e-4' one many

# The test can fail: another seed is another curve.
run many --steps 50 --seed 2
check 'max(abs(a - b) / a for a, b in zip(loss["one"], loss["many"])) > 1e-2' one many
