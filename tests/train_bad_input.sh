# SPDX-License-Identifier: Apache-2.0
# What the user gets wrong is refused by name, with the remedy, in one line, and with a status that is
# not 0.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

# refused WORD ARGUMENTS...: wring-train fails, says WORD, and does not take long.
refused() {
    local word=$1
    shift
    local status=0
    timeout 30 "$train" --model mlp --steps 2 "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ $status -ne 0 ] || fail "accepted: $*"
    [ $status -ne 124 ] || fail "hangs: $*"
    grep -qe "$word" "$work/err" || fail "$* should name '$word' but says: $(cat "$work/err")"
    [ ! -s "$work/out" ] || fail "$* prints to standard output: $(cat "$work/out")"
}

refused '/nonexistent/cp: No such file' --checkpoint /nonexistent/cp --steps 1
refused 'mlp, cnn, gpt' --model resnet
refused 'int9' --codec int9
refused 'int9' --codec int9 --spawn 2
refused 'topk' --codec topk:2
refused 'direct' --algorithm teleport
refused 'sgd, adam, rmsprop' --optimizer newton
refused 'constant, step, cosine' --schedule wild
refused '\--lr' --lr fast
refused '\--lr' --lr -1
refused '\--lr' --lr nan
refused '\--batch' --batch 0
refused '\--batch' --batch 12x
refused '60000' --batch 70000
refused '\--clip' --clip 0
refused 'float32, bfloat16, float16' --grad-dtype float8
refused '\--loss-scale' --loss-scale much
refused '\--scale-window' --scale-window 0
refused 'diverged' --poison 2 --spawn 2
refused '\--checkpoint DIR' --resume
refused '\--checkpoint DIR' --checkpoint-every 5
refused 'exit, shrink' --on-failure pray
refused 'exclude' --epochs 1
refused 'surplus' surplus
refused '\--log' --log /nonexistent/log.jsonl
refused '\--data' --data /nonexistent
refused 'diverged' --lr 1000 --momentum 0.99 --warmup 0 --steps 50 --schedule constant

refused 'No such file' --model gpt --data /nonexistent
refused 'directory' --model gpt --data /usr/share
printf '%0649d' 0 >"$work/short"
refused '649 bytes are too few; 650' --model gpt --data "$work/short"
PATH=$work "$train" --model gpt --steps 1 2>"$work/err" && fail "trained without a text"
grep -q bible-kjv "$work/err" || fail "without a text: $(cat "$work/err")"

# Damaged data: each breaks one thing in an otherwise good folder.
good=/usr/share/datasets/fashion-mnist
damage() {
    rm -rf "$work/data"
    mkdir "$work/data"
    ln -s "$good"/*.gz "$work/data"
    rm "$work/data/$1"
    cat >"$work/data/$1"
}
images=train-images-idx3-ubyte.gz
labels=train-labels-idx1-ubyte.gz
damage $images </dev/null
refused $images --data "$work/data"
yes garbage | head -c 100000 | damage $images
refused $images --data "$work/data"
head -c 100000 $good/$images | damage $images
refused "$images.*damaged" --data "$work/data"
damage $images <$good/$labels
refused "$images.*not an IDX" --data "$work/data"
printf '\0\0\010\003\377\377\377\377\0\0\0\034\0\0\0\034' | damage $images
refused "$images.*4294967295" --data "$work/data"
printf '\0\0\010\003\0\0\0\001\0\0\0\040\0\0\0\040' | damage $images
refused "$images.*32 x 32" --data "$work/data"
damage $labels <$good/t10k-labels-idx1-ubyte.gz
refused "$labels.*10000 labels for 60000" --data "$work/data"
zcat $good/$labels | tr '\011' '\012' | damage $labels
refused "$labels.*label 10" --data "$work/data"
(zcat $good/$labels && echo) | damage $labels
refused "$labels.*longer" --data "$work/data"

"$train" --help >"$work/help" || fail "--help ended with status $?"
for option in model data codec algorithm optimizer lr momentum weight-decay batch accumulate epochs steps \
    warmup schedule seed checkpoint checkpoint-every resume on-failure clip grad-dtype loss-scale scale-window log json spawn eval-every; do
    grep -q -- "--$option" "$work/help" || fail "--help does not tell of --$option"
done
