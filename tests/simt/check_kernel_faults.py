#!/usr/bin/env python3
"""Runs, for each mistake of tests/simt/faults.toml, the test that must catch it, and each of these tests without one.

    check_kernel_faults.py BIN_FOLDER [NUMBER…]

Exit code 1 when a mistake survives. A catch is an assertion of the test, or what the list says that the executor or a
sanitizer must say.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/faults"))
import seeding  # noqa: E402

LIMIT_SECONDS = 120


def run(folder: pathlib.Path, test: list[str], number: int) -> tuple[int | None, str]:
    binary, name = test
    # One order is enough where a sanitizer looks.
    orders = {} if "plain" in binary else {"SHERD_SIMT_ORDERS": "forward"}
    environment = {**os.environ, **orders, "SHERD_FAULT": str(number)}
    try:
        result = subprocess.run([folder / binary, f"--gtest_filter={name}", "--gtest_break_on_failure"],
                                env=environment, timeout=LIMIT_SECONDS, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return None, ""
    return result.returncode, result.stdout


def caught(fault: seeding.Fault, code: int | None, output: str) -> bool:
    if code in (0, None):
        return False
    return fault.says in output if fault.says else re.search(r"^\S+:\d+: Failure$", output, re.MULTILINE) is not None


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    numbers = {int(number) for number in sys.argv[2:]}
    faults = [fault for fault in seeding.parse((ROOT / "tests/simt/faults.toml").read_text())
              if not numbers or fault.number in numbers]
    survivors = 0
    for test in sorted({tuple(test) for fault in faults for test in fault.tests}):
        code, output = run(folder, list(test), 0)
        if code != 0 or not re.search(r"^\[  PASSED  \] [1-9]", output, re.MULTILINE):
            print(f"{' '.join(test)} does not pass without a fault (exit {code})\n{output[-3000:]}")
            survivors += 1
    for fault in faults:
        for test in fault.tests:
            start = time.monotonic()
            code, output = run(folder, test, fault.number)
            good = caught(fault, code, output)
            print(f"{fault.number:4} {'caught' if good else 'SURVIVES':8} {time.monotonic() - start:5.1f} s  {fault.what}",
                  flush=True)
            if not good:
                survivors += 1
                print(f"    exit {code}\n{output[-3000:]}")
    print(f"check_kernel_faults: {len(faults)} faults, {survivors} problems")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
