"""A worker ends, as by kill -9, or freezes at points of the elastic protocol: the job goes on, and its curve does not show it.

The workers are those of scripts/check_kill_points.py, which runs this; tests/faults/kill_points.toml names the points.
"""

import dataclasses
import os
import pathlib
import signal
import sys
import time
import unittest

import elastic_harness
from harness import devices, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/faults"))
import seeded_copy  # noqa: E402

WORKER = os.environ["SHERD_SEEDED_WORKER"]
STEPS = 100
LATE = 20  # the pass of a point that is passed once a step, when some steps are committed


@dataclasses.dataclass
class Death:
    point: str
    passes: int = 1
    # Of the first epoch, whose ranks are in the order of the devices; None: whoever comes first.
    rank: int | None = None
    strike: signal.Signals = signal.SIGKILL


# By what the job does meanwhile. A process counts its own passes, those of the first epoch too.
FORMING = [Death(point, rank=rank) for rank, point in enumerate(
    ("assigned", "forming", "linked", "formed", "hands-over", "keeps", "ready-unsaid", "ready-said", "trains"), 1)]
TRAINING = [
    Death("exchange", LATE),
    Death("exchanged", LATE),
    Death("updates", 4 * LATE + 1),  # of four units: a slot is invalid, nothing is written
    Death("updates", 4 * LATE + 3),  # half of it is
    Death("updated", LATE),
    Death("stored", LATE),
    Death("weights"),
]
# Saves of a job that is faster than its disk are left out, but for the first and the last.
SAVING = [Death("writes-piece", 7, rank=2), Death("publishes", 2), Death("published", 2), Death("removes")]
# A rank is dead, and another process dies at this point of what follows.
RECOVERING = [
    Death("releases"),
    Death("assigned", 2),
    Death("forming", 2),
    Death("linked", 4),
    Death("formed", 2),
    Death("gives"),
    Death("copies", 1),
    Death("copies", 3),
    Death("restored"),
    Death("hands-over", 2),
    Death("keeps", 3),
    Death("ready-unsaid", 2),
    Death("ready-said", 2),
    Death("retains"),
    Death("trains", 2),
    Death("first-step", 2),
]

SAVED = ("checkpoint.every=20", "checkpoint.keep=0", "elastic.failure_detection=1s")
FROZEN = [
    Death("exchange", LATE, rank=2),
    Death("exchanged", LATE, rank=4),
    Death("updates", 4 * LATE + 3, rank=2),
    Death("updated", LATE, rank=4),
    Death("writes-piece", 7, rank=2),
    Death("publishes"),
    Death("published"),
]


class KillPoints(elastic_harness.Elastic):
    def setUp(self):
        super().setUp()
        self.points = self.scratch / "points"
        self.points.mkdir()
        self.start_coordinator()
        self.jobs = 0

    def command(self, program, arguments):
        command = super().command(program, arguments)
        return [WORKER, *command[1:]] if program == "sherd-worker" else command

    def start_workers(self, count, *extra):
        return self.start("sherd-worker", "--coordinator", self.address, "--devices", f"cpu:{count}",
                          "--data-root", self.scratch, "--output-root", self.scratch, *extra,
                          env={**os.environ, "SHERD_KILL_POINTS": str(self.points)})

    def has_workers(self, count):
        return sum(worker["status"] == "idle" for worker in self.workers()) == count

    def arm(self, death, processes):
        process = 0 if death.rank is None else processes[f"cpu:{death.rank % 4}"]
        written = self.scratch / "point"
        written.write_text(f"{process} {death.passes} {int(death.strike)}\n")
        written.rename(self.points / death.point)

    def armed(self):
        return [path.name for path in self.points.iterdir() if path.suffix != ".struck"]

    def struck(self):
        """Processes that came to the points."""
        return [int(path.stem) for path in self.points.glob("*.struck")]

    def run_with(self, spares, deaths, *pairs):
        """A job on workers of its own in which these deaths happen: its feed, which is that of a job without them."""
        supervisor = self.start_workers(4 + spares)
        wait_for(lambda: self.has_workers(4 + spares), "the workers")
        processes = devices(supervisor)
        for death in deaths:
            self.arm(death, processes)
        self.jobs += 1
        job = self.elastic_job(f"dies-{self.jobs}", *pairs, steps=STEPS)
        self.wait_for_state(job, "SUCCEEDED", "FAILED")
        events = self.feed(job, code=0)
        self.assert_as_undisturbed(events, self.expected)
        self.assertEqual(self.armed(), [], "nobody came to the point")
        # All others are the processes that they were.
        self.assertLessEqual(set(processes.values()) - set(self.struck()), set(devices(supervisor).values()))
        self.end_workers(supervisor)
        return events

    def assert_as_undisturbed(self, events, expected):
        self.assertEqual(elastic_harness.curve(events), expected)
        self.assertFalse([event for event in events if event["event"] == "rollback"])

    def end_workers(self, supervisor):
        for path in self.points.iterdir():
            path.unlink()
        self.stop(supervisor, limit=30)
        wait_for(lambda: self.has_workers(0), "they are known to be gone")

    def undisturbed_curve(self, steps, *pairs):
        supervisor = self.start_workers(4)
        wait_for(lambda: self.has_workers(4), "the workers")
        self.jobs += 1
        curve = self.undisturbed(str(self.jobs), *pairs, steps=steps)
        self.end_workers(supervisor)
        return curve

    def try_all(self, cases, *pairs):
        """`cases`: each a number of spares and deaths."""
        self.expected = self.undisturbed_curve(STEPS, *pairs)
        start = time.monotonic()
        for spares, deaths in cases:
            with self.subTest(spares=spares, deaths=deaths):
                events = self.run_with(spares, deaths, *pairs)
                self.assertGreater(len(self.epochs(events)), len(deaths) - 1)
        print(f"{len(cases)} jobs in {time.monotonic() - start:.0f} s")

    def test_forming(self):
        self.try_all([(spares, [death]) for spares in (1, 0) for death in FORMING])

    def test_welcomed(self):
        self.expected = self.undisturbed_curve(STEPS)
        self.arm(Death("welcomed"), {})
        self.run_with(1, [])

    def test_training(self):
        cases = [(spares, [dataclasses.replace(death, rank=rank)])
                 for spares, rank in ((1, 0), (0, 2)) for death in TRAINING]
        self.try_all(cases)

    def test_training_with_other_strategies(self):
        deaths = [Death("exchanged", LATE, rank=1), Death("updates", 4 * LATE + 3, rank=2)]
        for name, pairs in elastic_harness.LAYOUTS.items():
            with self.subTest(name):
                self.try_all([(1, [death]) for death in deaths], *pairs)

    def test_saving(self):
        self.try_all([(spares, [death]) for spares in (1, 0) for death in SAVING],
                     "checkpoint.every=10", "checkpoint.keep=1")

    def test_recovering(self):
        # Two deaths before anybody has restored: two copies are promised to survive that.
        first = Death("exchanged", LATE, rank=1)
        self.try_all([(spares, [first, death]) for spares in (2, 0) for death in RECOVERING], "elastic.replicas=2")

    def test_two_that_are_not_each_others_holders_die_in_one_update(self):
        deaths = [Death("updates", 4 * LATE + 2, rank=0), Death("exchange", LATE, rank=2)]
        self.try_all([(spares, deaths) for spares in (2, 0)])

    def disturb(self, name, spares, death, act, *pairs):
        """A job that `act` disturbs when it runs, and a death at a point of what follows."""
        supervisor = self.start_workers(4 + spares)
        wait_for(lambda: self.has_workers(4 + spares), "the workers")
        job = self.elastic_job(name, *pairs, steps=10 * STEPS)
        feed = self.follow(job)
        feed.await_event(lambda event: event["event"] == "step" and event["step"] >= LATE, "steps")
        self.arm(death, {})
        undo = act(job, supervisor)
        try:
            wait_for(lambda: not self.armed(), "somebody comes to the point")
        finally:
            undo()
        self.wait_for_state(job, "SUCCEEDED", "FAILED")
        self.assert_as_undisturbed(feed.finish(), self.expected)
        self.end_workers(supervisor)

    def test_aborting(self):
        # A frozen rank's peers wait for it until they are told not to.
        self.expected = self.undisturbed_curve(10 * STEPS)

        def freeze(job, supervisor):
            pid = self.kill_rank(job, 1, supervisor, signal.SIGSTOP)
            return lambda: os.kill(pid, signal.SIGCONT)

        for spares in (2, 0):
            with self.subTest(spares=spares):
                self.disturb(f"aborts-{spares}", spares, Death("aborts"), freeze, "elastic.replicas=2",
                             "elastic.failure_detection=1s")

    def test_thawed(self):  # F27, F29
        # A process that freezes at a point, is replaced, and thaws when the job trains without it, writes nothing.
        expected = self.undisturbed_weights("thawed", *SAVED)
        for death in FROZEN:
            with self.subTest(death=death):
                supervisor = self.start_workers(5)
                wait_for(lambda: self.has_workers(5), "the workers")
                self.arm(dataclasses.replace(death, strike=signal.SIGSTOP), devices(supervisor))
                self.jobs += 1
                name = f"thawed-{self.jobs}"
                job = self.elastic_job(name, *SAVED, steps=10 * STEPS)
                feed = self.follow(job)
                _, epoch, place = feed.await_event(lambda event: event["event"] == "epoch" and event["epoch"] > 1, "an epoch")
                feed.await_event(lambda event: event["event"] == "step", "a step", place)
                [frozen] = self.struck()
                os.kill(frozen, signal.SIGCONT)
                self.wait_for_state(job, "SUCCEEDED", "FAILED")
                self.assert_as_undisturbed(feed.finish(), self.expected)
                written = self.scratch / f"weights-{name}"
                self.sherd("checkpoints", "verify", written, check=0)
                self.assertEqual(self.weights(written), expected)
                wait_for(lambda: self.has_workers(5), "the thawed worker is one like others")
                self.end_workers(supervisor)

    def weights(self, directory):
        return {path.name: path.read_bytes() for path in (directory / "final").glob("*.safetensors")}

    def undisturbed_weights(self, name, *pairs):
        supervisor = self.start_workers(4)
        wait_for(lambda: self.has_workers(4), "the workers")
        self.expected = self.undisturbed(name, *pairs, steps=10 * STEPS)
        self.end_workers(supervisor)
        return self.weights(self.scratch / f"weights-undisturbed-{name}")

    def test_reporting_holdings(self):
        self.expected = self.undisturbed_curve(10 * STEPS)

        def kill(job, supervisor):
            self.kill_rank(job, 1, supervisor)
            return lambda: None

        # More copies than there are other ranks: idle workers have some.
        self.disturb("reports", 2, Death("reports-holdings"), kill, "elastic.replicas=5")

    def test_draining(self):
        self.expected = self.undisturbed_curve(10 * STEPS)

        def drain(job, supervisor):
            self.sherd("drain", self.get(job)["ranks"][1]["worker"], check=0)
            return lambda: None

        for spares in (1, 0):
            for point in ("pauses", "paused", "releases"):
                with self.subTest(spares=spares, point=point):
                    self.disturb(f"{point}-{spares}", spares, Death(point), drain)

    def test_every_point_is_tried(self):
        named = {point.name for point in seeded_copy.kill_points()}
        tried = {death.point for death in (*FORMING, *TRAINING, *SAVING, *RECOVERING)}
        self.assertEqual(named - tried, {"welcomed", "aborts", "reports-holdings", "pauses", "paused"})
        self.assertLessEqual(tried, named)


if __name__ == "__main__":
    unittest.main(verbosity=2)
