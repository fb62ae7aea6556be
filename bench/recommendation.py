#!/usr/bin/env python3
"""Whether the strategy that `sherd plan --compare` recommends is as fast as the best one measured.

  bench/recommendation.py [MODEL…] [--bin build/release/bin] [--rounds R] [--steps N] [-o table|json]

For three models, every strategy trains with `sherd run` on this machine, in turns: speeds of a shared
machine drift from minute to minute, so each round runs every strategy once, in an order that rotates,
and strategies are compared by the median over all measured steps of all rounds. The first steps of a
run are left out. Exit code 1 when a recommended strategy is more than 5 % slower than the best.
"""

import collections
import json
import statistics
import sys

import turns

WORKERS = 2

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


def check(name, sherd, scratch, rounds, steps):
    job = scratch / f"{name}.yaml"
    job.write_text(job_file(MODELS[name], scratch / "corpus.txt", steps))
    plan = json.loads(turns.command(sherd, "plan", job, "--workers", WORKERS, "--compare", "-o", "json"))
    strategies = plan["strategies"]
    settings = {row["name"]: row["settings"] for row in strategies}
    runs = turns.steps_in_turns(sherd, job, WORKERS, scratch, settings, rounds)
    medians = {name: statistics.median(step["tokens_per_second"] for run in runs_of for step in run)
               for name, runs_of in runs.items()}
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
        "holds": medians[recommended] >= (1 - turns.TOLERANCE) * medians[best],
    }


def show(result):
    print(f"{result['model']}: {result['parameters']:,} parameters, {WORKERS} workers")
    print(f"  {'strategy':<17} {'tokens/s':>10} {'of best':>8} {'estimated':>10} {'peak MiB':>9}")
    for row in result["strategies"]:
        print(f"  {row['name']:<17} {row['tokens_per_second']:>10,.0f} {row['of_best']:>8.3f} "
              f"{row['estimated_of_best']:>10.3f} {row['peak_bytes'] / 2**20:>9.1f}")
    print(f"  recommended: {result['reason']}")
    print(f"  within {turns.TOLERANCE:.0%} of the best, {result['best']}: {'yes' if result['holds'] else 'NO'}\n",
          flush=True)


if __name__ == "__main__":
    sys.exit(turns.main(__doc__, "MODEL", MODELS, check, show, rounds=3, steps=20))
