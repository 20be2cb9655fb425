#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# COMMAND under mpirun, one rank in each of the two hosts of netns.sh, which runs this on both. The
# second daemon is started through an agent in place of ssh; each side gets a host name of its own,
# because Open MPI takes equal names for one host.
# usage, as the command of netns.sh: compare_mpi.sh FOLDER COMMAND...   (FOLDER: scratch, shared)
set -euo pipefail
folder=$1
shift

if [ "$RANK" = 1 ]; then # the daemon comes through the agent: only stay until it is over
    until [ -e "$folder/over" ]; do sleep 0.1; done
    exit 0
fi
trap 'touch "$folder/over"' EXIT

cat >"$folder/agent" <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
shift
exec ip netns exec $TORCHELASTIC_RUN_ID-1 unshare --uts bash -c "hostname node1; \$*"
END
chmod +x "$folder/agent"
network=10.77.0.0/24
unshare --uts bash -c "hostname node0; mpirun --allow-run-as-root -np 2 \
    --host 10.77.0.1:1,10.77.0.2:1 --mca plm_rsh_agent $folder/agent --mca pml ob1 \
    --mca btl tcp,self --mca btl_tcp_if_include $network --mca oob_tcp_if_include $network $*"
