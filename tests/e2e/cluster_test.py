"""A coordinator and its workers as daemons: jobs side by side, deaths, cancels, late arrivals, growth."""

import json
import os
import pathlib
import signal
import time
import unittest

from harness import EndToEnd, alive, children_of, devices, growth, wait_for

LONG = 1000000  # steps that no test waits for


class Jobs(EndToEnd):
    def test_two_jobs_run_side_by_side_on_disjoint_workers_with_the_bits_of_a_run_alone(self):
        self.start_coordinator()
        self.start_workers(4)
        self.wait_for_workers(4)
        one = self.submit(self.job("one", steps=LONG))
        two = self.submit(self.job("two", steps=LONG, strategy="ddp"))
        for job in (one, two):
            self.wait_for_step(job, 100)
        self.assertEqual([self.state(job) for job in (one, two)], ["RUNNING", "RUNNING"])
        ranks = {job: {rank["worker"] for rank in self.get(job)["ranks"]} for job in (one, two)}
        self.assertFalse(ranks[one] & ranks[two])
        self.assertEqual(len(ranks[one] | ranks[two]), 4)
        curves = []
        for job in (one, two):
            self.sherd("cancel", job, check=0)
            self.wait_for_state(job, "CANCELLED")
            events = [json.loads(line) for line in
                      self.sherd("watch", job, "-o", "json", check=103).stdout.splitlines()]
            steps = [event for event in events if event["event"] == "step"]
            self.assertEqual([step["step"] for step in steps], list(range(1, len(steps) + 1)))
            curves.append([(step["loss"], step["grad_norm"]) for step in steps[:100]])
        # F1: zero3 and ddp are the same run, bit for bit.
        self.assertEqual(curves[0], curves[1])

    def test_a_second_job_waits_its_turn_and_says_for_what(self):
        self.start_coordinator()
        self.start_workers(2)
        self.wait_for_workers(2)
        first = self.submit(self.job("first", steps=LONG))
        self.wait_for_step(first, 2)
        second = self.submit(self.job("second", steps=3))
        self.assertEqual(self.state(second), "QUEUED")
        self.assertIn("idle", self.get(second)["reason"])
        self.sherd("cancel", first, check=0)
        self.wait_for_state(second, "SUCCEEDED")
        self.assertEqual(self.state(first), "CANCELLED")

    def test_cancel_while_queued_and_while_running(self):
        self.start_coordinator()
        queued = self.submit(self.job("queued"))
        self.sherd("cancel", queued, check=0)
        self.wait_for_state(queued, "CANCELLED")
        self.start_workers(2)
        self.wait_for_workers(2)
        running = self.submit(self.job("running", steps=LONG))
        self.wait_for_step(running, 2)
        # It waits neither for the job's end nor for a rank that may come.
        refused = self.sherd("logs", running, "--rank", 9, check=2)
        self.assertIn("--rank 9 is out of range: the job has had 2 ranks at most", refused.stderr)
        self.assertEqual(refused.stdout, "")
        start = time.monotonic()
        self.sherd("cancel", running, check=0)
        self.wait_for_state(running, "CANCELLED")
        self.wait_for_workers(2)
        self.assertLess(time.monotonic() - start, 5)
        # F51: the exit code tells.
        self.assertEqual(self.sherd("watch", running).returncode, 103)
        # F52: what was logged before the cancel can still be read.
        self.assertIn("parameters", self.sherd("logs", running, check=103).stdout)
        self.sherd("logs", running, "--rank", 1, check=103)
        self.sherd("logs", running, "--rank", 2, check=2)

    def test_a_worker_that_arrives_late_starts_the_job(self):
        self.start_coordinator()
        job = self.submit(self.job(workers=3))
        self.start_workers(2, "--name", "early")
        self.wait_for_workers(2)
        self.assertEqual(self.state(job), "QUEUED")
        self.assertIn("3", self.get(job)["reason"])
        self.start_workers(1, "--name", "late")
        self.wait_for_state(job, "SUCCEEDED")

    def test_a_retried_submit_returns_the_same_job(self):  # F53
        self.start_coordinator()
        path = self.job()
        first = json.loads(self.sherd("submit", path, "--request-id", "r-1", "-o", "json", check=0).stdout)
        again = json.loads(self.sherd("submit", path, "--request-id", "r-1", "-o", "json", check=0).stdout)
        self.assertEqual(first["id"], again["id"])
        self.assertEqual(len(json.loads(self.sherd("list", "-o", "json", check=0).stdout)), 1)

    def test_a_job_that_fails_says_so_by_its_exit_code(self):  # F51, F15
        self.start_coordinator()
        self.start_workers(2)
        path = self.job(steps=500)
        path.write_text(path.read_text().replace("lr: 1e-3", "lr: 1e30").replace("min_lr: 1e-4", "min_lr: 1e29"))
        job = self.submit(path)
        self.wait_for_state(job, "FAILED")
        self.assertEqual(self.sherd("watch", job).returncode, 100)
        self.assertIn("diverged", self.get(job)["reason"])

    def test_the_python_client_submits_watches_and_cancels(self):
        self.start_coordinator()
        self.start_workers(2)
        self.wait_for_workers(2)
        root = pathlib.Path(__file__).resolve().parents[2]
        process = self.run_python(root / "examples/client.py", "--coordinator", self.address,
                                  "--text", self.text)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        jobs = json.loads(self.sherd("list", "-o", "json", check=0).stdout)
        self.assertIn("CANCELLED", {job["state"] for job in jobs})


class Deaths(EndToEnd):
    def recover_from_kill(self, supervisor, job, rank):
        """Kills the worker of a rank; the epoch that follows names it, how it ended and since when."""
        pids = devices(supervisor)
        victim = next(each for each in self.get(job)["ranks"] if each["rank"] == rank)
        epoch = self.get(job)["epoch"]
        os.kill(pids[victim["worker"].split("/")[1]], signal.SIGKILL)
        wait_for(lambda: self.get(job)["epoch"] > epoch and self.state(job) == "RUNNING", "another epoch runs")
        step = self.get(job)["step"]
        self.wait_for_step(job, step + 5)
        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")
        events = [json.loads(line) for line in
                  self.sherd("watch", job, "-o", "json", check=103).stdout.splitlines()]
        reason = [event for event in events if event["event"] == "epoch"][-1]["reason"]
        for word in (victim["worker"], f"rank {rank}", "step", "SIGKILL"):
            self.assertIn(word, reason)

    def test_a_killed_worker_is_named_and_its_job_goes_on_when_it_is_back(self):  # F21, F22, F54
        # No spare: the job's world is all there is, and the supervisor starts the worker anew.
        self.start_coordinator()
        supervisor = self.start_workers(3)
        self.wait_for_workers(3)
        job = self.submit(self.job(steps=LONG, workers=3))
        self.wait_for_step(job, 3)
        self.recover_from_kill(supervisor, job, 1)
        # The next job finds three workers.
        self.wait_for_workers(3)
        self.wait_for_state(self.submit(self.job("next", workers=3)), "SUCCEEDED")

    def test_who_only_passes_a_death_on_is_not_blamed(self):  # F54
        # Two axes: the news goes from the dead rank's groups to the others.
        self.start_coordinator()
        supervisor = self.start_workers(4)
        for rank in range(4):
            with self.subTest(rank):
                self.wait_for_workers(4)
                job = self.submit(self.job(f"hybrid-{rank}", steps=LONG, workers=4, strategy="hybrid"),
                                  "--set", "parallel.shard_group=2")
                self.wait_for_step(job, 3 + rank)
                self.recover_from_kill(supervisor, job, rank)

    def test_a_frozen_worker_ends_its_epoch_when_its_lease_lapses(self):
        self.start_coordinator("--failure-detection", "1s")
        supervisor = self.start_workers(2)
        self.wait_for_workers(2)
        path = self.job(steps=LONG)
        path.write_text(path.read_text().replace("failure_detection: 3s", "failure_detection: 1s"))
        job = self.submit(path)
        self.wait_for_step(job, 2)
        frozen = sorted(devices(supervisor).items())[0][1]
        os.kill(frozen, signal.SIGSTOP)
        try:
            self.wait_for_state(job, "RECOVERING", limit=10)
            wait_for(lambda: "lease" in self.get(job)["reason"] or "wait" in self.get(job)["reason"], "a reason")
        finally:
            os.kill(frozen, signal.SIGCONT)
        # Thawed, it is a worker like others.
        self.wait_for_state(job, "RUNNING")
        self.assertEqual(self.get(job)["epoch"], 2)
        self.sherd("cancel", job, check=0)

    def test_a_dead_supervisor_leaves_no_worker_behind(self):  # F36
        self.start_coordinator()
        supervisor = self.start_workers(2)
        self.wait_for_workers(2)
        workers = children_of(supervisor.pid)
        self.assertEqual(len(workers), 2)
        self.stop(supervisor, signal.SIGKILL)
        wait_for(lambda: not any(alive(pid) for pid in workers), "its workers ended", limit=10)
        self.wait_for_workers(2, "lost")
        lost = self.sherd("drain", self.workers()[0]["id"], check=1)
        self.assertIn("is lost already; there is nothing to drain", lost.stderr)
        unknown = self.sherd("drain", "nobody/cpu:0", check=102)
        self.assertIn('no worker has the id "nobody/cpu:0"', unknown.stderr)

    def test_a_node_is_ready_while_each_of_its_workers_has_a_coordinator(self):
        coordinator = self.start_coordinator()
        squatter = self.start("sherd-worker", "--coordinator", self.address, "--name", "node", "--device", "cpu:1")
        self.wait_for_workers(1)
        node = self.start_workers(2, "--name", "node", "--health", "127.0.0.1:0")
        # The first slot has one, the second is refused for good.
        self.wait_for_workers(2)
        wait_for(lambda: "not started again" in pathlib.Path(node.log_path).read_text(), "the second worker is refused")
        self.assertTrue(self.serves(self.health_address(node)))
        self.assertFalse(self.serves(self.health_address(node), "ready"))
        for process in (node, squatter):
            self.stop(process)

        node = self.start_workers(2, "--name", "node", "--health", "127.0.0.1:0")
        wait_for(lambda: self.serves(self.health_address(node), "ready"), "both workers have a coordinator")
        self.assertEqual(sum(worker["status"] == "idle" for worker in self.workers()), 2)
        self.stop(coordinator, signal.SIGKILL)
        wait_for(lambda: not self.serves(self.health_address(node), "ready"), "they have none")
        self.assertTrue(self.serves(self.health_address(node)))

    def test_a_coordinator_that_comes_back_keeps_the_running_job(self):  # F30, F31
        coordinator = self.start_coordinator()
        self.start_workers(2)
        self.wait_for_workers(2)
        job = self.submit(self.job(steps=1500))
        self.wait_for_step(job, 3)
        self.stop(coordinator, signal.SIGKILL)
        self.start_coordinator(listen=self.address)
        self.assertIn(self.state(job), ("RUNNING", "SUCCEEDED"))
        self.wait_for_state(job, "SUCCEEDED")

    def test_a_second_coordinator_on_the_same_log_refuses_to_start(self):
        self.start_coordinator()
        second = self.start("sherd-coordinator", "--listen", "127.0.0.1:0", "--data-dir", self.coordinator_data)
        self.assertEqual(second.wait(10), 1)
        self.assertIn(str(self.coordinator_data), pathlib.Path(second.log_path).read_text())

    def test_a_taken_port_is_one_sentence(self):  # F28
        self.start_coordinator()
        second = self.start("sherd-coordinator", "--listen", self.address, "--data-dir", self.scratch / "other")
        self.assertEqual(second.wait(10), 1)
        text = pathlib.Path(second.log_path).read_text()
        self.assertIn(self.address, text)
        self.assertLessEqual(len(text.strip().splitlines()), 2)


class Growth(EndToEnd):
    def test_twenty_jobs_in_a_row_leave_memory_threads_descriptors_and_maps_as_they_were(self):
        coordinator = self.start_coordinator()
        supervisor = self.start_workers(2)
        self.wait_for_workers(2)

        def run_jobs(first, count):
            for index in range(first, first + count):
                job = self.submit(self.job(f"job{index}", steps=5, strategy=("zero3", "ddp")[index % 2],
                                           out=self.scratch / "weights"))
                self.wait_for_state(job, "SUCCEEDED")

        run_jobs(0, 6)  # one-time allocations of libraries
        watched = [coordinator.pid, supervisor.pid, *children_of(supervisor.pid)]
        before = {pid: growth(pid) for pid in watched}
        run_jobs(6, 20)

        def settled():
            return all(growth(pid)[what] <= before[pid][what] + slack
                       for pid in watched
                       # gRPC's own threads come and go.
                       for what, slack in (("threads", 2), ("descriptors", 0), ("maps", 8)))

        wait_for(settled, f"no growth: {before} {[growth(pid) for pid in watched]}", limit=10)
        for pid in watched:
            grown = growth(pid)["resident_kib"] - before[pid]["resident_kib"]
            self.assertLess(grown, 3072, f"{pid} grew by {grown} KiB over 20 jobs")


class Top(EndToEnd):
    def test_it_shows_what_runs_and_waits_for_a_coordinator_that_restarts(self):
        coordinator = self.start_coordinator()
        self.start_workers(2)
        self.wait_for_workers(2)
        job = self.submit(self.job(steps=LONG))
        self.wait_for_step(job, 3)
        looks = self.sherd("top", "--count", 2, "--interval", "100ms", "-o", "json", check=0).stdout.splitlines()
        self.assertEqual(len(looks), 2)
        look = json.loads(looks[1])
        self.assertEqual(look["workers"], {"busy": 2})
        [shown] = look["jobs"]
        self.assertEqual((shown["id"], shown["state"]), (job, "RUNNING"))
        self.assertGreater(shown["last_step"]["tokens_per_second"], 0)
        self.assertEqual(shown["last_epoch"]["epoch"], 1)
        for rank in shown["ranks"]:
            self.assertEqual(rank["peak"]["predicted"], rank["peak"]["measured"])
        text = self.sherd("top", "--count", 1, check=0).stdout
        self.assertRegex(text, r"2 workers: 2 busy\n")
        self.assertRegex(text, rf"{job} +job +RUNNING +\d+/{LONG} ")

        top = self.start("sherd", "top", "--interval", "100ms", "-o", "json")
        said = pathlib.Path(top.log_path)
        wait_for(lambda: said.read_text().count("\n") > 2, "looks")
        self.stop(coordinator, signal.SIGKILL)
        wait_for(lambda: "cannot reach the coordinator" in said.read_text(), "it says so")
        self.start_coordinator(listen=self.address)
        looks = said.read_text().count("\n")
        wait_for(lambda: said.read_text().count("\n") > looks + 2, "it looks again")
        self.assertEqual(self.stop(top, signal.SIGINT), 0)
        self.sherd("cancel", job, check=0)
        self.wait_for_state(job, "CANCELLED")
        refused = self.sherd("top", "--interval", "soon")
        self.assertEqual((refused.returncode, "100ms and 1h" in refused.stderr), (2, True), refused.stderr)


class Metrics(EndToEnd):
    def test_coordinator_and_workers_serve_what_they_do(self):
        coordinator = self.start_coordinator("--metrics", "127.0.0.1:0")
        worker = self.start("sherd-worker", "--coordinator", self.address, "--device", "cpu:0",
                            "--metrics", "127.0.0.1:0", "--data-root", self.scratch,
                            "--output-root", self.scratch)
        self.wait_for_workers(1)
        job = self.submit(self.job(steps=LONG, workers=1))
        self.wait_for_step(job, 3)
        self.assertIn("sherd_build_info", self.scrape(self.metrics_address(coordinator)))
        text = self.scrape(self.metrics_address(worker))
        for series in ("sherd_step_seconds_bucket", "sherd_phase_seconds_total", "sherd_tokens_total",
                       "sherd_loss", "sherd_memory_bytes", "sherd_collective_seconds_sum",
                       "sherd_collective_bytes_total", "sherd_build_info", "sherd_job_info"):
            self.assertIn(series, text)
        self.sherd("cancel", job, check=0)
        self.wait_for_workers(1)
        # F58: an ended job's series are gone.
        self.assertNotIn(f'job="{job}"', self.scrape(self.metrics_address(worker)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
