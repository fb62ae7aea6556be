"""What scripts/check_kernel_resources.py says of reports of the compiler."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/check_kernel_resources.py"


def report(registers: int, spills: int) -> str:
    return (f"ptxas info    : Compiling entry function '_ZN5sherd10CastKernelIffEEvPKfPflb' for 'sm_90'\n"
            f"ptxas info    : Function properties for _ZN5sherd10CastKernelIffEEvPKfPflb\n"
            f"    {spills} bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 1 barriers, 128 bytes smem\n")


class KernelResources(unittest.TestCase):
    def run_on(self, text: str, budgets: str) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ("budgets", "report")]
            for path, content in zip(paths, (budgets, text)):
                path.write_text(content)
            result = subprocess.run([sys.executable, SCRIPT, *paths], stdout=subprocess.PIPE, text=True)
        return result.returncode, result.stdout

    def test_accepts_what_is_within_its_budget(self):
        self.assertEqual(self.run_on(report(40, 0), "[registers]\nCastKernel = 40")[0], 0)

    def test_an_instance_has_a_budget_of_its_own(self):
        budgets = '[registers]\nCastKernel = 40\n"CastKernel<float, float>" = 50'
        self.assertIn("no kernel is called CastKernel,", self.run_on(report(50, 0), budgets)[1])
        self.assertEqual(self.run_on(report(50, 0), '[registers]\n"CastKernel<float, float>" = 50')[0], 0)

    def test_refuses_spills_and_more_registers(self):
        code, output = self.run_on(report(40, 8), "[registers]\nCastKernel = 40")
        self.assertEqual(code, 1)
        self.assertIn("CastKernel<float, float> for sm_90 spills 16 bytes", output)
        code, output = self.run_on(report(41, 0), "[registers]\nCastKernel = 40")
        self.assertEqual(code, 1)
        self.assertIn("uses 41 registers, its budget is 40", output)

    def test_refuses_kernels_without_budget_budgets_without_kernel_and_nothing(self):
        self.assertIn("has no budget", self.run_on(report(40, 0), "[registers]")[1])
        self.assertIn("no kernel is called OldKernel",
                      self.run_on(report(40, 0), "[registers]\nCastKernel = 40\nOldKernel = 1")[1])
        self.assertEqual(self.run_on("", "[registers]")[0], 1)


if __name__ == "__main__":
    unittest.main()
