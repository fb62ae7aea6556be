"""`sherd-worker --device`: what it says without a GPU, and jobs on a back end that is opened at run time."""

import os
import pathlib
import re
import subprocess
import unittest

from harness import BIN, EndToEnd, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The software device of the tests behind the door of the real back end.
LIBRARY = os.environ["SHERD_DEVICE_LIBRARY"]


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

    def test_auto_without_a_gpu_says_so_and_trains_on_the_processor(self):
        self.start_coordinator()
        process = self.worker("--device", "auto", "--device-library", "/nowhere/libsherd_cuda.so")
        self.wait_for_workers(1)
        self.assertRegex(self.log_of(process), r"no GPU: there is no back end for GPUs at .*; running on CPU")
        self.assertEqual([worker["device"] for worker in self.workers()], ["cpu:0"])
        job = self.submit(self.job(steps=2, workers=1))
        self.wait_for_state(job, "SUCCEEDED")

    def test_a_job_runs_on_the_device_that_was_opened(self):
        self.start_coordinator()
        process = self.worker("--device", "auto", "--device-library", LIBRARY)
        self.wait_for_workers(1)
        self.assertIn("running on cuda:0, software device with 256 MiB", self.log_of(process))
        self.assertEqual([worker["device"] for worker in self.workers()], ["cuda:0"])
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

    def test_four_ranks_on_one_device_have_the_bits_of_one(self):
        check = ROOT / "scripts/gpu_check.py"
        result = subprocess.run(["/usr/bin/python3", str(check), "--quick", "--library", LIBRARY, "--bin", str(BIN)],
                                capture_output=True, text=True, timeout=240)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("zero3, four ranks on one GPU: 3 steps with the same bits as one rank", result.stdout)


if __name__ == "__main__":
    unittest.main()
