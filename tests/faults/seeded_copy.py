"""A copy of the sources, build/faults, with all deliberate faults and all kill points in it.

It is built as the preset `release` is; what no seed is in comes out of the compiler cache. Without an environment variable
that asks for one of them, programs behave as those of the sources do.
"""

import os
import pathlib
import re
import subprocess
import sys

import seeding

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build/faults"
BUILD = COPY / "build/release"
BIN = BUILD / "bin"


def write_if_changed(path: pathlib.Path, content: bytes, mode: int) -> None:
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def source_names() -> set[str]:
    """What CMake builds from, relative to the root."""
    top = ROOT / "CMakeLists.txt"
    folders = ["cmake", *re.findall(r"add_subdirectory\((\w+)\)", top.read_text())]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")
             if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(ROOT)) for path in (top, ROOT / "CMakePresets.json", *files)}


def faults() -> list[seeding.Fault]:
    return seeding.parse((ROOT / "tests/faults/faults.toml").read_text())


def kill_points() -> list[seeding.KillPoint]:
    return seeding.parse_kill_points((ROOT / "tests/faults/kill_points.toml").read_text())


def update() -> None:
    """Makes the copy anew; files stay as they are where nothing has changed, so that they need not be built again."""
    by_file = seeding.by_file([*faults(), *kill_points()])
    names = source_names()
    if unknown := set(by_file) - names:
        raise seeding.ListError(f"no such source: {', '.join(sorted(unknown))}")
    for name in names:
        source = ROOT / name
        content = source.read_bytes()
        if name in by_file:
            content = seeding.seed(content.decode(), by_file[name]).encode()
        write_if_changed(COPY / name, content, source.stat().st_mode)
    for path in COPY.rglob("*"):
        if BUILD.parent not in path.parents and path.is_file() and str(path.relative_to(COPY)) not in names:
            path.unlink()


def build(targets: list[str]) -> None:
    """Ends the program when they cannot be built."""
    # As in scripts/test.sh: what has no seed in it is found in the cache under its relative name.
    environment = {**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
    for command in (["cmake", "--preset", "release"], ["cmake", "--build", str(BUILD), "--target", *targets]):
        result = subprocess.run(command, cwd=COPY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)
        if result.returncode != 0:
            sys.exit(f"{result.stdout[-8000:]}\n{' '.join(command)} failed")
