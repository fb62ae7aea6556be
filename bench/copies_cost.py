#!/usr/bin/env python3
"""What it costs that every step is stored where it survives: `elastic.replicas` 1 against 0.

  bench/copies_cost.py [--bin build/release/bin] [--rounds R] [--steps N] [-o table|json]

GPT-2 124M, batch 4 × 256, zero3, four ranks on this machine, in turns: speeds of a shared machine drift, so
each round runs both once, in an order that alternates, and they are compared by the median over all steps
of all rounds. The first steps of a run are left out. Exit code 1 when copies cost more than 8 %.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

GOAL = 0.08
WARM_UP = 2
JOB = """\
name: copies
model: {{preset: gpt2-124m}}
data: {{train: [{text}]}}
train: {{steps: {steps}, global_batch: 4, micro_batch: 1, seq_len: 256}}
parallel: {{strategy: zero3}}
elastic: {{min_workers: 4, max_workers: 4}}
"""


def step_seconds(sherd, job, replicas, out):
    arguments = [sherd, "run", job, "--workers", "4", "--out", out, "-o", "json",
                 "--set", f"elastic.replicas={replicas}"]
    result = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))} ended with {result.returncode}:\n{result.stderr}")
    steps = [event for event in map(json.loads, result.stdout.splitlines()) if event["event"] == "step"]
    return [step["step_ms"] / 1e3 for step in steps[WARM_UP:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("-o", dest="format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    seconds = {0: [], 1: []}
    with tempfile.TemporaryDirectory(prefix="sherd-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        text = scratch / "corpus.txt"
        text.write_text("the shard of a rank is kept by the rank that owns it.\n" * 20000)
        job = scratch / "job.yaml"
        job.write_text(JOB.format(text=text, steps=options.steps))
        for turn in range(options.rounds):
            for replicas in ((0, 1), (1, 0))[turn % 2]:
                out = scratch / f"{turn}-{replicas}"
                seconds[replicas] += step_seconds(options.bin / "sherd", job, replicas, out)
                # Weights of half a gigabyte each.
                subprocess.run(["rm", "-rf", str(out)], check=True)
    without, with_copies = (statistics.median(seconds[replicas]) for replicas in (0, 1))
    cost = with_copies / without - 1
    result = {"steps": len(seconds[1]), "seconds_without": without, "seconds_with": with_copies, "cost": cost,
              "goal": GOAL}
    if options.format == "json":
        print(json.dumps(result))
    else:
        print(f"{len(seconds[1])} steps each: {without:.3f} s without copies, {with_copies:.3f} s with; "
              f"they cost {cost:.1%} (goal: at most {GOAL:.0%})")
    return 0 if cost <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
