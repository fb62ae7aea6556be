"""Jobs that go on whatever befalls their workers, and their curves."""

import json
import os
import random
import signal

from harness import EndToEnd, devices

SEED = int(os.environ.get("SHERD_TEST_SEED", "20261130"))
LAYOUTS = {
    "ddp": ["parallel.strategy=ddp"],
    "zero1": ["parallel.strategy=zero1"],
    "zero2": ["parallel.strategy=zero2"],
    "zero3": ["parallel.strategy=zero3"],
    "hybrid": ["parallel.strategy=hybrid", "parallel.shard_group=2"],
    "zero3, tensor 2": ["parallel.strategy=zero3", "parallel.tensor=2"],
}


def settings(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def events_of(text):
    return [json.loads(line) for line in text.splitlines()]


def curve(events):
    """The steps of a feed in its order, which must be theirs: none missing, none doubled."""
    steps = [event for event in events if event["event"] == "step"]
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1)), \
        f"steps out of order: {[step['step'] for step in steps][-20:]}"
    return [(step["loss"], step["grad_norm"], step["lr"], step["tokens"]) for step in steps]


def is_state(*names):
    return lambda event: event["event"] == "state" and event["state"] in names


class Elastic(EndToEnd):
    def setUp(self):
        super().setUp()
        self.random = random.Random(f"{SEED} {self.id()}")

    def elastic_job(self, name, *pairs, steps, workers=4, least=1):
        path = self.job(name, steps=steps, workers=workers)
        return self.submit(path, *settings(f"elastic.min_workers={least}", *pairs))

    def feed(self, job, code=0):
        return events_of(self.sherd("watch", job, "-o", "json", check=code).stdout)

    def undisturbed(self, name, *pairs, steps, workers=4):
        job = self.elastic_job(f"undisturbed-{name}", *pairs, steps=steps, workers=workers)
        self.wait_for_state(job, "SUCCEEDED")
        return curve(self.feed(job))

    def kill_rank(self, job, rank, supervisor, sig=signal.SIGKILL):
        """Signals the process of a rank; None when the rank has no process at this moment."""
        for each in self.get(job)["ranks"]:
            pid = devices(supervisor).get(each["worker"].split("/")[1])
            if each["rank"] == rank and pid is not None:
                os.kill(pid, sig)
                return pid
        return None

    def kill_together(self, job, ranks, supervisor):
        """SIGKILL to the processes of several ranks, one right after the other."""
        processes = {each["rank"]: devices(supervisor)[each["worker"].split("/")[1]]
                     for each in self.get(job)["ranks"]}
        for rank in ranks:
            os.kill(processes[rank], signal.SIGKILL)

    def the_rollback(self, job):
        """The one that a job which has ended tells of."""
        rollbacks = [event for event in self.feed(job) if event["event"] == "rollback"]
        self.assertEqual(len(rollbacks), 1)
        return rollbacks[0]

    def over(self, job):
        return self.state(job) in ("SUCCEEDED", "FAILED")

    def epochs(self, events):
        return [event for event in events if event["event"] == "epoch"]
