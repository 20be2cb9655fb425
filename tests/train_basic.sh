# SPDX-License-Identifier: Apache-2.0
# Two processes train: the summary has its fields, the loss falls, replicas are equal, and codecs shrink
# what travels by what their format promises.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

run none --spawn 2 --steps 30 --codec none
check 'list(s["none"]) == "ranks model device parameters codec algorithm steps train_loss test_accuracy seconds \
seconds_compute seconds_exposed_comm dense_bytes_per_step wire_bytes_per_step ratio digest \
replicas_equal loss_scale steps_skipped".split()' none
check '(s["none"]["ranks"], s["none"]["model"], s["none"]["device"], s["none"]["steps"]) == (2, "mlp", "cpu", 30)' none
check 's["none"]["parameters"] == 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10' none
check 's["none"]["replicas_equal"] is True and len(s["none"]["digest"]) == 16' none
check 'len(loss["none"]) == 30 and sum(loss["none"][-5:]) < 0.7 * sum(loss["none"][:5])' none
check 's["none"]["test_accuracy"] > 0.5' none
# Each of two ranks sends half of its gradient to be summed and half of the sum: once the parameters.
check '4 * s["none"]["parameters"] < s["none"]["wire_bytes_per_step"] < 4.1 * s["none"]["parameters"]' none
check 's["none"]["ratio"] == 1' none

while read -r codec ratio; do
    run coded --spawn 2 --steps 30 --codec "$codec"
    check 's["coded"]["codec"] == "'"$codec"'" and s["coded"]["replicas_equal"] is True' coded
    check 's["coded"]["ratio"] > '"$ratio" coded
    check 'sum(loss["coded"][-5:]) < 0.8 * sum(loss["coded"][:5])' coded
    check 's["coded"]["digest"] != s["none"]["digest"]' coded none
done <<'END'
bf16 1.98
int8 3.83
ef+int4 7.2
ef+topk:0.01+int8 60
END

run again --spawn 2 --steps 30 --codec none
check 's["again"]["digest"] == s["none"]["digest"]' again none
for optimizer in adam rmsprop; do
    run other --spawn 2 --steps 30 --optimizer $optimizer --schedule constant --warmup 0
    check 'sum(loss["other"][-5:]) < 0.7 * sum(loss["other"][:5])' other
done

# A norm that nothing reaches changes nothing; one that all exceed makes steps of that length.
run clipped --spawn 2 --steps 30 --clip 1000
check 's["clipped"]["digest"] == s["none"]["digest"]' clipped none
run clipped --spawn 2 --steps 30 --clip 0.5
check 's["clipped"]["digest"] != s["none"]["digest"] and s["clipped"]["test_accuracy"] > 0.5' clipped none
