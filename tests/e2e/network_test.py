"""Workers of several hosts: network namespaces with addresses of their own, each with a cable to one switch, share no memory."""

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


class Hosts(EndToEnd):
    NAMES = "ab"

    def setUp(self):
        super().setUp()
        self.hosts = {name: f"sherd-e2e-{os.getpid()}-{name}" for name in self.NAMES}
        switch = f"sherd-e2e-{os.getpid()}-switch"
        for namespace in (*self.hosts.values(), switch):
            self.stack.callback(ip, "netns", "del", namespace)
        made = ip("netns", "add", switch) and ip("-n", switch, "link", "add", "switch", "type", "bridge")
        made = made and ip("-n", switch, "link", "set", "switch", "up")
        for name, host in self.hosts.items():
            made = made and ip("netns", "add", host)
            made = made and ip("link", "add", "cable", "netns", host, "type", "veth", "peer", "name", name, "netns", switch)
            made = made and ip("-n", switch, "link", "set", "dev", name, "master", "switch", "up")
            made = made and ip("-n", host, "addr", "add", f"{self.address_of(name)}/24", "dev", "cable")
            made = made and all(ip("-n", host, "link", "set", link, "up") for link in ("cable", "lo"))
        if not made:
            self.skipTest("NOT TESTED: this user may not make network namespaces (root, iproute2)")
        # The scratch directory's check for processes comes before the namespaces go.
        self.stack.callback(self.assert_no_processes)

    def address_of(self, name):
        return f"10.78.0.{self.NAMES.index(name) + 1}"

    def start_first(self, *flags):
        """The coordinator and the client are on the first host."""
        self.inside = self.hosts["a"]
        self.start_coordinator(*flags, listen=f"{self.address_of('a')}:0")

    def start_on(self, name, count):
        inside, self.inside = self.inside, self.hosts[name]
        try:
            return self.start_workers(count, "--name", name)
        finally:
            self.inside = inside

    def cable(self, name, state):
        self.assertTrue(ip("-n", self.hosts[name], "link", "set", "cable", state))

    def cut(self, one, other):
        """Two hosts do not reach each other; all others reach both."""
        for near, far in ((one, other), (other, one)):
            self.assertTrue(ip("-n", self.hosts[near], "route", "add", "blackhole", f"{self.address_of(far)}/32"))

    def mend(self, one, other):
        for near, far in ((one, other), (other, one)):
            self.assertTrue(ip("-n", self.hosts[near], "route", "del", "blackhole", f"{self.address_of(far)}/32"))

    def watch(self, job):
        lines = self.sherd("watch", job, "-o", "json", check=0).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def run_here(self, path, *overrides, workers=4):
        """The same job with all its workers in one shared-memory domain."""
        inside, self.inside = self.inside, None
        try:
            result = self.sherd("run", path, "--workers", workers, "--out", self.scratch, "-o", "json", *overrides, check=0)
        finally:
            self.inside = inside
        return [json.loads(line) for line in result.stdout.splitlines()]

    @staticmethod
    def curve(events):
        keys = ("step", "loss", "grad_norm", "lr", "tokens")
        return [{key: event[key] for key in keys} for event in events if event["event"] == "step"]

    def assert_nothing_lost(self, events):
        steps = [event["step"] for event in events if event["event"] == "step"]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertFalse([event for event in events if event["event"] == "rollback"])

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


class TwoHosts(Hosts):
    def start_hosts(self, counts, *coordinator_flags):
        """The coordinator and the client are on the first host; a supervisor is on each, with so many workers."""
        self.start_first(*coordinator_flags)
        supervisors = [self.start_on(name, count) for name, count in zip(self.NAMES, counts)]
        self.wait_for_workers(sum(counts))
        return supervisors

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

    def events_of_cancelled(self, job):
        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")
        return [json.loads(line) for line in
                self.sherd("watch", job, "-o", "json", check=103).stdout.splitlines()]

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
        events = self.events_of_cancelled(job)
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
        self.assert_nothing_lost(self.events_of_cancelled(job))

    def test_a_frozen_worker_of_the_other_host_is_waited_for(self):
        _, other = self.start_hosts((1, 1), "--failure-detection", "1s")
        frozen = devices(other)["cpu:0"]
        self.recovers_when_reachable(lambda: os.kill(frozen, signal.SIGSTOP),
                                     lambda: os.kill(frozen, signal.SIGCONT))

    def test_a_cut_cable_is_survived(self):
        self.start_hosts((1, 1), "--failure-detection", "1s")

        self.recovers_when_reachable(lambda: self.cable("b", "down"), lambda: self.cable("b", "up"))


class ThreeHosts(Hosts):
    """A job of two ranks on the hosts b and c, and a spare worker on a, where the coordinator is. Copies are on the other host."""

    NAMES = "abc"
    STEPS = 1000

    def begin(self, strategy):
        self.start_first("--failure-detection", "1s")
        for name in "bc":
            self.start_on(name, 1)
        self.wait_for_workers(2)
        path = self.job(strategy, steps=self.STEPS, workers=2, strategy=strategy)
        path.write_text(path.read_text().replace("failure_detection: 3s", "failure_detection: 1s"))
        pairs = ("elastic.min_workers=1", "checkpoint.every=100", "checkpoint.keep=0")
        job = self.submit(path, *(word for pair in pairs for word in ("--set", pair)))
        self.feed = self.follow(job)
        self.await_step(20)
        self.start_on("a", 1)
        self.wait_for_workers(1)
        self.assertLess(self.feed.last("step")["step"], self.STEPS, "it has ended before anything befell it")
        self.first = [rank["worker"] for rank in self.get(job)["ranks"]]
        self.expected = (strategy, path)
        return job

    def await_step(self, step):
        self.feed.await_event(lambda event: event["event"] == "step" and event["step"] >= step, f"step {step}")

    def await_replacement(self, job):
        """Until the job trains in another epoch, in which the spare worker has the place of rank 1."""
        try:
            _, event, _ = self.feed.await_event(
                lambda event: event["event"] == "done" or event["event"] == "epoch" and event["epoch"] > 1, "another epoch")
            self.assertEqual(event["event"], "epoch")
            self.assertEqual([rank["worker"] for rank in self.get(job)["ranks"]], [self.first[0], "a/cpu:0"])
        except AssertionError as error:
            told = [event for event in self.feed.events() if event["event"] not in ("step", "ledger", "checkpoint")]
            raise AssertionError(f"{error}; its feed: {told[-12:]}") from error
        return event

    def assert_undisturbed(self):
        """To the end: no step is lost, all numbers and all bytes of weights and checkpoints are those of a job on one host."""
        events = self.feed.finish(limit=120)
        self.assertEqual(events[-1]["state"], "SUCCEEDED", events[-1])
        self.assert_nothing_lost(events)
        strategy, path = self.expected
        here = self.scratch / "here"
        expected = self.run_here(path, "--set", f"checkpoint.dir={here}", workers=2)
        self.assertEqual(self.curve(events), self.curve(expected))
        written = self.scratch / f"weights-{strategy}"
        for directory in (written, here):
            self.sherd("checkpoints", "verify", directory, check=0)
        self.assertEqual([path.read_bytes() for path in sorted((written / "final").glob("*.safetensors"))],
                         [path.read_bytes() for path in sorted((here / "final").glob("*.safetensors"))])
        return [event for event in events if event["event"] == "epoch"]

    def is_cut(self, strategy):
        job = self.begin(strategy)
        self.cut("b", "c")
        try:
            epoch = self.await_replacement(job)
            self.assertIn(self.first[1], epoch["reason"])
            self.await_step(epoch["resumed_step"] + 10)
        finally:
            self.mend("b", "c")
        self.assertEqual(len(self.assert_undisturbed()), 2)

    def test_a_cut_between_two_workers_excludes_one_and_the_job_goes_on(self):
        self.is_cut("ddp")

    def test_a_cut_between_two_workers_that_hold_each_others_shards_loses_nothing(self):
        self.is_cut("zero3")

    def test_a_host_that_is_back_after_its_ranks_were_replaced_writes_nothing(self):  # F27
        job = self.begin("zero3")
        lost = self.first[1].split("/")[0]
        self.cable(lost, "down")
        try:
            epoch = self.await_replacement(job)
            self.await_step(epoch["resumed_step"] + 10)
        finally:
            self.cable(lost, "up")
        self.assert_undisturbed()
        self.wait_for_workers(3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
