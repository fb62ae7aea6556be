"""Workers of two hosts: two network namespaces with addresses of their own, joined by a cable, share no memory."""

import json
import os
import signal
import subprocess
import time
import unittest

from harness import EndToEnd, devices, wait_for

LONG = 1000000  # steps that no test waits for
STAGING = 256 << 10  # of each other member of a group over TCP


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True).returncode == 0


class TwoHosts(EndToEnd):
    def setUp(self):
        super().setUp()
        self.hosts = [f"sherd-e2e-{os.getpid()}-{side}" for side in "ab"]
        for host in self.hosts:
            self.stack.callback(ip, "netns", "del", host)
        a, b = self.hosts
        made = all(ip("netns", "add", host) for host in self.hosts)
        made = made and ip("link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b)
        for number, host in enumerate(self.hosts, 1):
            made = made and ip("-n", host, "addr", "add", f"10.78.0.{number}/24", "dev", "cable")
            made = made and all(ip("-n", host, "link", "set", link, "up") for link in ("cable", "lo"))
        if not made:
            self.skipTest("NOT TESTED: this user may not make network namespaces (root, iproute2)")
        # The scratch directory's check for processes comes before the namespaces go.
        self.stack.callback(self.assert_no_processes)

    def start_hosts(self, counts, *coordinator_flags):
        """The coordinator and the client are on the first host; a supervisor is on each, with so many workers."""
        self.inside = self.hosts[0]
        self.start_coordinator(*coordinator_flags, listen="10.78.0.1:0")
        supervisors = []
        for name, host, count in zip("ab", self.hosts, counts):
            self.inside = host
            supervisors.append(self.start_workers(count, "--name", name))
        self.inside = self.hosts[0]
        self.wait_for_workers(sum(counts))
        return supervisors

    def watch(self, job):
        lines = self.sherd("watch", job, "-o", "json", check=0).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def run_here(self, path, *overrides):
        """The same job with all its workers in one shared-memory domain."""
        inside, self.inside = self.inside, None
        try:
            result = self.sherd("run", path, "--workers", 4, "--out", self.scratch, "-o", "json", *overrides, check=0)
        finally:
            self.inside = inside
        return [json.loads(line) for line in result.stdout.splitlines()]

    @staticmethod
    def curve(events):
        keys = ("step", "loss", "grad_norm", "lr", "tokens")
        return [{key: event[key] for key in keys} for event in events if event["event"] == "step"]

    def assert_exact(self, events, comm):
        """Every rank's ledger to the byte; `comm`: by rank, what its communicators hold beside their arenas."""
        ledgers = {event["rank"]: event for event in events if event["event"] == "ledger"}
        self.assertEqual(sorted(ledgers), [0, 1, 2, 3])
        for rank, ledger in ledgers.items():
            for lines in (ledger["memory"], ledger["wire"]):
                for name, line in lines.items():
                    self.assertEqual(line["predicted"], line["measured"], f"{name} of rank {rank}")
            self.assertEqual(ledger["memory"]["comm"]["measured"], comm[rank], f"rank {rank}")
            self.assertGreater(ledger["wire"]["total"]["measured"], 0)

    def test_a_job_over_two_hosts_has_the_curve_and_the_ledgers_of_one_host(self):
        self.start_hosts((2, 2))
        for strategy in ("ddp", "zero1", "zero2", "zero3"):
            with self.subTest(strategy):
                path = self.job(f"over-{strategy}", steps=10, workers=4, strategy=strategy)
                over = self.watch(self.submit(path))
                self.assertEqual(over[-1]["state"], "SUCCEEDED", over[-1])
                here = self.run_here(path)
                self.assertEqual(len(self.curve(over)), 10)
                self.assertEqual(self.curve(over), self.curve(here))
                self.assert_exact(over, [3 * STAGING] * 4)
                for events in (over, here):
                    events[:] = sorted((e for e in events if e["event"] == "ledger"), key=lambda e: e["rank"])
                self.assertEqual([e["wire"] for e in over], [e["wire"] for e in here])

    def test_groups_inside_a_host_share_memory_and_those_across_do_not(self):
        self.start_hosts((2, 2))
        path = self.job("hybrid", steps=10, workers=4, strategy="hybrid")
        over = self.watch(self.submit(path, "--set", "parallel.shard_group=2"))
        here = self.run_here(path, "--set", "parallel.shard_group=2")
        self.assertEqual(self.curve(over), self.curve(here))
        [shared] = {event["memory"]["comm"]["measured"] // 2 for event in here if event["event"] == "ledger"}
        # Shards are on one host, copies on the other.
        self.assert_exact(over, [shared + STAGING] * 4)

    def events(self, job):
        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")
        return [json.loads(line) for line in
                self.sherd("watch", job, "-o", "json", check=103).stdout.splitlines()]

    def assert_nothing_lost(self, events):
        steps = [event["step"] for event in events if event["event"] == "step"]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertFalse([event for event in events if event["event"] == "rollback"])

    def test_a_killed_worker_of_the_other_host_is_replaced_there(self):  # F21, F22, F54
        # Its neighbour on that host holds its shard.
        _, other = self.start_hosts((1, 2))
        job = self.submit(self.job(steps=LONG, workers=3))
        self.wait_for_step(job, 3)
        victim = next(each for each in self.get(job)["ranks"] if each["worker"].startswith("b/"))
        start = time.monotonic()
        os.kill(devices(other)[victim["worker"].split("/")[1]], signal.SIGKILL)
        wait_for(lambda: self.state(job) != "RUNNING", "its end is known", limit=5)
        took = time.monotonic() - start
        print(f"killed worker of the other host: known after {took * 1e3:.0f} ms")
        self.assertLess(took, 1.5)
        wait_for(lambda: self.get(job)["epoch"] > 1 and self.state(job) == "RUNNING", "it goes on", limit=15)
        self.wait_for_step(job, self.get(job)["step"] + 3)
        events = self.events(job)
        self.assert_nothing_lost(events)
        reason = [event for event in events if event["event"] == "epoch"][-1]["reason"]
        for word in (victim["worker"], f"rank {victim['rank']}", "step", "SIGKILL"):
            self.assertIn(word, reason)

    def recovers_when_reachable(self, cut, mend):
        """The job waits while half of it cannot be reached, the near worker is free; then it goes on."""
        path = self.job(steps=LONG)
        path.write_text(path.read_text().replace("failure_detection: 3s", "failure_detection: 1s"))
        job = self.submit(path)
        self.wait_for_step(job, 2)
        cut()
        try:
            self.wait_for_state(job, "RECOVERING", limit=10)
            wait_for(lambda: "lease" in self.get(job)["reason"] or "wait" in self.get(job)["reason"], "a reason")
            self.wait_for_workers(1, limit=5)
        finally:
            mend()
        # Each holds its own shard: with both there again, nothing is lost.
        wait_for(lambda: self.get(job)["epoch"] > 1 and self.state(job) == "RUNNING", "it goes on", limit=20)
        self.wait_for_step(job, self.get(job)["step"] + 3)
        self.assert_nothing_lost(self.events(job))

    def test_a_frozen_worker_of_the_other_host_is_waited_for(self):
        _, other = self.start_hosts((1, 1), "--failure-detection", "1s")
        frozen = devices(other)["cpu:0"]
        self.recovers_when_reachable(lambda: os.kill(frozen, signal.SIGSTOP),
                                     lambda: os.kill(frozen, signal.SIGCONT))

    def test_a_cut_cable_is_survived(self):
        self.start_hosts((1, 1), "--failure-detection", "1s")

        def cable(state):
            self.assertTrue(ip("-n", self.hosts[1], "link", "set", "cable", state))

        self.recovers_when_reachable(lambda: cable("down"), lambda: cable("up"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
