#!/usr/bin/env python3
"""Ends real workers at every point of the elastic protocol that tests/faults/kill_points.toml names, in small jobs whose
curves must be that of an undisturbed one: builds the workers with these points and runs tests/e2e/kill_points_test.py.

    scripts/check_kill_points.py [--build-only] [TEST…]

TEST is as of Python's unittest. Coordinator and client are those of build/release, which must be there.
"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/faults"))
import seeded_copy  # noqa: E402
import seeding  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    try:
        seeded_copy.update()
    except seeding.ListError as error:
        sys.exit(f"check_kill_points: {error}")
    seeded_copy.build(["sherd-worker"])
    if arguments.build_only:
        return 0
    environment = {"SHERD_BIN": str(ROOT / "build/release/bin"), **os.environ, "PYTHONDONTWRITEBYTECODE": "1",
                   "SHERD_SEEDED_WORKER": str(seeded_copy.BIN / "sherd-worker")}
    return subprocess.run(["/usr/bin/python3", str(ROOT / "tests/e2e/kill_points_test.py"), "-v", *arguments.tests],
                          env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
