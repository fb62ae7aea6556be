#!/usr/bin/env python3
"""What only a card can show, as a table: conformance of the ops, equal bits of four ranks on one GPU, tokens a second.

Called by gpu_check.sh, which builds. With --library and --quick the same runs on another back end, which is how the
tests run it without a card.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/gpu-results.md"

# Dense bf16 operations a second, by the makers' data sheets.
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "B200": 2250e12}

JOB = """\
name: {name}
model: {model}
data: {{train: [{text}], format: text, tokenizer: bytes}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch: {micro}, seq_len: {seq_len}, seed: 1,
        optimizer: {{lr: 3e-4}}, schedule: {{kind: cosine, warmup: 2, min_lr: 3e-5}}, grad_clip: 1.0}}
parallel: {{strategy: zero3, recompute: none}}
precision: {{compute: bf16}}
elastic: {{min_workers: {workers}, max_workers: {workers}, replicas: 0}}
checkpoint: {{dir: {out}}}
"""

TINY = "{arch: gpt2, layers: 2, hidden: 64, heads: 2, vocab: 256, context: 64, tie_embeddings: true}"
GPT2_124M = "{preset: gpt2-124m}"
GPT_1500M = "{arch: gpt2, layers: 48, hidden: 1600, heads: 25, vocab: 50304, context: 1024, tie_embeddings: true}"


class Failure(Exception):
    pass


class Cluster:
    """A coordinator, and workers that share one device."""

    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        port_file = self.scratch / "port"
        self.start("sherd-coordinator", "--listen", "127.0.0.1:0", "--port-file", port_file, "--data-dir",
                   self.scratch / "coordinator")
        self.wait(port_file.exists, "the coordinator serves", 30)
        self.address = port_file.read_text().strip()
        return self

    def __exit__(self, *error):
        self.stack.close()

    def start(self, program, *arguments):
        log = open(self.scratch / f"{program}-{time.monotonic_ns()}.log", "wb")
        process = subprocess.Popen([self.options.bin / program, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log)
        self.stack.callback(self.stop, process, log)

    @staticmethod
    def stop(process, log):
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()

    @staticmethod
    def wait(condition, what, limit):
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"not within {limit} s: {what}")
            time.sleep(0.05)

    def sherd(self, *arguments, limit):
        return subprocess.run([self.options.bin / "sherd", *map(str, arguments)], capture_output=True, text=True,
                              timeout=limit, env={**os.environ, "SHERD_COORDINATOR": self.address})

    def add_workers(self, count):
        library = ["--device-library", self.options.library] if self.options.library else []
        for worker in range(count):
            self.start("sherd-worker", "--coordinator", self.address, "--name", f"gpu{worker}", "--device", "cuda:0",
                       "--data-root", self.scratch, "--output-root", self.scratch, *library)

        def idle():
            answer = self.sherd("workers", "-o", "json", limit=30)
            workers = json.loads(answer.stdout) if answer.returncode == 0 else []
            return sum(worker["status"] == "idle" for worker in workers) >= count

        try:
            self.wait(idle, f"{count} workers on cuda:0", 60)
        except Failure as error:
            logs = "".join(log.read_text() for log in sorted(self.scratch.glob("sherd-worker-*.log")))
            raise Failure(f"{error}:\n{logs}") from None

    def run(self, limit, **keys):
        """The steps that a job tells of."""
        path = self.scratch / f"{keys['name']}.yaml"
        text = self.scratch / "text.txt"
        if not text.exists():
            text.write_text("the shard of a rank is kept by the rank that owns it.\n" * 40000)
        path.write_text(JOB.format(text=text, out=self.scratch / keys["name"], **keys))
        submitted = self.sherd("submit", path, "-o", "json", limit=30)
        if submitted.returncode != 0:
            raise Failure(submitted.stderr)
        watched = self.sherd("watch", json.loads(submitted.stdout)["id"], "-o", "json", limit=limit)
        events = [json.loads(line) for line in watched.stdout.splitlines()]
        if watched.returncode != 0:
            raise Failure(f"{keys['name']}: {events[-1:]} {watched.stderr}")
        return [event for event in events if event["event"] == "step"]


def conformance(options):
    if options.library:
        return "not run (another back end)"
    result = subprocess.run([options.bin / "gpu_ops_check"], capture_output=True, text=True, timeout=180)
    passed = re.search(r"\[  PASSED  \] (\d+) tests", result.stdout)
    if result.returncode != 0 or not passed:
        raise Failure(result.stdout[-4000:] + result.stderr[-1000:])
    return f"{passed[1]} tests passed"


def equality(options, scratch):
    """zero3 over four ranks on the one device, and over one."""
    curves = []
    for workers in (4, 1):
        directory = scratch / f"equal{workers}"
        directory.mkdir()
        with Cluster(options, directory) as cluster:
            cluster.add_workers(workers)
            steps = cluster.run(120, name="equal", model=TINY, steps=3 if options.quick else 20, batch=4, micro=1,
                                seq_len=16 if options.quick else 64, workers=workers)
            curves.append([(step["step"], step["loss"], step["grad_norm"]) for step in steps])
    if curves[0] != curves[1] or not curves[0]:
        raise Failure(f"the curves differ: {curves}")
    return f"{len(curves[0])} steps with the same bits as one rank"


def throughput(options, scratch, name, model, parameters, layers, hidden, batch, micro, steps):
    directory = scratch / name
    directory.mkdir()
    with Cluster(options, directory) as cluster:
        cluster.add_workers(1)
        told = cluster.run(240, name=name, model=model, steps=steps, batch=batch, micro=micro, seq_len=1024, workers=1)
    speed = statistics.median(step["tokens_per_second"] for step in told[2:])
    # Forward and backward: 6 a parameter and token, and attention's 12·L·T·d.
    flops = 6 * parameters + 12 * layers * 1024 * hidden
    peak = next((value for card, value in PEAKS.items() if card in options.card), None)
    share = f"MFU {speed * flops / peak:.1%} of {peak / 1e12:.0f} TFLOP/s" if peak else "MFU: no peak known for this card"
    return f"{speed:,.0f} tokens/s, {share} at {flops / 1e9:.2f} GFLOP a token"


def card_of():
    answer = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0"],
                            capture_output=True, text=True)
    return answer.stdout.strip() or "unknown card"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/gpu-results.md")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--library", type=pathlib.Path, help="another back end than the build's")
    parser.add_argument("--quick", action="store_true", help="equality alone, over fewer steps")
    options = parser.parse_args()
    options.card = "another back end" if options.library else card_of()

    failed = False
    rows = []
    with tempfile.TemporaryDirectory(prefix="sherd-gpu-") as scratch:
        scratch = pathlib.Path(scratch)
        checks = [("ops conformance", lambda: conformance(options)),
                  ("zero3, four ranks on one GPU", lambda: equality(options, scratch))]
        if not options.quick:
            checks += [
                ("gpt2-124m", lambda: throughput(options, scratch, "gpt2-124m", GPT2_124M, 124.4e6, 12, 768, 64, 32, 20)),
                ("gpt-1.5b", lambda: throughput(options, scratch, "gpt-1.5b", GPT_1500M, 1557.6e6, 48, 1600, 8, 8, 8)),
            ]
        for name, check in checks:
            try:
                rows.append((name, check()))
            except (Failure, subprocess.TimeoutExpired) as error:
                failed = True
                rows.append((name, "FAILED"))
                print(f"gpu_check: {name}: {error}", file=sys.stderr)
            print(f"{rows[-1][0]}: {rows[-1][1]}", flush=True)

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    date = datetime.date.today().isoformat()
    table = [f"{date}, {options.card}, commit {commit}", "", "| check | result |", "|---|---|",
             *(f"| {name} | {result} |" for name, result in rows)]
    print("\n" + "\n".join(table))
    if options.write and not failed:
        RESULTS.write_text("# What was measured on a GPU\n\n`scripts/gpu_check.sh --write` writes this page.\n\n" +
                           "\n".join(table) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
