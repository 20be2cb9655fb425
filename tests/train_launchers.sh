# SPDX-License-Identifier: Apache-2.0
# Who starts the ranks makes no difference to what they compute.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

run spawn --spawn 2 --steps 20 --codec ef+int8
check 's["spawn"]["replicas_equal"] is True' spawn

# torchrun's variables, set by hand.
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000)) WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
RANK=1 LOCAL_RANK=1 "$train" --model mlp --steps 20 --codec ef+int8 >/dev/null &
RANK=0 LOCAL_RANK=0 run torchrun --steps 20 --codec ef+int8
wait $! || fail "rank 1 ended with status $?"
check 's["torchrun"]["digest"] == s["spawn"]["digest"]' torchrun spawn
unset MASTER_ADDR MASTER_PORT WORLD_SIZE LOCAL_WORLD_SIZE

if ! command -v mpirun >/dev/null; then
    echo "skipped in part: no mpirun; apt install openmpi-bin"
    exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun -np 2 --oversubscribe "$train" --model mlp --json --log "$work/mpi.jsonl" --steps 20 \
    --codec ef+int8 >"$work/mpi.json" || fail "mpirun ended with status $?"
check 's["mpi"]["digest"] == s["spawn"]["digest"]' mpi spawn

# The same server asked through PMIx, as where no variables of Open MPI's are.
mpirun -np 2 --oversubscribe env -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE "$train" --model mlp --json \
    --log "$work/pmix.jsonl" --steps 20 --codec ef+int8 >"$work/pmix.json" || fail "PMIx ended with status $?"
check 's["pmix"]["digest"] == s["spawn"]["digest"] and s["pmix"]["ranks"] == 2' pmix spawn
