"""`sherd-worker --device`: what it says without a GPU, and jobs on a back end that is opened at run time."""

import importlib.util
import os
import pathlib
import re
import subprocess
import time
import unittest

from harness import BIN, EndToEnd, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The software device of the tests behind the door of the real back end.
LIBRARY = os.environ["SHERD_DEVICE_LIBRARY"]
CHECK = ROOT / "scripts/gpu_check.py"


class Device(EndToEnd):
    def worker(self, *arguments):
        return self.start("sherd-worker", "--coordinator", self.address, "--data-root", self.scratch, "--output-root",
                          self.scratch, *arguments)

    def log_of(self, process):
        return pathlib.Path(process.log_path).read_text()

    def test_a_gpu_that_is_named_and_missing_ends_the_worker_with_what_is_missing(self):
        self.start_coordinator()
        process = self.worker("--device", "cuda:0", "--device-library", "/nowhere/libsherd_cuda.so")
        wait_for(lambda: process.poll() is not None, "the worker's end")
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("--device cuda:0: there is no back end for GPUs at /nowhere/libsherd_cuda.so", self.log_of(process))
        process = self.worker("--device", "gpu")
        wait_for(lambda: process.poll() is not None, "the worker's end")
        self.assertEqual(process.returncode, 2)
        self.assertIn("use auto, cpu:INDEX or cuda:INDEX", self.log_of(process))
        process = self.worker("--device", "cpu:0", "--nccl", "/nowhere/libnccl.so.2")
        wait_for(lambda: process.poll() is not None, "the worker's end")
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("--nccl /nowhere/libnccl.so.2: the device is no GPU", self.log_of(process))

    def test_auto_without_a_gpu_says_so_and_trains_on_the_processor(self):
        self.start_coordinator()
        process = self.worker("--device", "auto", "--device-library", "/nowhere/libsherd_cuda.so")
        self.wait_for_workers(1)
        self.assertRegex(self.log_of(process), r"no GPU: there is no back end for GPUs at .*; running on CPU")
        self.assertEqual([worker["device"] for worker in self.workers()], ["cpu:0"])
        job = self.submit(self.job(steps=2, workers=1))
        self.wait_for_state(job, "SUCCEEDED")

    def curve_on(self, device, *arguments):
        """The losses of a job on a worker that owns the device, alone."""
        process = self.worker("--device", device, *arguments)
        self.wait_for_workers(1)
        self.assertEqual([worker["device"] for worker in self.workers() if worker["status"] == "idle"], [device])
        job = self.submit(self.job(name=device.replace(":", ""), steps=3, workers=1))
        events = self.follow(job).finish()
        self.assertEqual(self.state(job), "SUCCEEDED")
        self.stop(process)
        return [event["loss"] for event in events if event["event"] == "step"], self.log_of(process)

    def test_a_job_on_the_device_that_was_opened_has_the_processors_curve(self):
        self.start_coordinator()
        device, log = self.curve_on("cuda:0", "--device-library", LIBRARY)
        self.assertIn("running on cuda:0, software device with 256 MiB", log)
        processor, _ = self.curve_on("cpu:0")
        self.assertEqual(len(device), 3)
        # Sums are taken in another order; operands are rounded to 8 bits.
        for ours, theirs in zip(device, processor, strict=True):
            self.assertLess(abs(ours - theirs), 1e-2 * theirs)
        self.assertNotEqual(device, processor, "the processor computed both")

    def test_a_job_whose_device_fails_goes_on_in_another_process(self):
        self.start_coordinator()
        arguments = ["--coordinator", self.address, "--data-root", self.scratch, "--output-root", self.scratch,
                     "--device", "cuda:0", "--device-library", LIBRARY]
        failing = self.start("sherd-worker", *arguments, "--name", "failing",
                             env={**self.environment(), "SHERD_TEST_FAILING_PRODUCT": "20"})
        self.wait_for_workers(1)
        job = self.submit(self.job(steps=2, workers=1))
        wait_for(lambda: failing.poll() is not None, "the end of a worker whose device has failed")
        self.assertEqual(failing.returncode, 70)
        log = self.log_of(failing)
        self.assertIn("failed: cuda:0: a product of matrices", log)
        self.assertIn("leaving for a new process, since the device has failed: cuda:0: a product of matrices", log)
        self.start("sherd-worker", *arguments, "--name", "new")
        self.wait_for_state(job, "SUCCEEDED")

    def test_what_a_worker_holds_outlives_its_device(self):
        self.start_coordinator()
        arguments = ["--coordinator", self.address, "--data-root", self.scratch, "--output-root", self.scratch,
                     "--device", "cuda:0", "--device-library", LIBRARY]
        failing = self.start("sherd-worker", *arguments, "--name", "failing",
                             env={**self.environment(), "SHERD_TEST_FAILING_PRODUCT": "600"})
        self.wait_for_workers(1)
        job = self.submit(self.job(steps=12, workers=1))
        events = self.follow(job)
        # Nobody but the worker whose device fails holds what it has committed.
        wait_for(lambda: "since the device has failed" in self.log_of(failing), "a device that fails")
        self.start("sherd-worker", *arguments, "--name", "new")
        told = events.finish()
        self.assertEqual(self.state(job), "SUCCEEDED")
        steps = [event["step"] for event in told if event["event"] == "step"]
        self.assertEqual(steps, list(range(1, 13)))
        self.assertFalse([event for event in told if event["event"] == "rollback"], told)
        resumed = [event["resumed_step"] for event in told if event["event"] == "epoch" and event["epoch"] > 1]
        self.assertTrue(resumed and min(resumed) > 0, told)
        wait_for(lambda: failing.poll() is not None, "the end of the worker whose device has failed")
        self.assertEqual(failing.returncode, 70)

    def test_heads_that_a_device_has_no_kernels_for_fail_the_job_there_alone(self):
        self.start_coordinator()
        wide = ["--set", "model.hidden=264", "--set", "model.heads=1"]
        device = self.worker("--device", "cuda:0", "--device-library", LIBRARY)
        self.wait_for_workers(1)
        job = self.submit(self.job("on_device", steps=2, workers=1), *wide)
        self.wait_for_state(job, "FAILED", "SUCCEEDED")
        self.assertIn("heads of this job have 264 channels, and cuda:0 takes at most 256", self.get(job)["reason"])
        # The worker goes on.
        self.wait_for_workers(1)
        self.assertIsNone(device.poll())
        self.stop(device)
        self.worker("--device", "cpu:0")
        self.wait_for_workers(1)
        job = self.submit(self.job("on_processor", steps=2, workers=1), *wide)
        self.wait_for_state(job, "SUCCEEDED")

    def test_a_supervisor_has_a_worker_on_each_gpu(self):
        self.start_coordinator()
        process = self.worker("--devices", "cuda:2", "--device-library", LIBRARY)
        self.wait_for_workers(1)
        self.assertEqual([worker["device"] for worker in self.workers()], ["cuda:0"])
        # There is no second one: that worker rests, and the first one works.
        wait_for(lambda: "--device cuda:1: the only GPU is cuda:0" in self.log_of(process), "what is missing")
        job = self.submit(self.job(steps=2, workers=1))
        self.wait_for_state(job, "SUCCEEDED")

    def needed(self, path):
        """The libraries that a program or library asks the loader for, and those that these ask for."""
        direct = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
        linked = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
        return re.findall(r"NEEDED.*\[(.*)\]", direct), linked

    def test_no_program_links_anything_of_cuda(self):
        for program in ["sherd", "sherd-coordinator", "sherd-worker"]:
            direct, linked = self.needed(BIN / program)
            self.assertIn("libc.so.6", direct)
            self.assertIsNone(re.search(r"libcuda|libcudart|libcublas|libnccl", linked), f"{program}:\n{linked}")

    def test_the_back_end_for_gpus_needs_no_driver_to_be_opened(self):
        library = BIN / "libsherd_cuda.so"
        if not library.exists():
            self.skipTest("SKIPPED: this build has no back end for GPUs (no nvcc)")
        direct, _ = self.needed(library)
        self.assertTrue(any(name.startswith("libcublasLt") for name in direct), direct)
        self.assertFalse([name for name in direct if name.startswith(("libcuda.so", "libcudart", "libnccl"))], direct)

    def test_the_check_for_gpus_runs_all_its_parts_on_the_software_device(self):
        result = subprocess.run(["/usr/bin/python3", str(CHECK), "--quick", "--library", LIBRARY, "--bin", str(BIN)],
                                capture_output=True, text=True, timeout=400)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("zero3, four ranks on one GPU: 3 steps with the same bits as one rank", result.stdout)
        self.assertIn("NCCL life cycle: not run: the device is no GPU", result.stdout)
        for row in (r"ops conformance: \d+ tests passed", r"copy within the card: [\d.]+ GB/s",
                    r"attention forward: [\d.]+ TFLOP/s, \d+% of the product's", r"tiny: [\d,]+ tokens/s"):
            self.assertRegex(result.stdout, row)
        # A part that fails is told, and so is the whole.
        failed = subprocess.run(["/usr/bin/python3", str(CHECK), "--quick", "--library", "/nowhere/none.so", "--bin", str(BIN)],
                                capture_output=True, text=True, timeout=400)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("| ops conformance | FAILED |", failed.stdout)
        self.assertIn("there is no back end for GPUs at /nowhere/none.so", failed.stderr)

    def test_the_check_for_gpus_ends_when_its_time_is_over(self):
        begin = time.monotonic()
        result = subprocess.run(["/usr/bin/python3", str(CHECK), "--quick", "--limit", "0.2", "--library", LIBRARY, "--bin", str(BIN)],
                                capture_output=True, text=True, timeout=120)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for row in ("zero3, four ranks on one GPU", "rates", "tiny"):
            self.assertIn(f"| {row} | FAILED |", result.stdout)
        self.assertIn("gpu_check: tiny: the 0.2 s for all checks are over", result.stderr)

    def load_check(self):
        loader = importlib.util.spec_from_file_location("gpu_check", CHECK)
        gpu_check = importlib.util.module_from_spec(loader)
        loader.loader.exec_module(gpu_check)
        return gpu_check

    def test_the_check_for_gpus_counts_flops_as_the_plan_does(self):
        gpu_check = self.load_check()
        # 124,439,808 parameters, of which 1024 × 768 positions are looked up; 12 layers of 1024 · 768 twice, half of it masked.
        self.assertEqual(gpu_check.flops_of_token(12, 768, 50257, 1024), 6 * (124439808 - 1024 * 768) + 6 * 12 * 1024 * 768)

    def test_the_product_that_attention_is_held_against_is_measured_without_the_cast_before_it(self):
        gpu_check = self.load_check()
        self.assertEqual(gpu_check.product_rate({"product_flops": 8.0, "product_seconds": 5.0, "cast_seconds": 1.0}), 2.0)
        # A cast that seems to take longer than all of it.
        self.assertEqual(gpu_check.product_rate({"product_flops": 8.0, "product_seconds": 2.0, "cast_seconds": 3.0}), 8.0)

    def test_results_take_the_place_of_what_was_on_their_page(self):
        gpu_check = self.load_check()
        page = gpu_check.with_results(gpu_check.RESULTS.read_text(), ["the table"])
        self.assertTrue(page.startswith("# What was measured on a GPU\n\nthe table\n\n## How\n"), page)
        self.assertEqual(gpu_check.with_results(page, ["the table"]), page)

    def test_without_a_gpu_nothing_is_checked_and_that_is_said(self):
        found = subprocess.run(["sh", "-c", "nvidia-smi -L"], capture_output=True, text=True)
        if "GPU" in found.stdout:
            self.skipTest("SKIPPED: there is a GPU")
        result = subprocess.run([str(ROOT / "scripts/gpu_check.sh")], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 77)
        self.assertIn("there is no NVIDIA GPU here", result.stderr)


if __name__ == "__main__":
    unittest.main()
