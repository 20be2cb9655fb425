# SPDX-License-Identifier: Apache-2.0
# A run that is stopped at random moments and resumed ends as one that was not: train_resume.sh [TRIES SEED].
# Case B36 (pytorch 79334: a compressor's state could not be saved) is the first line below, of random steps.
# What is no checkpoint of this run is refused by name, and one that cannot be written costs nothing.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

python3 "$WRING_SOURCE/tests/lib/resume.py" "$train" "$work" "${1-4}" "${2-1}" || fail "resume.py"

# refused WORD ARGUMENTS...: resuming $work/cp fails, says WORD, and leaves the file as it is.
refused() {
    local word=$1 before
    shift
    before=$(cksum <"$work/cp/checkpoint")
    timeout 30 "$train" --model mlp --steps 6 --checkpoint "$work/cp" "$@" >"$work/out" 2>"$work/err" &&
        fail "accepted: $*"
    grep -qe "$word" "$work/err" || fail "$* should name '$word' but says: $(cat "$work/err")"
    [ "$(cksum <"$work/cp/checkpoint")" = "$before" ] || fail "$* changed the checkpoint"
}

run first --spawn 2 --steps 6 --checkpoint "$work/cp" --checkpoint-every 3
good=$work/good
cp "$work/cp/checkpoint" "$good"
[ "$(ls "$work/cp")" = checkpoint ] || fail "left beside the checkpoint: $(ls "$work/cp")"
refused 'give --resume'
refused "'seed 1', and this run has 'seed 2'" --resume --seed 2
refused "'batch 64', and this run has 'batch 32'" --resume --batch 32
refused "'model mlp', and this run has 'model cnn'" --resume --model cnn
refused "'optimizer sgd', and this run has 'optimizer adam'" --resume --optimizer adam
refused 'behind the end' --resume --steps 3
refused 'behind the end' --resume --steps 3 --spawn 2
run again --spawn 2 --steps 6 --checkpoint "$work/cp" --resume
check 's["again"]["digest"] == s["first"]["digest"]' first again

head -c 100000 "$good" >"$work/cp/checkpoint"
refused 'truncated' --resume
refused 'truncated' --resume --spawn 2
: >"$work/cp/checkpoint"
refused 'not a checkpoint' --resume
head -c 10000 /dev/urandom >"$work/cp/checkpoint"
refused 'not a checkpoint' --resume
{ head -c 50000 "$good" && printf x && tail -c +50002 "$good"; } >"$work/cp/checkpoint"
refused 'checksum' --resume
{ head -c 8 "$good" && printf '\0\0\0\0' && tail -c +13 "$good"; } >"$work/cp/checkpoint"
refused 'version 0' --resume
rm "$work/cp/checkpoint"
mkdir "$work/cp/checkpoint"
timeout 30 "$train" --model mlp --steps 6 --checkpoint "$work/cp" --resume >/dev/null 2>"$work/err" &&
    fail "resumed from a folder"
grep -q 'Is a directory' "$work/err" || fail "a folder as checkpoint: $(cat "$work/err")"
rmdir "$work/cp/checkpoint"

# A limit on the size of files is what a full disk looks like: training goes on, and fails in the end.
cp "$good" "$work/cp/checkpoint"
(
    trap '' XFSZ
    ulimit -f 200
    "$train" --model mlp --steps 20 --json --checkpoint "$work/cp" --checkpoint-every 5 --resume \
        >"$work/full.json" 2>"$work/err"
) && fail "a run that could not be saved ended with status 0"
grep -q 'step 10 could not be saved.*File too large' "$work/err" || fail "full disk: $(cat "$work/err")"
grep -q '"steps": 20' "$work/full.json" || fail "training did not go on: $(cat "$work/full.json")"
cmp "$good" "$work/cp/checkpoint" || fail "the last checkpoint was lost"
[ "$(ls "$work/cp")" = checkpoint ] || fail "left beside the checkpoint: $(ls "$work/cp")"
