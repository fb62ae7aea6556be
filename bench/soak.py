#!/usr/bin/env python3
"""A cluster under one fault after the other, for minutes: what it costs, that no curve shows it, and that nothing is left over.

  bench/soak.py [--minutes M] [--every SECONDS] [--seed S] [--logs DIR] [--bin build/release/bin] [-o table|json]

Four nodes of two workers on this machine, one job of four ranks after the other, a fault every fifteen seconds: all kinds of
bench/soak_faults.py in turns, in a random order. Checkpoints lie on a small disk in memory (a tmpfs, which needs root).

Every job must succeed, with the curve of an undisturbed job bit for bit, no step missing or doubled; committed steps may be lost where
more dies at once than the job has copies for, and nowhere else. In the end no process, shared memory or memory segment may be left, and
coordinator, supervisors and workers may not have grown. Exit code 1 otherwise.

Goodput is useful step time (of every committed step, once) over wall time. A fault's cost is the wall time until the next one, less
the useful step time in it and less the part that an undisturbed job loses as well.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import cluster
import soak_faults

STEPS = 20000
RANKS = 4
NODES, WORKERS_A_NODE = 4, 2
FAILURE_DETECTION = 3.0
DISK_BYTES = 16 << 20
# What may be there at the end beyond what was there after the first job.
SLACK = {
    # Coordinator: the events of all jobs stay readable. Per event, beside 16 MiB of caches.
    "coordinator_bytes": 16 << 20, "coordinator_bytes_an_event": 2048,
    # The first death that a supervisor reports brings up its connection.
    "supervisor_kib": 8192,
    "worker_kib": 32768,
    "descriptors": 4,
}


def curve(events):
    """The steps in their order. What a `rollback` event has taken back is told again; the same numbers must come."""
    keys = ("step", "loss", "grad_norm", "lr", "tokens")
    told, at = [], 0
    for event in events:
        if event["event"] == "rollback":
            at = event["to_step"]
        if event["event"] != "step":
            continue
        step = tuple(event[key] for key in keys)
        if step[0] != at + 1:
            raise ValueError(f"step {step[0]} comes after step {at}")
        if at < len(told) and told[at] != step:
            raise ValueError(f"step {step} comes again and was {told[at]}")
        told[at:at + 1] = [step]
        at += 1
    return told


class Soak:
    def __init__(self, case, harness, options):
        self.case, self.harness = case, harness
        self.failure_detection = FAILURE_DETECTION
        self.draw = random.Random(options.seed)
        self.disk = case.scratch / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "sherd-soak", self.disk], check=True)
        # Not before the processes that write there have ended.
        case.stack.callback(subprocess.run, ["umount", self.disk], check=True)
        case.stack.callback(case.assert_no_processes)
        self.wrong = []
        self.jobs = 0
        self.job_events = 0
        self.useful = []  # (moment, seconds) of every committed step
        self.coordinator = case.start_coordinator("--failure-detection", f"{FAILURE_DETECTION}s")
        self.nodes_started = 0
        self.nodes = [self.start_node() for _ in range(NODES)]
        case.wait_for_workers(NODES * WORKERS_A_NODE)

    # ---- What faults ask for.

    def wait_for(self, condition, what, limit=60):
        return self.harness.wait_for(condition, what, limit)

    def devices(self, node):
        return self.harness.devices(node)

    def ranks(self):
        return self.case.get(self.job)["ranks"]

    def world(self):
        return len(self.ranks())

    def worker_of(self, rank):
        return next(each["worker"] for each in self.ranks() if each["rank"] == rank)

    def process_of_worker(self, worker):
        name, device = worker.split("/")
        [node] = [node for node in self.nodes if node.name == name]
        return self.wait_for(lambda: self.devices(node).get(device), f"a process of {worker}")

    def process_of(self, rank):
        return self.process_of_worker(self.worker_of(rank))

    def idle_processes(self):
        return [self.process_of_worker(worker["id"]) for worker in self.case.workers() if worker["status"] == "idle"]

    def place_of(self, pid):
        """A worker's supervisor and its device there."""
        return next((node, device) for node in self.nodes
                    for device, process in self.devices(node).items() if process == pid)

    def start_node(self):
        self.nodes_started += 1
        name = f"node{self.nodes_started}"
        node = self.case.start_workers(WORKERS_A_NODE, "--name", name)
        node.name = name
        return node

    def replace_nodes(self, nodes, sig):
        workers = [pid for node in nodes for pid in self.harness.children_of(node.pid)]
        for node in nodes:
            node.send_signal(sig)
        for node in nodes:
            node.wait(60)
        self.wait_for(lambda: not any(map(self.harness.alive, workers)), "workers ended with their supervisors")
        self.nodes = [self.start_node() if node in nodes else node for node in self.nodes]

    def restart_coordinator(self, away):
        self.case.stop(self.coordinator, signal.SIGKILL)
        time.sleep(away)
        self.coordinator = self.case.start_coordinator("--failure-detection", f"{FAILURE_DETECTION}s",
                                                       listen=self.case.address)

    # ---- Jobs.

    def begin_job(self):
        self.jobs += 1
        self.output = self.disk / f"job-{self.jobs}"
        path = self.case.job(f"soak-{self.jobs}", steps=STEPS, workers=RANKS, out=self.output)
        pairs = ("elastic.min_workers=1", f"elastic.failure_detection={FAILURE_DETECTION}s", "checkpoint.every=500")
        self.began = time.monotonic()
        self.job = self.case.submit(path, *(word for pair in pairs for word in ("--set", pair)))
        self.feed, self.watcher = self.case.follow(self.job), self.case.follow(self.job)
        self.feed.await_event(lambda event: event["event"] in ("step", "done"), "a step")

    def end_job(self, cancel=False):
        """Waits for the job's end, or brings it about, and examines it."""
        if cancel:
            self.case.sherd("cancel", self.job, check=0)
        events = self.feed.finish(limit=300)
        self.job_events += len(events)
        useful = {}
        for moment, event in self.feed.seen:
            if event["event"] == "step":
                useful.setdefault(event["step"], (moment, event["step_ms"] / 1e3))
        self.useful += useful.values()
        done = events[-1]
        if done["state"] not in (("CANCELLED", "SUCCEEDED") if cancel else ("SUCCEEDED",)):
            self.wrong.append(f"{self.job} ended as {done['state']}: {done['reason']}")
        try:
            found = curve(events)
        except ValueError as error:
            self.wrong.append(f"{self.job}: {error}")
            found = []
        if self.expected is not None and found != self.expected[:len(found)]:
            first = next(at for at, step in enumerate(found) if step != self.expected[at])
            self.wrong.append(f"{self.job}: step {found[first]} where an undisturbed job has {self.expected[first]}")
        if done["state"] == "SUCCEEDED" and len(found) != STEPS:
            self.wrong.append(f"{self.job}: {len(found)} steps of {STEPS}")
        if self.watcher.finish() != events:
            self.wrong.append(f"{self.job}: two clients that watch it have seen different events")
        if left := [path.name for path in self.output.glob(".*.removing")]:
            self.wrong.append(f"{self.job}: half-removed checkpoints are left: {left}")
        shutil.rmtree(self.output, ignore_errors=True)
        return events

    def keep_busy(self, until):
        """One job after the other until then, and long enough a rest of one that something can befall it."""
        while True:
            if self.feed.over():
                self.end_job()
                self.begin_job()
            left = until - time.monotonic()
            last = self.feed.last("step")
            if left <= 0 and last is not None and last["step"] < 0.9 * STEPS:
                return
            time.sleep(min(0.05, max(left, 0.05)))

    # ---- What may not grow.

    def measure(self):
        sizes = {"coordinator": self.harness.growth(self.coordinator.pid)}
        for node in self.nodes:
            sizes[node.name] = self.harness.growth(node.pid)
        for node in self.nodes:
            for device, pid in self.devices(node).items():
                sizes[f"{node.name}/{device}"] = {**self.harness.growth(pid),
                                                  "segments": soak_faults.descriptors(pid, "/memfd:")}
        return sizes

    def check_growth(self, before):
        """When no job runs. What was started since is compared with the largest of its kind."""
        self.case.wait_for_workers(NODES * WORKERS_A_NODE)

        def largest(name, what):
            of_kind = [size[what] for other, size in before.items()
                       if ("/" in other, other == "coordinator") == ("/" in name, name == "coordinator")]
            return max(of_kind)

        def excess():
            found = []
            for name, size in self.measure().items():
                if size.get("segments", 0) > 0:
                    found.append(f"{name} holds {size['segments']} memory segments of jobs that have ended")
                grown = size["descriptors"] - largest(name, "descriptors")
                if grown > SLACK["descriptors"]:
                    found.append(f"{name} has {grown} more descriptors than after the first job")
                grown = size["resident_kib"] - largest(name, "resident_kib")
                bound = SLACK["worker_kib" if "/" in name else "supervisor_kib"]
                if name == "coordinator":
                    bound = (SLACK["coordinator_bytes"] + SLACK["coordinator_bytes_an_event"] * self.job_events) >> 10
                if grown > bound:
                    found.append(f"{name} grew by {grown} KiB, of {bound} that are allowed")
            return found

        deadline = time.monotonic() + 20
        while (found := excess()) and time.monotonic() < deadline:
            time.sleep(0.2)
        self.wrong += found
        workers = sum(len(self.harness.children_of(node.pid)) for node in self.nodes)
        # Supervisors and their children, the coordinator, and nobody else.
        if (ours := len(self.case.ours())) != NODES + workers + 1:
            self.wrong.append(f"{ours} processes where there should be {NODES + workers + 1}")
        return self.measure()


def share_of(useful, begin, end):
    """Useful seconds of the steps that came in a span."""
    return sum(seconds for moment, seconds in useful if begin <= moment < end)


def run(harness, options):
    shared_memory = sorted(path.name for path in pathlib.Path("/dev/shm").iterdir() if "sherd" in path.name)
    result = {}
    with cluster.cluster(harness) as case:
        soak = Soak(case, harness, options)
        soak.expected = None
        soak.begin_job()
        soak.expected = curve(soak.end_job())
        if soak.wrong:
            raise AssertionError(f"the undisturbed job: {soak.wrong}")
        quiet_wall = time.monotonic() - soak.began
        quiet = sum(seconds for _, seconds in soak.useful) / quiet_wall
        soak.useful, soak.job_events = [], 0
        before = soak.measure()
        faults = []  # (moment, kind, end of what was done)
        started = time.monotonic()
        deck = []
        soak.begin_job()
        while time.monotonic() - started < options.minutes * 60:
            soak.keep_busy(until=(faults[-1][0] if faults else started) + options.every)
            if not deck:
                deck = sorted(soak_faults.KINDS)
                soak.draw.shuffle(deck)
            name = deck.pop()
            print(f"{time.monotonic() - started:6.1f} s  {soak.job}: {name}", file=sys.stderr, flush=True)
            rollbacks, feed = soak.feed.count("rollback"), soak.feed
            struck = time.monotonic()
            soak_faults.KINDS[name](soak)
            faults.append((struck, name, feed, rollbacks))
        soak.keep_busy(until=faults[-1][0] + options.every)
        ended = time.monotonic()
        soak.end_job(cancel=True)
        wall = ended - started
        result["rows"] = costs(soak, faults, ended, quiet)
        after = soak.check_growth(before)
        result.update({
            "seconds": wall, "jobs": soak.jobs - 1, "faults": len(faults), "goodput": share_of(soak.useful, started, ended) / wall,
            "goodput_undisturbed": quiet, "steps": len(soak.useful), "sizes": {"before": before, "after": after},
            "wrong": soak.wrong,
        })
        logs = [path for path in case.scratch.glob("*.log")]
        for path in logs:
            if options.logs is not None:
                options.logs.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, options.logs)
            text = path.read_text(errors="replace")
            # Nobody but bench/soak_faults.py ends a process, and that by SIGKILL.
            for line in re.findall(r"^.*(?:check failed|terminate called|: killed by signal (?!9 )|: exit code [1-9]).*$", text, re.MULTILINE):
                soak.wrong.append(f"{path.name}: {line}")
    left = sorted(path.name for path in pathlib.Path("/dev/shm").iterdir() if "sherd" in path.name)
    if left != shared_memory:
        soak.wrong.append(f"/dev/shm holds {left}")
    return result


def costs(soak, faults, ended, quiet):
    """By kind: how often, and what it cost. Rollbacks that no fault explains are wrong."""
    rows = collections.defaultdict(lambda: {"count": 0, "seconds": [], "rolled_back_steps": 0})
    for at, (struck, name, feed, rollbacks) in enumerate(faults):
        until = faults[at + 1][0] if at + 1 < len(faults) else ended
        row = rows[name]
        row["count"] += 1
        row["seconds"].append(max(0.0, (until - struck) * quiet - share_of(soak.useful, struck, until)))
        seen = [event for event in feed.events() if event["event"] == "rollback"]
        last = faults[at + 1][3] if at + 1 < len(faults) and faults[at + 1][2] is feed else len(seen)
        for rollback in seen[rollbacks:last]:
            row["rolled_back_steps"] += rollback["from_step"] - rollback["to_step"]
            if name not in soak_faults.MAY_ROLL_BACK:
                soak.wrong.append(f"{name}: lost committed steps: {rollback['reason']}")
    return {name: {"count": row["count"], "mean_seconds": sum(row["seconds"]) / row["count"], "max_seconds": max(row["seconds"]),
                   "rolled_back_steps": row["rolled_back_steps"]} for name, row in sorted(rows.items())}


def show(result):
    print(f"{'fault':<72} {'count':>5} {'mean s':>7} {'max s':>7} {'steps back':>10}")
    for name, row in result["rows"].items():
        print(f"{name:<72} {row['count']:>5} {row['mean_seconds']:>7.2f} {row['max_seconds']:>7.2f} "
              f"{row['rolled_back_steps']:>10}")
    print(f"{result['faults']} faults in {result['seconds']:.0f} s, {result['jobs']} jobs, {result['steps']} steps committed; goodput "
          f"{result['goodput']:.3f}, of an undisturbed job {result['goodput_undisturbed']:.3f}")
    for when, sizes in result["sizes"].items():
        size = sizes["coordinator"]
        print(f"{when}: coordinator {size['resident_kib']} KiB, {size['descriptors']} descriptors; largest supervisor and worker "
              + ", ".join(f"{max(size['resident_kib'] for name, size in sizes.items() if name != 'coordinator' and ('/' in name) == w)} KiB"
                          for w in (False, True)))
    for sentence in result["wrong"]:
        print(f"WRONG: {sentence}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=cluster.BIN)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=15, help="seconds between two faults")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--logs", type=pathlib.Path, help="where the logs of all processes are copied to")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    result = run(cluster.load_harness(options.bin), options)
    if options.output == "json":
        print(json.dumps(result))
    else:
        show(result)
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
