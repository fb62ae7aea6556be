"""Runs of several contestants in turns, for benchmarks that say whether a choice among them was a good one.

Speeds of a shared machine drift from minute to minute, so each round runs every contestant once, in an order that rotates.
The first steps of a run are left out.
"""

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 3
# By how much a choice may be slower than the best.
TOLERANCE = 0.05


def corpus(path, size=1 << 20):
    """Speed does not depend on what the bytes say."""
    words = ["shard", "rank", "unit", "step", "bucket", "gather", "reduce", "scatter", "epoch", "ledger"]
    draw = random.Random(1)
    path.write_text(" ".join(draw.choice(words) for _ in range(size // 6)))


def command(*arguments):
    result = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))} ended with {result.returncode}:\n{result.stderr}")
    return result.stdout


def events_of(sherd, job, workers, out, settings=()):
    """All events of a run of the job."""
    flags = [word for setting in settings for word in ("--set", setting)]
    lines = command(sherd, "run", job, "--workers", workers, *flags, "--out", out, "-o", "json").splitlines()
    return [json.loads(line) for line in lines]


def steps_in_turns(sherd, job, workers, scratch, settings, rounds):
    """By contestant's name, for each round the steps after the warm-up; `settings` has the names and what to set."""
    names = list(settings)
    runs = collections.defaultdict(list)
    for turn in range(rounds):
        first = turn % len(names)
        for at, name in enumerate(names[first:] + names[:first]):
            events = events_of(sherd, job, workers, scratch / f"{job.stem}-{turn}-{at}", settings[name])
            runs[name].append([event for event in events if event["event"] == "step"][WARM_UP:])
    return runs


def main(description, what, cases, check, show, rounds, steps):
    """The command line of such a benchmark: a table or JSON of `check(name, sherd, scratch, rounds, steps)` for each case.
    Returns the exit code: 1 when a result does not hold."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", metavar=what, nargs="*", choices=[[], *cases],
                        help=f"of {', '.join(cases)} (default: all)")
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build/release/bin")
    parser.add_argument("--rounds", type=int, default=rounds, help="runs of every contestant")
    parser.add_argument("--steps", type=int, default=steps, help="steps of a run")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    if options.rounds < 1 or options.steps <= WARM_UP:
        parser.error(f"at least one round, and more steps than the {WARM_UP} of the warm-up")
    results = []
    with tempfile.TemporaryDirectory(prefix="sherd-bench-") as directory:
        scratch = pathlib.Path(directory)
        corpus(scratch / "corpus.txt")
        for name in options.cases or cases:
            results.append(check(name, options.bin / "sherd", scratch, options.rounds, options.steps))
            if options.output == "table":
                show(results[-1])
    if options.output == "json":
        print(json.dumps(results))
    return 0 if all(result["holds"] for result in results) else 1
