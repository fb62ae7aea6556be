"""`strategy: auto`: a decision, the same curve with its keys pinned, and what happens in between."""

import json
import os
import signal

from harness import EndToEnd, devices


def losses(events):
    return {event["step"]: event["loss"] for event in events if event["event"] == "step"}


class Auto(EndToEnd):
    def decision_in(self, events):
        return next(event for event in events if event["event"] == "decision")

    def flags(self, keys):
        text = lambda value: str(value).lower() if isinstance(value, bool) else value
        return [word for section, values in keys.items() for key, value in values.items()
                for word in ("--set", f"{section}.{key}={text(value)}")]

    def run_job(self, path, workers, *flags, out):
        result = self.sherd("run", path, "--workers", workers, *flags, "--out", self.scratch / out, "-o", "json",
                            limit=180, check=0)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def auto_job(self, **options):
        return self.job(strategy="auto", out="weights", **options)

    def test_the_choice_trains_the_curve_of_its_pinned_keys(self):
        path = self.auto_job(steps=12)
        events = self.run_job(path, 2, out="auto")
        decision = self.decision_in(events)
        measured = [candidate for candidate in decision["candidates"] if candidate["measured_step_seconds"]]
        self.assertGreaterEqual(len(measured), 4)
        self.assertEqual(decision["chosen"]["measured_step_seconds"],
                         min(candidate["measured_step_seconds"] for candidate in measured))
        self.assertTrue(decision["chosen"]["fits"])
        self.assertGreater(decision["probe"]["matmul_flops_per_second"], 1e6)
        self.assertEqual({figure["op"] for figure in decision["probe"]["collectives"]},
                         {"all_gather", "reduce_scatter", "all_reduce"})
        # Nothing of the trials is told but the decision.
        self.assertEqual(sorted(losses(events)), list(range(1, 13)))
        self.assertEqual(len([event for event in events if event["event"] == "epoch"]), 1)
        ledgers = [event for event in events if event["event"] == "ledger"]
        peak = ledgers[0]["memory"]["peak"]
        self.assertEqual(peak["predicted"], peak["measured"])
        pinned = self.run_job(path, 2, *self.flags(decision["keys"]), out="pinned")
        self.assertFalse([event for event in pinned if event["event"] == "decision"])
        self.assertEqual(losses(events), losses(pinned))

    def test_people_see_a_table_and_the_keys(self):
        result = self.sherd("run", self.auto_job(steps=3), "--workers", 2, "--out", self.scratch / "out", limit=180,
                            check=0)
        self.assertIn("strategy auto on 2 workers is ", result.stderr)
        self.assertIn("as keys of a job file:\nparallel: {strategy: ", result.stderr)

    def test_describe_and_get_show_the_choice(self):
        self.start_coordinator()
        self.start_workers(2)
        self.wait_for_workers(2)
        job = self.submit(self.auto_job(steps=1000000))
        self.assertEqual(self.get(job)["spec"]["parallel"]["strategy"], "auto")
        self.wait_for_step(job, 3)
        described = json.loads(self.sherd("describe", job, "-o", "json", check=101).stdout)
        keys = described["decision"]["keys"]["parallel"]
        for key, value in keys.items():
            self.assertEqual(described["spec"]["parallel"][key], value)
        self.assertEqual(len(described["epochs"]), 1)
        self.assertEqual(len(described["ranks"]), 2)
        self.assertTrue(described["events"])
        text = self.sherd("describe", job, check=101).stdout
        self.assertIn("as keys of a job file:", text)
        self.assertIn("specification\nname: ", text)
        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")
        self.sherd("describe", job, check=103)
        self.sherd("describe", "nothing-9", check=102)

    def test_deaths_in_the_middle_cost_only_the_measurement(self):
        coordinator = self.start_coordinator()
        workers = self.start_workers(2)
        self.wait_for_workers(2)
        job = self.submit(self.auto_job(steps=12))
        watch = self.follow(job)
        _, _, at = watch.await_event(lambda event: event["event"] == "state" and "trial of" in event["reason"]
                                     and event["state"] == "RUNNING", "a trial")
        os.kill(next(iter(devices(workers).values())), signal.SIGKILL)
        _, _, at = watch.await_event(lambda event: event["event"] == "state" and event["state"] == "RECOVERING"
                                     and "was lost" in event["reason"], "its end", at)
        watch.await_event(lambda event: event["event"] == "state" and event["state"] == "RUNNING", "another", at)
        # The coordinator, too.
        address = self.address
        self.stop(coordinator, signal.SIGKILL)
        self.start_coordinator(listen=address)
        self.wait_for_state(job, "SUCCEEDED", limit=180)
        events = watch.finish()
        self.assertEqual(sorted(losses(events)), list(range(1, 13)))
        self.assertEqual(len([event for event in events if event["event"] == "decision"]), 1)

    def test_a_world_of_another_size_is_laid_out_anew(self):
        self.start_coordinator()
        workers = self.start_workers(3)
        self.wait_for_workers(3)
        job = self.submit(self.auto_job(steps=1000000), "--set", "elastic.min_workers=2", "--set",
                          "elastic.max_workers=3", "--set", "train.global_batch=12")
        self.wait_for_step(job, 3)
        watch = self.follow(job)
        worker = next(worker["id"] for worker in self.workers() if worker["job"] == job)
        self.sherd("drain", worker, check=0)
        watch.await_event(lambda event: event["event"] == "decision" and event["world"] == 2, "a second decision")
        watch.await_event(lambda event: event["event"] == "epoch" and event["world"] == 2, "a smaller world")
        self.assertFalse([event for event in watch.events() if event["event"] == "rollback"])
        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")
        self.assertIsNone(workers.poll())

    def test_a_job_whose_files_are_gone_fails_with_the_cause(self):
        self.start_coordinator()
        job = self.submit(self.auto_job(steps=3))
        self.text.unlink()
        self.start_workers(2)
        self.wait_for_state(job, "FAILED", limit=120)
        self.assertIn("no strategy could be run", self.get(job)["reason"])
        self.assertIn("text.txt", self.get(job)["reason"])

    def test_plan_ranks_by_a_profile(self):
        plan = json.loads(self.sherd("plan", self.auto_job(), "--workers", 2, "-o", "json", check=0).stdout)
        self.assertEqual(plan["auto"]["cost_model"], "cpu")
        self.assertEqual(plan["strategy"], plan["auto"]["keys"]["parallel"]["strategy"])
        times = [candidate["predicted_step_seconds"] for candidate in plan["auto"]["candidates"]]
        self.assertEqual(times, sorted(times))
        text = self.sherd("plan", self.auto_job(), "--workers", 2, check=0).stdout
        self.assertIn("strategy auto, ranked by the cost model cpu", text)
        nothing = self.sherd("plan", self.auto_job(), "--workers", 2, "--host-memory", "4KiB")
        self.assertEqual(nothing.returncode, 1)


if __name__ == "__main__":
    import unittest
    unittest.main()
