#!/usr/bin/env python3
"""Copies kernels/cuda to FOLDER/kernels/cuda with the mistakes of tests/simt/faults.toml in it, each behind a question
asked at run time (tests/faults/seeding.py).

    seed_kernels.py FOLDER
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/faults"))
import seeding  # noqa: E402


def main() -> int:
    by_file = seeding.by_file(seeding.parse((ROOT / "tests/simt/faults.toml").read_text()))
    folder = pathlib.Path(sys.argv[1])
    sources = {str(path.relative_to(ROOT)): path for path in (ROOT / "kernels/cuda").iterdir()
               if path.suffix in (".cu", ".cuh", ".h")}
    if unknown := set(by_file) - set(sources):
        sys.exit(f"seed_kernels: no such source: {', '.join(sorted(unknown))}")
    for name, path in sources.items():
        text = path.read_text()
        if name in by_file:
            try:
                text = seeding.seed(text, by_file[name])
            except seeding.ListError as error:
                sys.exit(f"seed_kernels: {error}")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
