"""The processes of the end-to-end tests, for benchmarks that kill some of them."""

import contextlib
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
BIN = HERE.parent / "build/release/bin"


def load_harness(bin_directory):
    """The tests' harness, with the binaries of a directory."""
    os.environ["SHERD_BIN"] = str(pathlib.Path(bin_directory).resolve())
    sys.path.insert(0, str(HERE.parent / "tests/e2e"))
    import harness
    return harness


@contextlib.contextmanager
def cluster(harness):
    """A scratch directory and what is started in it; at the end nothing of it may be left."""
    case = harness.EndToEnd()
    case.setUp()
    try:
        yield case
    finally:
        case.stack.close()
