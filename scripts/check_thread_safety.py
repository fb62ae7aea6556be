#!/usr/bin/env python3
"""Runs clang's thread-safety analysis, as errors, over every source that uses annotated locks.

    scripts/check_thread_safety.py BUILD_DIRECTORY

The directory holds a compile_commands.json. Nothing is compiled to code, so this takes a fraction of a build.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCKS = re.compile(r"ABSL_GUARDED_BY|ABSL_EXCLUSIVE_LOCKS_REQUIRED|ABSL_LOCKS_EXCLUDED|absl::Mutex")
# GCC's library has std::source_location for compilers with a built-in of that name, which clang has from 15 on. The
# analysis asks for no more than that it is there.
SOURCE_LOCATION = """\
#if !__has_builtin(__builtin_source_location)
#include <experimental/source_location>
namespace std { using experimental::source_location; }
#endif
"""
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def uses_locks(source: pathlib.Path) -> bool:
    """The source or a header of ours that it includes."""
    seen, waiting = set(), [source]
    while waiting:
        path = waiting.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        text = path.read_text()
        if LOCKS.search(text):
            return True
        waiting.extend(ROOT / name for name in INCLUDE.findall(text))
    return False


def analyse(entry: dict, first: str) -> tuple[str, str]:
    """The file and what is wrong with it, `first` being included before all else."""
    arguments = shlex.split(entry["command"])
    if os.path.basename(arguments[0]) == "ccache":
        arguments = arguments[1:]
    output = arguments.index("-o")
    arguments = ["clang++", *arguments[1:output], *arguments[output + 2:]]
    arguments = [argument for argument in arguments if argument not in ("-c", "-MD")]
    # -MT and -MF name dependency files that this run does not write.
    for flag in ("-MT", "-MF"):
        while flag in arguments:
            at = arguments.index(flag)
            del arguments[at:at + 2]
    # Warnings of clang alone are not what this looks for.
    arguments += ["-include", first, "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety"]
    result = subprocess.run(arguments, cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], "" if result.returncode == 0 else result.stdout + result.stderr


def main() -> int:
    build = pathlib.Path(sys.argv[1])
    entries = json.loads((build / "compile_commands.json").read_text())
    chosen = {}
    for entry in entries:
        source = pathlib.Path(entry["file"])
        if ROOT in source.parents and build.resolve() not in source.parents and uses_locks(source):
            chosen[entry["file"]] = entry
    with tempfile.TemporaryDirectory() as scratch:
        first = pathlib.Path(scratch) / "source_location.h"
        first.write_text(SOURCE_LOCATION)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(lambda entry: analyse(entry, str(first)), chosen.values()))
    problems = [text for _, text in results if text]
    for text in problems:
        print(text)
    print(f"check_thread_safety: {len(chosen)} sources, {len(problems)} with errors")
    return 1 if problems or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
