# SPDX-License-Identifier: Apache-2.0
# Two hosts, each a network namespace of its own, end with the digest of two local processes: over a
# shaped link, through UCX's TCP, with torchrun's variables set by hand.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null; then
    echo "skipped: network namespaces need root and iproute2"
    exit 77
fi
for codec in none ef+topk:0.01+int8; do
    run spawn --spawn 2 --steps 20 --codec $codec
    "$WRING_SOURCE/scripts/netns.sh" -n 2 -r 1gbit -- "$train" --model mlp --steps 20 --codec $codec --json \
        --log "$work/hosts.jsonl" \
        >"$work/hosts.json" || fail "the hosts ended with status $?"
    check 's["hosts"]["digest"] == s["spawn"]["digest"] and s["hosts"]["replicas_equal"]' hosts spawn
done
