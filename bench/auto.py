#!/usr/bin/env python3
"""Whether `strategy: auto` chooses as well as measuring everything does.

  bench/auto.py [SETTING…] [--bin build/release/bin] [--rounds R] [--steps N] [-o table|json]

For each setting a job of strategy auto runs once and tells its decision. Then every kind of candidate that fits (its best
by the prediction) and the chosen one train with `sherd run` with the keys that the decision names, in turns: speeds of a
shared machine drift from minute to minute, so each round runs every one once, in an order that rotates. They are compared
by the smallest of their rounds' medians, as trials are: what else a machine does only slows. The first steps of a run are
left out. Exit code 1 when a choice is more than 5 % slower than the best, or one that does not fit was chosen or tried.
"""

import collections
import statistics
import sys

import turns

# arch, layers, hidden, heads, context, global batch, micro-batch (0: chosen), workers.
Setting = collections.namedtuple("Setting", "arch layers hidden heads context batch micro workers")
SETTINGS = {
    "small": Setting("gpt2", 4, 160, 5, 128, 16, 4, 2),
    "open": Setting("gpt2", 3, 128, 4, 64, 32, 0, 2),
    "deep": Setting("gpt2", 8, 128, 4, 64, 8, 2, 2),
    "llama": Setting("llama", 3, 256, 4, 128, 8, 4, 2),
    "three": Setting("gpt2", 4, 192, 6, 64, 12, 4, 3),
}


def job_file(setting, text, steps):
    micro = f", micro_batch: {setting.micro}" if setting.micro else ""
    return f"""\
name: auto
model: {{arch: {setting.arch}, layers: {setting.layers}, hidden: {setting.hidden}, heads: {setting.heads}, vocab: 256, context: {setting.context}}}
data: {{train: [{text}]}}
train: {{steps: {steps}, global_batch: {setting.batch}{micro}}}
parallel: {{strategy: auto}}
elastic: {{min_workers: {setting.workers}, max_workers: {setting.workers}}}
checkpoint: {{dir: weights}}
"""


def settings_of(candidate):
    keys = {f"parallel.{key}": value for key, value in candidate["parallel"].items()}
    keys["train.micro_batch"] = candidate["micro_batch"]
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in keys.items()]


def kind_of(candidate):
    return tuple(sorted((key, str(value)) for key, value in candidate["parallel"].items() if key != "recompute"))


def contestants(decision):
    """The best of every kind that fits, by the prediction, all that were tried, and the chosen one."""
    chosen = {candidate["name"]: candidate for candidate in decision["candidates"] if candidate["measured_step_seconds"]}
    kinds = set()
    for candidate in decision["candidates"]:
        if candidate["fits"] and kind_of(candidate) not in kinds:
            kinds.add(kind_of(candidate))
            chosen.setdefault(candidate["name"], candidate)
    chosen.setdefault(decision["chosen"]["name"], decision["chosen"])
    return list(chosen.values())


def check(name, sherd, scratch, rounds, steps):
    setting = SETTINGS[name]
    job = scratch / f"{name}.yaml"
    job.write_text(job_file(setting, scratch / "corpus.txt", steps))
    events = turns.events_of(sherd, job, setting.workers, scratch / f"{name}-auto")
    decision = next(event for event in events if event["event"] == "decision")
    candidates = contestants(decision)
    settings = {candidate["name"]: settings_of(candidate) for candidate in candidates}
    runs = turns.steps_in_turns(sherd, job, setting.workers, scratch, settings, rounds)
    figures = {name: min(statistics.median(step["step_ms"] for step in run) for run in runs_of)
               for name, runs_of in runs.items()}
    best = min(figures, key=figures.get)
    chosen = decision["chosen"]["name"]
    fits = decision["chosen"]["fits"] and all(
        candidate["fits"] for candidate in decision["candidates"] if candidate["measured_step_seconds"])
    return {
        "setting": name,
        "workers": setting.workers,
        "candidates": [
            {
                "name": candidate["name"],
                "step_ms": figures[candidate["name"]],
                "trial_ms": candidate["measured_step_seconds"] and 1e3 * candidate["measured_step_seconds"],
                "predicted_ms": 1e3 * candidate["predicted_step_seconds"],
                "peak_bytes": candidate["peak_bytes"],
            }
            for candidate in candidates
        ],
        "best": best,
        "chosen": chosen,
        "slower": figures[chosen] / figures[best] - 1,
        "fits": fits,
        "holds": fits and figures[chosen] <= (1 + turns.TOLERANCE) * figures[best],
    }


def show(result):
    print(f"{result['setting']}: {result['workers']} workers")
    print(f"  {'candidate':<44} {'step ms':>9} {'trial ms':>9} {'predicted':>9} {'peak MiB':>9}")
    for row in sorted(result["candidates"], key=lambda candidate: candidate["step_ms"]):
        trial = f"{row['trial_ms']:.1f}" if row["trial_ms"] else "-"
        print(f"  {row['name']:<44} {row['step_ms']:>9.1f} {trial:>9} {row['predicted_ms']:>9.1f} "
              f"{row['peak_bytes'] / 2**20:>9.1f}")
    print(f"  chosen: {result['chosen']}, {result['slower']:.1%} slower than the best, {result['best']}; "
          f"within {turns.TOLERANCE:.0%}: {'yes' if result['holds'] else 'NO'}\n", flush=True)


if __name__ == "__main__":
    sys.exit(turns.main(__doc__, "SETTING", SETTINGS, check, show, rounds=3, steps=24))
