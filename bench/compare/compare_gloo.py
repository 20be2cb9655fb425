# SPDX-License-Identifier: Apache-2.0
"""Gloo's all-reduce through torch.distributed, timed as wring-bench times: a barrier, one call, the
median over the iterations, of the slowest rank. Usage: compare_gloo.py ITERATIONS NBYTES... with RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; prints one JSON object a size."""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist


def slowest_median(data, iterations):
    samples = []
    for i in range(-1, iterations):
        work = data.clone()  # all_reduce works in place
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(work)
        if i >= 0:
            samples.append(time.perf_counter() - start)
    slowest = torch.tensor([statistics.median(samples)], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


torch.set_num_threads(1)
dist.init_process_group("gloo")
for nbytes in map(int, sys.argv[2:]):
    data = (torch.arange(nbytes // 4) + dist.get_rank()).remainder(1000).float()
    seconds = slowest_median(data, int(sys.argv[1]))
    if dist.get_rank() == 0:
        print(json.dumps({"size": nbytes, "time_us": round(1e6 * seconds, 3)}), flush=True)
