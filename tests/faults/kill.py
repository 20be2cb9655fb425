# SPDX-License-Identifier: Apache-2.0
"""Kills ranks of jobs and looks at those that remain.

    kill.py [--tries N] [--seed S] [--only TEXT] [--limit SECONDS] [--verbose]

A try starts 2 to 4 ranks of fault_rank, hurts one or two of them (SIGKILL or SIGSTOP; a time after all
have joined, or when they reach a named point of the library; reaped at once or left as zombies), and
demands of every survivor: an error that names a victim, within LIMIT seconds of the kill (SIGSTOP:
between T and 2 T, T the heartbeat's time-out); every call that succeeded right, ten more calls refused;
an end. At point `destroy` a survivor may also have finished well. In tries named `recover` survivors
shrink the communicator, and all of them must have done checked calls RECOVER_S after the kill; in those
named `again` a second rank dies once a survivor has noticed the first.

Tries are the whole matrix in an order drawn from SEED, over and over, until there were N of them.
Prints one line per failed try with how to repeat it, then how long detection took. Status 0 only if
nothing hung, was wrong, or went unnamed."""
import argparse
import collections
import itertools
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import time

RANK = os.path.join(os.environ["WRING_BIN"], "fault_rank")
HANG_S = 40
STOP_T_S = 3.0  # heartbeat time-out
RECOVER_S = 5.0
JOIN_S = 5.0    # a rank that died before it said who it is can only be missed
SIZES = {"1": (1, "int8"), "4K": (1 << 10, "float32"), "1M": (1 << 18, "float32"),
         "64M": (1 << 24, "float32")}
CODECS = ["none", "fp16", "int8", "topk:0.01"]
POINTS = ["join", "encode", "scatter", "gather", "decode", "end", "destroy"]

Try = collections.namedtuple("Try", "how world size codec reap seed")


def matrix():
    """Every kind of try once; HOW is `point:NAME`, or WORD:MS with the time after joining."""
    hows = [f"delay:{ms}" for ms in (0, 5, 50)]
    for how, world, size, codec in itertools.product(hows, (2, 3, 4), SIZES, CODECS):
        yield how, world, size, codec
    for point, world, codec in itertools.product(POINTS, (2, 3, 4), CODECS):
        yield f"point:{point}", world, "1M", codec
    for world, size in itertools.product((3, 4), ("4K", "1M")):
        yield "two:5", world, size, "int8"
        yield "stop:5", world, size, "int8"
        yield "recover:5", world, size, "int8"
        yield "again:5", world, size, "int8"


def drawn(seed, only):
    source = random.Random(seed)
    kinds = [kind for kind in matrix() if only in " ".join(map(str, kind))]
    if not kinds:
        sys.exit(f"kill.py: no kind of try holds '{only}'")
    while True:
        source.shuffle(kinds)
        for kind in kinds:
            yield Try(*kind, source.random() < 0.5, source.getrandbits(32))


class Rank:
    """A process, and the lines it has written."""

    def __init__(self, number, job, environment, listener):
        self.number, self.lines, self.rest = number, [], b""
        count, dtype = SIZES[job.size]
        # One element cannot be selected of or quantised as bytes: codecs want floats.
        dtype = "float32" if job.codec != "none" else dtype
        calls = "8" if job.how == "point:destroy" else "0"
        recover = ["recover"] if job.how in ("recover:5", "again:5") else []
        self.process = subprocess.Popen([RANK, str(count), dtype, job.codec, calls, *recover],
                                        stdout=subprocess.PIPE, env=environment,
                                        pass_fds=[listener] if number == 0 else [])
        os.set_blocking(self.process.stdout.fileno(), False)

    def read(self):
        """False at the end of its output."""
        data = self.process.stdout.read()
        if data:
            *lines, self.rest = (self.rest + data).split(b"\n")
            self.lines += [line.decode(errors="replace") for line in lines]
        return data != b""

    def line(self, word):
        return next((line for line in self.lines if line.split(" ")[0] == word), None)


def environment_of(job, number, listener, victims):
    environment = {**os.environ, "WRING_RANK": str(number), "WRING_SIZE": str(job.world),
                   "WRING_LOG": "error", "WRING_ALGORITHM": "direct",
                   "WRING_ROOT": "127.0.0.1:%d" % listener.getsockname()[1],
                   "WRING_HEARTBEAT_TIMEOUT": str(int(STOP_T_S * 1000)),
                   "WRING_JOIN_TIMEOUT": str(int(JOIN_S * 1000))}
    if number == 0:
        environment["WRING_LISTEN_FD"] = str(listener.fileno())
    kind, value = job.how.split(":")
    if kind == "point" and number in victims:
        times = 1 + job.seed % (2 if value in ("join", "destroy") else 20)
        environment["FAULT_POINT"] = f"{value}:{1 if value == 'destroy' else times}"
    return environment


def until(ranks, enough, deadline):
    """Read from all ranks until ENOUGH() or the time is over."""
    reading = {rank.process.stdout: rank for rank in ranks}
    while not enough() and time.monotonic() < deadline:
        for stream in select.select(list(reading), [], [], 0.01)[0]:
            if not reading[stream].read():
                del reading[stream]
    return enough()


def gone(pid):
    """Has it ended, whether or not somebody has looked? Leaves it as it is."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def hurt(job, ranks, victims):
    """Do it; returns when it was done, or None if the job ended before."""
    kind, value = job.how.split(":")
    chosen = [ranks[v] for v in victims]
    if kind == "point":
        if not until(ranks, lambda: all(rank.line("killed") for rank in chosen),
                     time.monotonic() + HANG_S):
            return None
        return int(chosen[0].line("killed").split()[1]) / 1e9
    if not until(ranks, lambda: all(rank.line("joined") for rank in ranks),
                 time.monotonic() + HANG_S):
        return None
    time.sleep(int(value) / 1000)
    at = time.monotonic()
    for rank in chosen[:1] if kind == "again" else chosen:
        rank.process.send_signal(signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
    if kind == "again":
        until(ranks, lambda: any(rank.line("error") for rank in ranks), at + HANG_S)
        time.sleep(job.seed % 20 / 1000)
        at = time.monotonic()
        chosen[1].process.send_signal(signal.SIGKILL)
    return at


def names(error, victim):
    """Whether ERROR says "rank VICTIM", or has it in "missing ranks: 1, 3-7"."""
    missing = re.search(r"missing ranks: ([-0-9, ]*)", error)
    spans = re.findall(r"(\d+)(?:-(\d+))?", missing[1] if missing else "")
    return bool(re.search(rf"\brank {victim}\b", error)) or any(
        int(first) <= victim <= int(last or first) for first, last in spans)


def verdict(job, rank, victims, at, limit):
    """What is bad about a survivor, or None; and the seconds that it took to notice."""
    error, end = rank.line("error"), rank.line("done")
    if rank.line("wrong") or rank.line("unfailed"):
        return "wrong: " + str(rank.line("wrong") or rank.line("unfailed")), None
    if end and job.how == "point:destroy":
        return None, None
    if not error:
        return f"ended with status {rank.process.returncode} and no error", None
    took = int(error.split()[1]) / 1e9 - at
    if not any(names(error, victim) for victim in victims):
        return f"names none of {victims}: {error}", took
    least, most = {"stop:5": (STOP_T_S, 2 * STOP_T_S), "point:join": (-1, JOIN_S + limit)}.get(
        job.how, (-1, limit))
    if not least <= took <= most:
        return f"noticed after {took:.2f} s: {error}", took
    if job.how in ("recover:5", "again:5"):
        return recovery_fault(job, rank, victims, at), took
    if rank.process.returncode != 3:
        return f"ended with status {rank.process.returncode}", took
    return None, took


def recovery_fault(job, rank, victims, at):
    words = (rank.line("recovered") or "recovered 0 0").split()
    took = int(words[1]) / 1e9 - at
    if rank.process.returncode != 0 or int(words[2]) != job.world - len(victims):
        return f"ended with status {rank.process.returncode} and {words[2]} ranks: {rank.lines[-1]}"
    return None if took <= RECOVER_S else f"recovered after {took:.2f} s"


def attempt(job, limit):
    """One try; returns its faults and the seconds of detection."""
    victims = sorted(random.Random(job.seed).sample(range(job.world),
                                                    2 if job.how in ("two:5", "again:5") else 1))
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        ranks = [Rank(number, job, environment_of(job, number, listener, victims), listener.fileno())
                 for number in range(job.world)]
    survivors = [rank for rank in ranks if rank.number not in victims]
    try:
        at = hurt(job, ranks, victims)
        if at is None:
            return [f"rank {r.number}: {' | '.join(r.lines)}" for r in ranks] + ["not hurt"], []
        if job.reap and not job.how.startswith("stop"):
            for victim in victims:
                ranks[victim].process.wait()
        until(survivors, lambda: all(gone(rank.process.pid) for rank in survivors), at + HANG_S)
        hung = [rank for rank in survivors if not gone(rank.process.pid)]
        faults = [f"HANG of rank {rank.number}: {' | '.join(rank.lines)}" for rank in hung]
        times = []
        for rank in survivors:
            if rank in hung:
                continue
            rank.read()
            rank.process.wait()
            bad, took = verdict(job, rank, victims, at, limit)
            faults += [f"rank {rank.number} {bad}"] if bad else []
            times += [took] if took is not None else []
        return faults, times
    finally:
        for rank in ranks:
            if rank.process.returncode is None:
                rank.process.send_signal(signal.SIGKILL)
                rank.process.wait()
            rank.process.stdout.close()


def report(times):
    for kind, all_times in sorted(times.items()):
        ordered = sorted(all_times)
        if ordered:
            print(f"{kind:6} {len(ordered):5} survivors noticed after p50 {ordered[len(ordered) // 2]:.3f}"
                  f" p99 {ordered[len(ordered) * 99 // 100]:.3f} max {ordered[-1]:.3f} s")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--tries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=2.0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    times, failed = collections.defaultdict(list), 0
    for number, job in enumerate(itertools.islice(drawn(options.seed, options.only), options.tries)):
        faults, took = attempt(job, options.limit)
        times[job.how.split(":")[0]] += took
        failed += bool(faults)
        if faults or options.verbose:
            seconds = " ".join(f"{t:.3f}" for t in took)
            print(f"try {number}: {'FAILED' if faults else 'ok'} {job} {seconds}", flush=True)
        for fault in faults:
            print("    " + fault, flush=True)
    report(times)
    print(f"{options.tries} tries with seed {options.seed}, {failed} failed")
    return failed > 0


sys.exit(main())
