#!/usr/bin/env python3
"""Shows that the tests catch faults: builds them once with all of tests/faults/faults.toml in it, then runs, for each
fault, the test that the list names, which must fail with an assertion of its own.

    scripts/check_faults.py [--build-only] [NUMBER…]

The sources are seeded in a copy, build/faults, which is built as the preset `release` is (tests/faults/seeded_copy.py). With numbers, only those faults are tried. Exit code 1 when a fault survives.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/faults"))
import seeded_copy  # noqa: E402
import seeding  # noqa: E402

LIMIT_SECONDS = 60
# The kinds of faults that the list must hold: sharding and numbers.
KINDS = {f"F{number}" for number in range(1, 15)}


def run_test(test: list[str], number: int, scratch: str) -> tuple[int | None, str, float]:
    """Exit code (negative: signal; None: out of time), output and seconds. Ends at the first failed assertion."""
    binary, name = test
    environment = {**os.environ, "TEST_TMPDIR": scratch, "TMPDIR": scratch, "SHERD_FAULT": str(number)}
    start = time.monotonic()
    process = subprocess.Popen(
        [seeded_copy.BIN / binary, f"--gtest_filter={name}", "--gtest_break_on_failure"], env=environment, cwd=scratch,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
    try:
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        code = None
    return code, output, time.monotonic() - start


def passes(code: int | None, output: str) -> bool:
    """An empty filter passes nothing."""
    return code == 0 and re.search(r"^\[  PASSED  \] [1-9]", output, re.MULTILINE) is not None


def catches(fault: seeding.Fault, code: int | None, output: str) -> bool:
    """By an assertion of the test, or by the check that the list names; a crash or a hang is no catch."""
    if code in (0, None):
        return False
    if fault.says is not None:
        return fault.says in output
    return re.search(r"^\S+:\d+: Failure$", output, re.MULTILINE) is not None


def last_lines(output: str) -> str:
    return "\n".join("    " + line for line in output.splitlines()[-12:])


def check_without_faults(tests: list[list[str]], pool, scratch: str) -> bool:
    good = True
    for test, (code, output, seconds) in zip(tests, pool.map(lambda test: run_test(test, 0, scratch), tests)):
        if not passes(code, output):
            print(f"  {' '.join(test)} does not pass without a fault ({seconds:.1f} s, exit {code})")
            print(last_lines(output))
            good = False
    return good


def check_faults(faults: list[seeding.Fault], pool, scratch: str) -> int:
    """Prints the table; the number of faults that survive."""
    trials = [(fault, test) for fault in faults for test in fault.tests]
    survivors = set()
    outcomes = pool.map(lambda trial: run_test(trial[1], trial[0].number, scratch), trials)
    for (fault, test), (code, output, seconds) in zip(trials, outcomes):
        caught = catches(fault, code, output)
        word = "caught" if caught else "SURVIVES"
        print(f"{fault.number:4} {fault.kind:8} {word:8} {seconds:5.1f} s  {' '.join(test)}", flush=True)
        if not caught:
            survivors.add(fault.number)
            print(f"    {fault.what}\n    exit {'none in time' if code is None else code}\n{last_lines(output)}")
    return len(survivors)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("numbers", nargs="*", type=int)
    arguments = parser.parse_args()
    start = time.monotonic()
    try:
        faults = seeded_copy.faults()
        if missing := KINDS - {fault.kind for fault in faults}:
            raise seeding.ListError(f"no fault of kind {', '.join(sorted(missing))}")
        seeded_copy.update()
    except seeding.ListError as error:
        sys.exit(f"check_faults: {error}")
    seeded_copy.build(sorted({binary for fault in faults for binary, _ in fault.tests}))
    built = time.monotonic()
    if arguments.build_only:
        return 0
    if arguments.numbers:
        faults = [fault for fault in faults if fault.number in arguments.numbers]
    tests = [list(test) for test in sorted({tuple(test) for fault in faults for test in fault.tests})]
    with tempfile.TemporaryDirectory() as scratch, \
            concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        if not check_without_faults(tests, pool, scratch):
            return 1
        survivors = check_faults(faults, pool, scratch)
    print(f"check_faults: {len(faults)} faults, {survivors} survive; {built - start:.0f} s to build, "
          f"{time.monotonic() - built:.0f} s to run")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
