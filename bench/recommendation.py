#!/usr/bin/env python3
"""Whether the strategy that `sherd plan --compare` recommends is as fast as the best one measured.

  bench/recommendation.py [MODEL…] [--bin build/release/bin] [--rounds R] [--steps N] [-o table|json]

For three models, every strategy trains with `sherd run` on this machine, in turns: speeds of a shared
machine drift from minute to minute, so each round runs every strategy once, in an order that rotates,
and strategies are compared by the median over all measured steps of all rounds. The first steps of a
run are left out. Exit code 1 when a recommended strategy is more than 5 % slower than the best.
"""

import argparse
import collections
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WORKERS = 2
TOLERANCE = 0.05
WARM_UP = 3


# layers, hidden, heads, context, sequences of a micro-batch, micro-batches a rank.
Model = collections.namedtuple("Model", "layers hidden heads context micro_batch rounds")
MODELS = {
    "small": Model(4, 160, 5, 128, 4, 2),  # 1.3M parameters
    "medium": Model(6, 384, 6, 256, 4, 1),  # 10.8M
    "large": Model(9, 512, 8, 256, 2, 1),  # 28.6M
}


def job_file(model, text, steps):
    return f"""\
name: recommendation
model: {{arch: gpt2, layers: {model.layers}, hidden: {model.hidden}, heads: {model.heads}, vocab: 256, context: {model.context}}}
data: {{train: [{text}]}}
train: {{steps: {steps}, global_batch: {WORKERS * model.rounds * model.micro_batch}, micro_batch: {model.micro_batch}}}
elastic: {{min_workers: {WORKERS}, max_workers: {WORKERS}}}
checkpoint: {{dir: weights}}
"""


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


def measured_speeds(sherd, job, settings, out):
    """Tokens a second of each step after the warm-up."""
    flags = [word for setting in settings for word in ("--set", setting)]
    lines = command(sherd, "run", job, "--workers", WORKERS, *flags, "--out", out, "-o", "json").splitlines()
    steps = [event for event in map(json.loads, lines) if event["event"] == "step"]
    return [step["tokens_per_second"] for step in steps[WARM_UP:]]


def check(name, sherd, scratch, rounds, steps):
    text = scratch / "corpus.txt"
    if not text.exists():
        corpus(text)
    job = scratch / f"{name}.yaml"
    job.write_text(job_file(MODELS[name], text, steps))
    plan = json.loads(command(sherd, "plan", job, "--workers", WORKERS, "--compare", "-o", "json"))
    speeds = collections.defaultdict(list)
    strategies = plan["strategies"]
    for turn in range(rounds):
        first = turn % len(strategies)
        for row in strategies[first:] + strategies[:first]:
            out = scratch / f"{name}-{turn}-{row['name'].replace(' ', '-')}"
            speeds[row["name"]] += measured_speeds(sherd, job, row["settings"], out)
    medians = {row["name"]: statistics.median(speeds[row["name"]]) for row in strategies}
    best = max(medians, key=medians.get)
    recommended = plan["recommendation"]["name"]
    return {
        "model": name,
        "parameters": strategies[0]["parameters"],
        "strategies": [
            {
                "name": row["name"],
                "tokens_per_second": medians[row["name"]],
                "of_best": medians[row["name"]] / medians[best],
                "estimated_of_best": min(other["estimate"]["step_seconds"] for other in strategies)
                / row["estimate"]["step_seconds"],
                "peak_bytes": row["peak_bytes"],
            }
            for row in strategies
        ],
        "best": best,
        "recommended": recommended,
        "reason": plan["recommendation"]["reason"],
        "holds": medians[recommended] >= (1 - TOLERANCE) * medians[best],
    }


def show(result):
    print(f"{result['model']}: {result['parameters']:,} parameters, {WORKERS} workers")
    print(f"  {'strategy':<17} {'tokens/s':>10} {'of best':>8} {'estimated':>10} {'peak MiB':>9}")
    for row in result["strategies"]:
        print(f"  {row['name']:<17} {row['tokens_per_second']:>10,.0f} {row['of_best']:>8.3f} "
              f"{row['estimated_of_best']:>10.3f} {row['peak_bytes'] / 2**20:>9.1f}")
    print(f"  recommended: {result['reason']}")
    print(f"  within {TOLERANCE:.0%} of the best, {result['best']}: {'yes' if result['holds'] else 'NO'}\n",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", metavar="MODEL", nargs="*", choices=[[], *MODELS],
                        help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build/release/bin")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every strategy")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    if options.rounds < 1 or options.steps <= WARM_UP:
        parser.error(f"at least one round, and more steps than the {WARM_UP} of the warm-up")
    results = []
    with tempfile.TemporaryDirectory(prefix="sherd-bench-") as scratch:
        for name in options.models or MODELS:
            results.append(check(name, options.bin / "sherd", pathlib.Path(scratch), options.rounds, options.steps))
            if options.output == "table":
                show(results[-1])
    if options.output == "json":
        print(json.dumps(results))
    return 0 if all(result["holds"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
