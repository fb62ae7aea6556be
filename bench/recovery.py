#!/usr/bin/env python3
"""How long a job stands still when a rank is killed or freezes, with a spare worker to take its place.

  bench/recovery.py [STRATEGY…] [--bin build/release/bin] [--kills N] [--freezes N] [--seed S] [-o table|json]

A small model, four ranks, idle workers beside them, on this machine. Ranks are killed at random, at random moments, one after the
other; a new job begins every thirty kills. All times are the wall clock's, taken outside the processes, and end when the event
has come through the job's feed to a watching client:

  dead → detected   from the moment at which the kernel says that the process has ended, to the job's RECOVERING
  kill → step       from the call of kill() to the first step that the new epoch has trained and committed
  phases            what the job's `epoch` event says
  frozen → detected from SIGSTOP to RECOVERING, against elastic.failure_detection

Exit code 1 when a goal is missed, a step is missing or doubled, or a committed one was lost.
"""

import argparse
import json
import os
import pathlib
import random
import select
import signal
import sys
import time

import cluster

FAILURE_DETECTION = 1.0
KILLS_A_JOB = 30
RANKS = 4
WORKERS = 7  # a killed worker comes back after a while: longer, the oftener it was killed
PHASES = ("detect", "abort", "reform", "restore", "first_step")
STRATEGIES = {
    "ddp": ["parallel.strategy=ddp"],
    "zero1": ["parallel.strategy=zero1"],
    "zero2": ["parallel.strategy=zero2"],
    "zero3": ["parallel.strategy=zero3"],
    "hybrid": ["parallel.strategy=hybrid", "parallel.shard_group=2"],
    "tensor": ["parallel.strategy=zero3", "parallel.tensor=2"],
}
# Seconds, by quantile.
GOALS = {
    "dead_to_detected": {0.99: 0.100},
    "kill_to_step": {0.5: 1.0, 0.99: 3.0},
    "frozen_to_detected": {1.0: 1.5 * FAILURE_DETECTION},
}
TITLES = {
    "dead_to_detected": "dead → detected",
    "kill_to_step": "kill → step",
    "frozen_to_detected": "frozen → detected",
    **{phase: f"  {phase}" for phase in PHASES},
}


def is_state(name):
    return lambda event: event["event"] == "state" and event["state"] == name


class Victims:
    """A running job with spares, whose ranks are struck one after the other."""

    def __init__(self, case, supervisor, harness, draw):
        self.case, self.supervisor, self.harness, self.draw = case, supervisor, harness, draw
        self.job = None

    def begin(self, strategy):
        case = self.case
        case.wait_for_workers(RANKS + 1)
        path = case.job(f"{strategy}-{time.monotonic_ns()}", steps=1000000, workers=RANKS)
        pairs = [*STRATEGIES[strategy], f"elastic.failure_detection={FAILURE_DETECTION}s", "elastic.min_workers=1"]
        self.job = case.submit(path, *(word for pair in pairs for word in ("--set", pair)))
        self.feed = case.follow(self.job)
        self.place = 0
        self.await_step(0)

    def await_step(self, after):
        moment, event, self.place = self.feed.await_event(
            lambda event: event["event"] == "step" and event["step"] > after, "a step", self.place)
        return moment, event

    def rank(self):
        """Process id of a rank drawn at random; at a random moment when a spare is there."""
        self.case.wait_for_workers(1)
        processes = self.harness.devices(self.supervisor)
        drawn = self.draw.randrange(RANKS)
        [worker] = [each["worker"] for each in self.case.get(self.job)["ranks"] if each["rank"] == drawn]
        time.sleep(self.draw.uniform(0, 0.2))
        return processes[worker.split("/")[1]]

    def kill(self):
        """One kill: seconds by what was measured."""
        pid = self.rank()
        process = os.pidfd_open(pid)
        place = self.feed.place()
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        select.select([process], [], [])
        dead = time.monotonic()
        os.close(process)
        detected, _, self.place = self.feed.await_event(is_state("RECOVERING"), "the kill is known", place)
        _, epoch, self.place = self.feed.await_event(lambda event: event["event"] == "epoch", "an epoch", self.place)
        stepped, _ = self.await_step(epoch["resumed_step"])
        return {"dead_to_detected": detected - dead, "kill_to_step": stepped - killed,
                **{phase: epoch["recovery_seconds"].get(phase, 0) for phase in PHASES}}

    def freeze(self):
        pid = self.rank()
        place = self.feed.place()
        frozen = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        try:
            detected, _, self.place = self.feed.await_event(is_state("RECOVERING"), "the freeze is known", place)
            _, epoch, self.place = self.feed.await_event(lambda event: event["event"] == "epoch", "an epoch", self.place)
            self.await_step(epoch["resumed_step"])
        finally:
            os.kill(pid, signal.SIGCONT)
        return {"frozen_to_detected": detected - frozen}

    def end(self):
        """Ends the job; what its feed shows that must not be."""
        self.case.sherd("cancel", self.job, check=0)
        events = self.feed.finish()
        wrong = [f"{event['event']}: {event['reason']}" for event in events if event["event"] == "rollback"]
        steps = [event["step"] for event in events if event["event"] == "step"]
        if steps != list(range(1, len(steps) + 1)):
            wrong.append("steps are missing, doubled or out of order")
        return wrong


def measure(harness, strategies, options):
    measured, wrong = [], []
    draw = random.Random(options.seed)
    with cluster.cluster(harness) as case:
        case.start_coordinator("--failure-detection", f"{FAILURE_DETECTION}s")
        supervisor = case.start_workers(WORKERS)
        case.wait_for_workers(WORKERS)
        for at, strategy in enumerate(strategies):
            strikes = []
            for word, count in (("kill", options.kills), ("freeze", options.freezes)):
                share = count // len(strategies) + (at < count % len(strategies))
                strikes += [word] * share
            victims = Victims(case, supervisor, harness, draw)
            for number, word in enumerate(strikes):
                if number % KILLS_A_JOB == 0:
                    if number > 0:
                        wrong += victims.end()
                    victims.begin(strategy)
                measured.append({"strategy": strategy, **getattr(victims, word)()})
                if options.output == "table":
                    print(f"\r{len(measured)} of {options.kills + options.freezes}", end="", file=sys.stderr, flush=True)
            if strikes:
                wrong += victims.end()
    if options.output == "table":
        print(file=sys.stderr)
    return measured, wrong


def summary(harness, measured):
    rows = []
    for what in TITLES:
        seconds = [each[what] for each in measured if what in each]
        if not seconds:
            continue
        goals = [{"quantile": share, "seconds": goal, "measured": harness.quantile(seconds, share)}
                 for share, goal in GOALS.get(what, {}).items()]
        rows.append({"what": what, "count": len(seconds), "p50": harness.quantile(seconds, 0.5),
                     "p99": harness.quantile(seconds, 0.99), "max": max(seconds), "goals": goals})
    return rows


def show(rows, wrong):
    print(f"{'seconds':<20} {'count':>6} {'p50':>8} {'p99':>8} {'max':>8}")
    for row in rows:
        print(f"{TITLES[row['what']]:<20} {row['count']:>6} {row['p50']:>8.3f} {row['p99']:>8.3f} {row['max']:>8.3f}")
    for row in rows:
        for goal in row["goals"]:
            share = "all" if goal["quantile"] == 1 else f"p{goal['quantile'] * 100:.0f}"
            by = goal["measured"] - goal["seconds"]
            verdict = f"met, {-by:.3f} s to spare" if by <= 0 else f"MISSED by {by:.3f} s"
            print(f"{TITLES[row['what']]}, {share} at most {goal['seconds']:.3f} s: {verdict}")
    for sentence in wrong:
        print(f"WRONG: {sentence}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strategies", metavar="STRATEGY", nargs="*",
                        help=f"of {', '.join(STRATEGIES)} (default: zero3); kills are shared out among them")
    parser.add_argument("--bin", type=pathlib.Path, default=cluster.BIN)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--freezes", type=int, default=20)
    parser.add_argument("--seed", default="1", help="of victims and moments")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    strategies = options.strategies or ["zero3"]
    if unknown := set(strategies) - set(STRATEGIES):
        parser.error(f"no such strategy: {', '.join(sorted(unknown))}")
    harness = cluster.load_harness(options.bin)
    measured, wrong = measure(harness, strategies, options)
    rows = summary(harness, measured)
    if options.output == "json":
        print(json.dumps({"failure_detection": FAILURE_DETECTION, "rows": rows, "wrong": wrong, "all": measured}))
    else:
        show(rows, wrong)
    missed = any(goal["measured"] > goal["seconds"] for row in rows for goal in row["goals"])
    return 1 if missed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
