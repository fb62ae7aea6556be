#!/usr/bin/env python3
"""What only a card can show, as a table: conformance of the ops, equal bits of four ranks on one GPU, rates of ops, tokens a second.

Called by gpu_check.sh, which builds. With --library and --quick the same runs on another back end, with sizes that show
no more than that it runs: that is how the tests run it without a card.
"""

import argparse
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
# The first that the card's name holds counts.
PEAKS = {"H200 NVL": 835e12, "H200": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "A100": 312e12,
         "B200": 2250e12}

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


# What bounds a rate that gpu_rates tells, the name that it has in the table, and the share of its bound that is the goal.
RATES = {
    "adamw": ("copy", "AdamW", 0.85),
    "layer_norm_forward": ("copy", "LayerNorm forward", 0.85),
    "layer_norm_backward": ("copy", "LayerNorm backward", 0.85),
    "rms_norm_forward": ("copy", "RMSNorm forward", 0.85),
    "rms_norm_backward": ("copy", "RMSNorm backward", 0.85),
    "attention_forward": ("product", "attention forward", 0.40),
}


# What a program ends with that has said why it runs nothing.
NOT_RUN = 77


class Failure(Exception):
    pass


class NotRun(Exception):
    pass


class Clock:
    """What is left of the time for all checks together."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def within(self, limit):
        """At most `limit` seconds, and no more than are left."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise Failure(f"the {self.seconds:g} s for all checks are over")
        return min(limit, left)


class Cluster:
    """A coordinator, and workers that share one device."""

    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.processes = []

    def __enter__(self):
        try:
            port_file = self.scratch / "port"
            self.start("sherd-coordinator", "--listen", "127.0.0.1:0", "--port-file", port_file, "--data-dir",
                       self.scratch / "coordinator")
            self.wait(port_file.exists, "the coordinator serves", 30)
            self.address = port_file.read_text().strip()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        """Within seconds, however many there are."""
        for process, _ in self.processes:
            process.terminate()
        end = time.monotonic() + 10
        for process, log in self.processes:
            try:
                process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()

    def start(self, program, *arguments):
        log = open(self.scratch / f"{program}-{time.monotonic_ns()}.log", "wb")
        process = subprocess.Popen([self.options.bin / program, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log)
        self.processes.append((process, log))
        return process

    def wait(self, condition, what, limit):
        limit = self.options.clock.within(limit)
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"not within {limit:.0f} s: {what}")
            time.sleep(0.05)

    def sherd(self, *arguments, limit):
        return subprocess.run([self.options.bin / "sherd", *map(str, arguments)], capture_output=True, text=True,
                              timeout=self.options.clock.within(limit),
                              env={**os.environ, "SHERD_COORDINATOR": self.address})

    def add_workers(self, count):
        library = ["--device-library", self.options.library] if self.options.library else []
        started = [self.start("sherd-worker", "--coordinator", self.address, "--name", f"gpu{worker}", "--device", "cuda:0",
                              "--data-root", self.scratch, "--output-root", self.scratch, *library)
                   for worker in range(count)]

        def idle():
            if any(process.poll() is not None for process in started):
                raise Failure("a worker has ended")
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


def program(options, name, *arguments, limit):
    """What a program says that opens the device itself."""
    library = {"SHERD_DEVICE_LIBRARY": str(options.library)} if options.library else {}
    result = subprocess.run([options.bin / name, *arguments], capture_output=True, text=True,
                            timeout=options.clock.within(limit), env={**os.environ, **library})
    if result.returncode == NOT_RUN:
        raise NotRun(result.stderr.strip().splitlines()[-1])
    if result.returncode != 0:
        raise Failure(f"{name} ended with {result.returncode}:\n{result.stdout[-4000:]}{result.stderr[-1000:]}")
    return result.stdout


def suite(options, name, *arguments, limit):
    passed = re.search(r"\[  PASSED  \] (\d+) tests", program(options, name, *arguments, limit=limit))
    if not passed or int(passed[1]) == 0:
        raise Failure("no test ran")
    return f"{passed[1]} tests passed"


def conformance(options):
    return suite(options, "gpu_ops_check", *(["--gtest_filter=AdamW.*:All/CudaLinear.*"] if options.quick else []), limit=180)


def life_cycle(options):
    """A group over NCCL of the one device alone, an init with an absent peer, and 200 inits and aborts."""
    return suite(options, "gpu_nccl_check", limit=150)


def product_rate(told):
    """FLOPs a second of the product alone. The cast before it is measured by itself, and is taken for half of the whole at most."""
    alone = max(told["product_seconds"] - told["cast_seconds"], told["product_seconds"] / 2)
    return told["product_flops"] / alone


def flops_of_token(layers, hidden, vocab, seq_len):
    """Of training GPT-2 with a tied head, counted as plan/model_flops.h does: 6 for each parameter of a matrix product, of
    which embeddings that are looked up are none, and of attention's products the half that the causal mask leaves."""
    multiplied = layers * (12 * hidden**2 + 13 * hidden) + 2 * hidden + vocab * hidden
    return 6 * multiplied + 6 * layers * seq_len * hidden


def rates(options):
    told = json.loads(program(options, "gpu_rates", *(["small"] if options.quick else []), limit=90))
    told["product"] = product_rate(told)
    yield "copy within the card", f"{told['copy'] / 1e9:,.1f} GB/s"
    yield "large bf16 product", f"{told['product'] / 1e12:,.1f} TFLOP/s"
    for name, (bound, title, goal) in RATES.items():
        rate = f"{told[name] / 1e9:,.1f} GB/s" if bound == "copy" else f"{told[name] / 1e12:,.1f} TFLOP/s"
        yield title, f"{rate}, {told[name] / told[bound]:.0%} of the {bound}'s (goal: {goal:.0%})"


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


def throughput(options, scratch, name, model, layers, hidden, vocab, batch, micro, steps, seq_len=1024):
    directory = scratch / name
    directory.mkdir()
    with Cluster(options, directory) as cluster:
        cluster.add_workers(1)
        told = cluster.run(240, name=name, model=model, steps=steps, batch=batch, micro=micro, seq_len=seq_len, workers=1)
    speed = statistics.median(step["tokens_per_second"] for step in told[2:])
    flops = flops_of_token(layers, hidden, vocab, seq_len)
    peak = next((value for card, value in PEAKS.items() if card in options.card), None)
    share = f"MFU {speed * flops / peak:.1%} of {peak / 1e12:.0f} TFLOP/s" if peak else "MFU: no peak known for this card"
    return f"{speed:,.0f} tokens/s, {share} at {flops / 1e9:.2f} GFLOP a token"


def card_of():
    answer = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0"],
                            capture_output=True, text=True)
    return answer.stdout.strip() or "unknown card"


def with_results(page, table):
    """The page of results with the table in it, in place of what was there."""
    title, how = "# What was measured on a GPU\n\n", "\n## How\n"
    if not page.startswith(title) or how not in page:
        raise ValueError(f"{RESULTS} is not as expected")
    return title + "\n".join(table) + "\n" + page[page.index(how):]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/gpu-results.md")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--library", type=pathlib.Path, help="another back end than the build's")
    parser.add_argument("--limit", type=float, default=600, help="seconds for all checks together (%(default)g)")
    parser.add_argument("--quick", action="store_true", help="a few tests, and small sizes")
    options = parser.parse_args()
    options.clock = Clock(options.limit)
    options.card = "another back end" if options.library else card_of()

    failed = False
    rows = []
    with tempfile.TemporaryDirectory(prefix="sherd-gpu-") as scratch:
        scratch = pathlib.Path(scratch)
        checks = [("ops conformance", lambda: conformance(options)),
                  ("NCCL life cycle", lambda: life_cycle(options)),
                  ("zero3, four ranks on one GPU", lambda: equality(options, scratch)),
                  ("rates", lambda: list(rates(options)))]
        models = [("gpt2-124m", GPT2_124M, 12, 768, 50257, 64, 32, 20),
                  ("gpt-1.5b", GPT_1500M, 48, 1600, 50304, 8, 8, 8)]
        if options.quick:
            models = [("tiny", TINY, 2, 64, 256, 2, 1, 4, 16)]
        checks += [(model[0], lambda model=model: throughput(options, scratch, *model)) for model in models]
        for name, check in checks:
            try:
                result = check()
            except NotRun as reason:
                result = f"not run: {reason}"
            except (Failure, subprocess.TimeoutExpired) as error:
                failed = True
                result = "FAILED"
                print(f"gpu_check: {name}: {error}", file=sys.stderr)
            for row in result if isinstance(result, list) else [(name, result)]:
                rows.append(row)
                print(f"{row[0]}: {row[1]}", flush=True)

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    date = datetime.date.today().isoformat()
    table = [f"{date}, {options.card}, commit {commit}", "", "| check | result |", "|---|---|",
             *(f"| {name} | {result} |" for name, result in rows)]
    print("\n" + "\n".join(table))
    if options.write and not failed:
        RESULTS.write_text(with_results(RESULTS.read_text(), table))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
