"""What docs/operations.md tells people to do, done."""

import json
import os
import pathlib
import shutil
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from harness import EndToEnd, devices, wait_for  # noqa: E402

LONG = 1000000  # steps that no test waits for


class Operations(EndToEnd):
    def coordinator_on(self, directory):
        return self.start("sherd-coordinator", "--listen", self.address, "--data-dir", directory)

    def answers(self):
        return self.sherd("list").returncode == 0

    def steps_on(self, job):
        self.wait_for_step(job, int(self.get(job)["step"]) + 20)

    def test_a_coordinator_is_backed_up_while_its_jobs_run(self):
        coordinator = self.start_coordinator()
        workers = self.start_workers(2)
        self.wait_for_workers(2)
        job = self.submit(self.job(steps=LONG, workers=2))
        self.wait_for_step(job, 20)
        self.assertEqual(self.stop(coordinator), 0)
        shutil.copytree(self.coordinator_data, self.scratch / "backup")
        self.coordinator_on(self.coordinator_data)
        wait_for(self.answers, "the coordinator answers again")
        self.steps_on(job)
        self.assertEqual(self.get(job)["epoch"], 1, "ranks did not notice")
        # Before the coordinator, which lets them go.
        self.assertEqual(self.stop(workers), 0)

    def test_a_restored_backup_goes_on_from_checkpoints_with_workers_that_are_started_again(self):
        coordinator = self.start_coordinator()
        workers = self.start_workers(2)
        self.wait_for_workers(2)
        path = self.job(steps=LONG, workers=2)
        saving = ("--set", "checkpoint.every=50")
        job = self.submit(path, *saving)
        self.wait_for_step(job, 20)
        self.assertEqual(self.stop(coordinator), 0)
        shutil.copytree(self.coordinator_data, self.scratch / "backup")
        coordinator = self.coordinator_on(self.coordinator_data)
        wait_for(self.answers, "the coordinator answers again")
        self.wait_for_step(job, 200)
        wait_for(lambda: self.checkpoints(), "a checkpoint that the backup does not know")

        # The disk is lost.
        self.stop(workers, limit=40)
        self.stop(coordinator, signal.SIGKILL)
        shutil.rmtree(self.coordinator_data)
        self.coordinator_on(self.scratch / "backup")
        wait_for(self.answers, "the coordinator answers from its backup")
        self.assertEqual([each["id"] for each in json.loads(self.sherd("list", "-o", "json", check=0).stdout)], [job])
        self.sherd("cancel", job, check=0)
        self.start_workers(2)
        again = self.submit(path, *saving, "--set", "checkpoint.resume=latest")
        self.wait_for_step(again, 60)
        # Before it has trained one, its step is the checkpoint's.
        self.wait_for_step(again, self.get(again)["step"] + 1)
        first = next(event for event in map(json.loads, self.feed(again)) if event["event"] == "step")
        self.assertGreater(first["step"], 50, "it went on from a checkpoint")

    def test_a_restored_backup_takes_on_the_workers_that_have_gone_on_since(self):
        coordinator = self.start_coordinator()
        supervisor = self.start_workers(3)
        self.wait_for_workers(3)
        job = self.submit(self.job(steps=LONG, workers=2))
        self.wait_for_step(job, 20)
        self.assertEqual(self.stop(coordinator), 0)
        shutil.copytree(self.coordinator_data, self.scratch / "backup")
        coordinator = self.coordinator_on(self.coordinator_data)
        wait_for(self.answers, "the coordinator answers again")
        rank = self.get(job)["ranks"][1]["worker"]
        os.kill(devices(supervisor)[rank.split("/")[1]], signal.SIGKILL)
        wait_for(lambda: self.get(job)["epoch"] == 2 and self.state(job) == "RUNNING", "epoch 2 runs")
        self.steps_on(job)
        step = int(self.get(job)["step"])

        self.stop(coordinator, signal.SIGKILL)
        self.coordinator_on(self.scratch / "backup")
        wait_for(self.answers, "the coordinator answers from its backup")
        wait_for(lambda: self.get(job)["epoch"] == 3 and self.state(job) == "RUNNING", "epoch 3 runs")
        self.wait_for_step(job, step + 20)
        feed = [json.loads(line) for line in self.feed(job)]
        self.assertFalse([event for event in feed if event["event"] == "rollback"], "nothing is lost")
        lines = [event["text"] for event in feed if event["event"] == "log"]
        self.assertTrue([line for line in lines if "the coordinator's log, which is older" in line], lines)

    def checkpoints(self):
        return json.loads(self.sherd("checkpoints", "list", self.scratch / "weights-job", "-o", "json").stdout or "[]")

    def feed(self, job):
        self.sherd("cancel", job, check=0)
        return self.sherd("watch", job, "-o", "json", check=103).stdout.splitlines()


if __name__ == "__main__":
    unittest.main(verbosity=2)
