"""Workers that leave when they are asked to, and jobs that go on from checkpoints."""

import os
import signal
import unittest

from elastic_harness import Elastic, curve
from harness import alive, devices, wait_for


class Drains(Elastic):
    def test_a_drained_worker_leaves_at_a_step_and_the_curve_does_not_show_it(self):
        self.start_coordinator()
        supervisor = self.start_workers(5)
        self.wait_for_workers(5)
        expected = self.undisturbed("drain", steps=1500)
        self.wait_for_workers(5)
        job = self.elastic_job("drain", steps=1500)
        self.wait_for_step(job, 30)
        victim = self.get(job)["ranks"][1]["worker"]
        pid = devices(supervisor)[victim.split("/")[1]]
        self.sherd("drain", victim, check=0)
        wait_for(lambda: not alive(pid), "the drained worker ended", limit=20)
        self.wait_for_state(job, "SUCCEEDED")
        events = self.feed(job)
        self.assertEqual(curve(events), expected)
        self.assertEqual(len(self.epochs(events)), 2)

    def test_sigterm_moves_a_ranks_work_first(self):  # F60
        self.start_coordinator()
        supervisor = self.start_workers(5)
        self.wait_for_workers(5)
        job = self.elastic_job("preempted", steps=1500)
        self.wait_for_step(job, 30)
        pid = self.kill_rank(job, 1, supervisor, signal.SIGTERM)
        wait_for(lambda: not alive(pid), "the worker ended", limit=20)
        self.wait_for_state(job, "SUCCEEDED")
        events = self.feed(job)
        curve(events)
        self.assertEqual(len(self.epochs(events)), 2)
        self.assertFalse([event for event in events if event["event"] == "rollback"])

    def test_sigterm_to_all_saves_a_checkpoint_and_the_job_resumes_when_they_return(self):  # F60
        self.start_coordinator()
        supervisor = self.start_workers(3, "--name", "before")
        self.wait_for_workers(3)
        expected = self.undisturbed("all", steps=1500, workers=3)
        self.wait_for_workers(3)
        job = self.elastic_job("all", steps=1500, workers=3, least=2)
        self.wait_for_step(job, 100)
        self.stop(supervisor, signal.SIGTERM, limit=30)
        self.wait_for_state(job, "RECOVERING")
        wait_for(lambda: "saved" in self.get(job)["reason"], "the reason says that it was saved")
        self.start_workers(3, "--name", "after")
        self.wait_for_state(job, "SUCCEEDED")
        events = self.feed(job)
        self.assertEqual(curve(events), expected)
        self.assertEqual(len([event for event in events if event["event"] == "checkpoint"]), 1)
        self.assertFalse([event for event in events if event["event"] == "rollback"])


class Checkpoints(Elastic):
    def test_a_cancelled_job_is_resumed_in_another_layout(self):  # F41, F42, F49
        self.start_coordinator()
        self.start_workers(4)
        self.wait_for_workers(4)
        expected = self.undisturbed("whole", "parallel.strategy=zero3", steps=1500)
        self.wait_for_workers(4)
        directory = f"checkpoint.dir={self.scratch}/resumed"
        job = self.elastic_job("first", directory, "checkpoint.every=50", steps=1500)
        # On a busy disk the job trains on for long meanwhile.
        wait_for(lambda: any((self.scratch / "resumed").glob("step-*/manifest.json")), "a checkpoint")
        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")
        self.wait_for_workers(4)
        first = [event for event in self.feed(job, code=103) if event["event"] == "step"]
        again = self.elastic_job("second", directory, "checkpoint.resume=latest", "parallel.strategy=zero2",
                                 steps=1500, workers=3)
        self.wait_for_state(again, "SUCCEEDED")
        second = [event for event in self.feed(again) if event["event"] == "step"]
        resumed = second[0]["step"]
        self.assertGreater(resumed, 50)
        self.assertLessEqual(resumed, len(first) + 1)
        self.assertEqual([step["step"] for step in second], list(range(resumed, 1501)))
        self.assertEqual([(step["loss"], step["grad_norm"], step["lr"], step["tokens"]) for step in second],
                         expected[resumed - 1:])

    def test_two_ranks_that_hold_each_others_shards_go_back_to_the_checkpoint(self):
        self.start_coordinator()
        supervisor = self.start_workers(6)
        self.wait_for_workers(6)
        job = self.elastic_job("back", "checkpoint.every=20", steps=900)
        wait_for(lambda: any((self.scratch / "weights-back").glob("step-*/manifest.json")), "a checkpoint")
        self.wait_for_step(job, 60)
        self.kill_together(job, (1, 2), supervisor)
        self.wait_for_state(job, "SUCCEEDED")
        rollback = self.the_rollback(job)
        self.assertGreaterEqual(rollback["to_step"], 20)
        self.assertEqual(rollback["to_step"] % 20, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
