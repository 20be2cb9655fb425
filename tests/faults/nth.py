# SPDX-License-Identifier: Apache-2.0
"""Makes the n-th allocation, socket call or file call of one rank fail, for every n until a whole job
goes through without meeting the fault: join, tensor, three allreduces, destroy, by two ranks.

    nth.py [--every K] [--offset K] [--only KIND] [--short N]

demands of both ranks, each time: an end within HANG_S, either well, with right data, or with an error
that has words; no crash; and of the hurt one, that nothing stays allocated. --every K tries only each
K-th n. --short N instead: N jobs whose sockets move 1 to 7 bytes a call, with signals, and with sleeps
inside the library; all must end well and right."""
import argparse
import concurrent.futures
import os
import random
import re
import socket
import subprocess
import sys

RANK = os.path.join(os.environ["WRING_BIN"], "fault_rank")
SHIM = os.path.join(os.environ["WRING_LIB"], "libfault_shim.so")
HANG_S = 60
N_MAX = 5000


def run_job(nranks, arguments, environment_of):
    """[(status or None if it hung, stdout, stderr)] by rank."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        ranks = []
        for number in range(nranks):
            environment = {**os.environ, "WRING_RANK": str(number), "WRING_SIZE": str(nranks),
                           "WRING_ROOT": "127.0.0.1:%d" % listener.getsockname()[1],
                           "WRING_LOG": "error", **environment_of(number)}
            if number == 0:
                environment["WRING_LISTEN_FD"] = str(listener.fileno())
            ranks.append(subprocess.Popen([RANK, *arguments], env=environment, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          pass_fds=[listener.fileno()] if number == 0 else []))
    results = []
    for rank in ranks:
        try:
            out, err = rank.communicate(timeout=HANG_S)
            results.append((rank.returncode, out, err))
        except subprocess.TimeoutExpired:
            rank.kill()
            results.append((None, *rank.communicate()))
    return results


def fault_of(result):
    status, out, err = result
    if status is None:
        return "HANG"
    if status == 0 and "done" in out:
        return None
    if status == 3 and re.search(r"^error \d+ WRING_E_\w+ -?\d+ \w", out, re.M):
        return None
    return f"status {status}"


def try_nth(kind, victim, n):
    """Was the fault met, and what went wrong?"""
    def environment_of(number):
        hurt = {"FAULT_NTH": f"{kind}:{n}", "LD_PRELOAD": SHIM} if number == victim else {}
        return {"WRING_JOIN_TIMEOUT": "3000", "WRING_HEARTBEAT_TIMEOUT": "5000", **hurt}
    results = run_job(2, ["3000", "float32", "ef+int8", "3"], environment_of)
    fired = re.search(r"shim: fired in (\w+)", results[victim][2])
    leaked = re.search(r"shim: (\d+) leaked", results[victim][2])
    faults = [f"rank {number}: {fault}" for number, fault in enumerate(map(fault_of, results)) if fault]
    if leaked and leaked.group(1) != "0":
        faults.append(f"rank {victim} leaks {leaked.group(1)}")
    met = fired or "not reached" not in results[victim][2]
    if faults:
        print(f"FAILED {kind}:{n} in {fired and fired.group(1)} of rank {victim}: {', '.join(faults)}")
        for number, (_, out, err) in enumerate(results):
            print(f"    rank {number}: " + (out + err).strip().replace("\n", "\n            "), flush=True)
    return met, faults


def every_n(kind, victim, offset, step):
    """Until four in a row were not met: which call is the n-th depends on timing a little."""
    failed, tried = 0, 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for start in range(1 + offset, N_MAX, 4 * step):
            results = list(pool.map(lambda n: try_nth(kind, victim, n), range(start, start + 4 * step, step)))
            tried += len(results)
            failed += sum(bool(faults) for _, faults in results)
            if not any(met for met, _ in results):
                break
    print(f"{kind} of rank {victim}: {tried} tries, {failed} failed", flush=True)
    return failed


def short(tries):
    failed = 0
    for seed in range(tries):
        source = random.Random(seed)
        nranks, tls = source.choice([2, 3]), source.choice(["tcp,self", "posix,sysv,self"])
        codec = source.choice(["none", "fp16", "int8", "topk:0.01"])
        results = run_job(nranks, [source.choice(["1", "3000", "20000"]), "float32", codec, "5"],
                          lambda number: {"FAULT_SHORT": str(seed * 10 + number), "LD_PRELOAD": SHIM,
                                          "FAULT_SLEEP": f"5000:{seed * 10 + number}", "UCX_TLS": tls})
        bad = [result for result in results if result[0] != 0]
        failed += bool(bad)
        for status, out, err in bad:
            print(f"FAILED short, seed {seed}, {nranks} ranks, {tls}, {codec}: {status} {out} {err}",
                  flush=True)
    print(f"short input and output, signals, sleeps: {tries} jobs, {failed} failed")
    return failed


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--short", type=int, default=0)
    options = parser.parse_args()
    if options.short:
        return short(options.short) > 0
    return sum(every_n(kind, victim, options.offset, options.every)
               for kind in ("alloc", "socket", "file") if options.only in kind
               for victim in (0, 1)) > 0


sys.exit(main())
