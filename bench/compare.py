#!/usr/bin/env python3
"""Sherd's speed against its peers and against the machine's limits, as ratios.

  bench/compare.py [SUITE…] [--build build/bench] [--repetitions N] [--clock wall|cpu] [-o table|json]

Build first: cmake --preset bench && cmake --build build/bench --target sherd_bench; the peers come
with scripts/setup.sh --bench. Speeds of a shared machine drift from minute to minute, so everything
that is compared runs in this one run and takes turns, one repetition each: contestants are child
processes that stay alive and work only when told to. A ratio is the median over rounds of the
ratios within a round. --clock cpu compares processor seconds instead of the wall clock's, for a
machine that others use. Exit code 1 when a goal is missed.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DEBIAN_PYTHON = "/usr/bin/python3"
# Two threads at most anywhere, and none that spins while another contestant runs.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
# What PyTorch's speed depends on: OpenBLAS's idea of the processor is wrong on some, and glibc
# returns large blocks to the system at once, to be faulted in again in the next step.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30)}
PYTORCH_SETUPS = [
    core | memory
    for core in ({}, {"OPENBLAS_CORETYPE": "Haswell"}, {"OPENBLAS_CORETYPE": "SkylakeX"})
    for memory in ({}, KEEP_MEMORY)
    if core.get("OPENBLAS_CORETYPE") != "SkylakeX"
    or "avx512vl" in pathlib.Path("/proc/cpuinfo").read_text()
]
MEBIBYTE = 1 << 20


class Contestant:
    """One or several processes that do one thing together, one repetition at a time."""

    # "seconds", or "cpu_seconds".
    clock = "seconds"

    def __init__(self, name, commands, environment=ENVIRONMENT):
        self.name = name
        self.rounds = []
        self._processes = [
            subprocess.Popen(
                [str(word) for word in command], env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for command in commands
        ]  # fmt: skip
        first = self._answers()
        if "address" in first[0]:
            self._tell(" ".join(answer["address"] for answer in first))
            first = self._answers()
        self.about = first[0]

    def _tell(self, line):
        for process in self._processes:
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def _answers(self):
        lines = [process.stdout.readline() for process in self._processes]
        if "" in lines:
            raise RuntimeError(f"{self.name}: a process ended")
        return [json.loads(line) for line in lines]

    def run(self):
        """One repetition: by the wall clock the slowest process counts, of processor time the sum."""
        self._tell("run")
        answers = self._answers()
        figures = {key: max(answer[key] for answer in answers) for key in answers[0]}
        return figures | dict(cpu_seconds=sum(answer["cpu_seconds"] for answer in answers))

    def peak_bytes(self):
        """The most resident bytes above the idle level, of all processes."""
        self._tell("memory")
        return sum(answer["peak"] - answer["idle"] for answer in self._answers())

    def seconds(self):
        return statistics.median(figures[self.clock] for figures in self.rounds)

    def close(self):
        for process in self._processes:
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclasses.dataclass
class Row:
    what: str
    ours: str
    against: str
    peer: str
    ratio: float
    # The least ratio (the most, where less is better); None where there is none.
    goal: float | None = None
    less_is_better: bool = False

    def met(self):
        if self.goal is None:
            return None
        return self.ratio <= self.goal if self.less_is_better else self.ratio >= self.goal


class Bench:
    def __init__(self, build, repetitions):
        self._bin = pathlib.Path(build) / "bin"
        self._repetitions = repetitions
        self._pytorch_environment = None

    # Contestants.

    def kernel(self, name, *options):
        return Contestant(name, [[self._bin / "bench_kernel", *options]])

    def step(self, name, *options, world=1):
        command = [self._bin / "bench_step", "--world", world, *options]
        return Contestant(name, [[*command, "--rank", rank] for rank in range(world)])

    def collective(self, name, *options, world=2):
        command = [self._bin / "bench_collective", "--world", world, *options]
        return Contestant(name, [[*command, "--rank", rank] for rank in range(world)])

    def pytorch(self, name, *options):
        if self._pytorch_environment is None:
            self._pytorch_environment = self._fastest_pytorch()
        command = [DEBIAN_PYTHON, HERE / "pytorch_peer.py", *options]
        return Contestant(name, [command], self._pytorch_environment)

    def _fastest_pytorch(self):
        """The environment in which a small step is fastest, of all set-ups in turns."""
        command = [DEBIAN_PYTHON, HERE / "pytorch_peer.py", "step", "--preset", "gpt2-bytes",
                   "--batch", 2]  # fmt: skip
        contestants = [
            Contestant(" ".join(setup) or "none", [command], ENVIRONMENT | setup)
            for setup in PYTORCH_SETUPS
        ]
        with self.turns(contestants):
            pass
        index = min(range(len(contestants)), key=lambda i: contestants[i].seconds())
        print(f"compare: PyTorch's set-up: {PYTORCH_SETUPS[index]}", file=sys.stderr)
        return ENVIRONMENT | PYTORCH_SETUPS[index]

    @staticmethod
    def gloo(name, bytes, directory):
        store = pathlib.Path(directory) / name.replace(" ", "_")
        command = [DEBIAN_PYTHON, HERE / "gloo_peer.py", "--bytes", bytes, "--store", store]
        return Contestant(name, [[*command, "--rank", rank] for rank in range(2)])

    # Running.

    @contextlib.contextmanager
    def turns(self, contestants, least=3):
        """Lets them take turns; what they took is in their `rounds` then. They end with the block."""
        try:
            for contestant in contestants:
                contestant.run()
            for turn in range(max(least, self._repetitions)):
                # Back and forth, so that nobody always follows the same neighbour.
                for contestant in contestants if turn % 2 == 0 else reversed(contestants):
                    contestant.rounds.append(contestant.run())
            yield
        finally:
            for contestant in contestants:
                contestant.close()


def ratio_of(ours, peer, work=1.0):
    """How many times the peer's speed ours is, where ours does `work` times as much."""
    pairs = zip(ours.rounds, peer.rounds)
    clock = Contestant.clock
    return statistics.median(work * b[clock] / a[clock] for a, b in pairs)


def milliseconds(contestant):
    return f"{1e3 * contestant.seconds():.4g} ms"


def gigaflops(contestant):
    return f"{contestant.about['flops'] / contestant.seconds() * 1e-9:.1f} GF/s"


def compared(what, ours, peer, goal=None, shown=milliseconds):
    return Row(what, shown(ours), peer.name, shown(peer), ratio_of(ours, peer), goal)


def linear(bench):
    ours = bench.kernel("ours fp32", "linear")
    half = bench.kernel("ours bf16", "linear", "--half")
    limit = bench.kernel("oneDNN, uncut", "sgemm_limit")
    torch = bench.pytorch("PyTorch", "linear")
    with bench.turns([ours, limit, half, torch]):
        pass
    return [
        compared("all GEMMs of a 124M step, fp32", ours, limit, shown=gigaflops),
        compared("all GEMMs of a 124M step, bf16", half, limit, shown=gigaflops),
        compared("all GEMMs of a 124M step, fp32", ours, torch),
    ]


def attention(bench):
    ours = bench.kernel("ours", "attention")
    torch = bench.pytorch("PyTorch", "attention")
    with bench.turns([ours, torch], least=11):
        pass
    return [compared("attention 4 × 256 × 12 heads, forward and backward", ours, torch)]


def adamw(bench):
    sizes = ["--elements", 64 * MEBIBYTE]
    ours = bench.kernel("ours fp32", "adamw", *sizes)
    half = bench.kernel("ours bf16", "adamw", "--half", *sizes)
    limit = bench.kernel("memory", "adamw_memory_limit", *sizes)
    half_limit = bench.kernel("memory", "adamw_memory_limit", "--half", *sizes)
    plain = bench.pytorch("PyTorch", "adamw", *sizes)
    foreach = bench.pytorch("PyTorch, foreach", "adamw", "--foreach", *sizes)
    with bench.turns([ours, limit, half, half_limit, plain, foreach], least=7):
        pass
    fastest = min(plain, foreach, key=Contestant.seconds)
    return [
        compared("AdamW, 64Mi parameters, fp32", ours, fastest, 4.0),
        compared("AdamW, fp32", ours, limit, 0.8),
        compared("AdamW, bf16", half, fastest, 4.0),
        compared("AdamW, bf16", half, half_limit, 0.8),
    ]


def training_step(bench, preset, batch, sizes, pytorch_goal):
    shape = ["--preset", preset, "--global-batch", batch, "--micro-batch", batch]
    fp32 = bench.step("ours fp32", *shape, "--compute", "fp32")
    bf16 = bench.step("ours bf16", *shape, "--compute", "bf16")
    limit = bench.kernel("SGEMM, oneDNN", "sgemm_limit", "--batch", batch, *sizes)
    torch = bench.pytorch("PyTorch", "step", "--preset", preset, "--batch", batch)
    rows = []
    with bench.turns([fp32, limit, torch, bf16], least=5):
        for ours in (fp32, bf16):
            what = f"step {preset}, {batch} × 256, {ours.name.split()[1]}"
            work = ours.about["flops"] / limit.about["flops"]
            goal = 0.75 if preset == "gpt2-124m" else None
            rows += [
                Row(what, gigaflops(ours), limit.name, gigaflops(limit),
                    ratio_of(ours, limit, work), goal),
                compared(what, ours, torch, pytorch_goal),
                peak_row(what, ours, torch),
            ]  # fmt: skip
    return rows


def peak_row(what, ours, torch):
    own, peer = ours.peak_bytes(), torch.peak_bytes()
    return Row(
        what + ": peak memory", f"{own / MEBIBYTE:.0f} MiB", torch.name,
        f"{peer / MEBIBYTE:.0f} MiB", own / peer, 0.6, less_is_better=True,
    )  # fmt: skip


def step(bench):
    return training_step(bench, "gpt2-124m", 4, [], 1.35)


def small_step(bench):
    sizes = ["--layers", 6, "--hidden", 384, "--vocab", 256]
    return training_step(bench, "gpt2-bytes", 8, sizes, 1.15)


def workers(bench):
    """Equal tokens a step; each worker is a process of its own."""
    one = bench.step("1 worker × 2 threads", "--strategy", "ddp")
    two = bench.step("2 workers × 1 thread", "--strategy", "zero3", "--micro-batch", 2,
                     "--threads", 1, world=2)  # fmt: skip
    four = bench.step("4 workers × 1 thread", "--strategy", "zero3", "--micro-batch", 1,
                      "--threads", 1, world=4)  # fmt: skip
    with bench.turns([one, two, four], least=5):
        pass
    return [
        compared("gpt2-124m, 4 × 256, fp32, 2 workers × 1 thread, zero3", two, one, 0.9),
        compared("gpt2-124m, 4 × 256, fp32, 4 workers × 1 thread, zero3", four, one),
    ]


def collectives(bench):
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for mebibytes, least, goal in ((64, 11, 6.0), (1, 101, None)):
            size = mebibytes * MEBIBYTE
            ours = bench.collective("ours", "--bytes", size)
            tcp = bench.collective("ours over TCP", "--tcp", "--bytes", size)
            gloo = bench.gloo(f"Gloo {mebibytes}", size, directory)
            with bench.turns([ours, gloo, tcp], least=least):
                what = f"all-reduce {mebibytes} MiB, 2 processes"
                rows.append(compared(what, ours, gloo, goal))
                rows.append(compared(f"{what}, TCP on loopback", tcp, gloo))
    whole = bench.collective("all-reduce", "--bytes", 64 * MEBIBYTE)
    scatter = bench.collective("ours", "--collective", "reduce_scatter", "--bytes", 64 * MEBIBYTE)
    gather = bench.collective("ours", "--collective", "all_gather", "--bytes", 64 * MEBIBYTE)
    with bench.turns([whole, scatter, gather], least=11):
        pass
    rows.append(compared("reduce-scatter 64 MiB, 2 processes", scatter, whole))
    rows.append(compared("all-gather 64 MiB, 2 processes", gather, whole))
    return rows


SUITES = dict(
    linear=linear, attention=attention, adamw=adamw, collectives=collectives,
    step=step, small_step=small_step, workers=workers,
)  # fmt: skip


def print_table(rows):
    cells = [("what", "ours", "against", "theirs", "ratio", "goal", "")]
    for row in rows:
        sign = "≤" if row.less_is_better else "≥"
        goal = "" if row.goal is None else f"{sign} {row.goal:g}"
        verdict = {True: "met", False: "MISSED", None: ""}[row.met()]
        cells.append((row.what, row.ours, row.against, row.peer, f"{row.ratio:.2f}", goal, verdict))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("suite", nargs="*", help=" ".join(SUITES) + "; all by default")
    arguments.add_argument("--build", default=HERE.parent / "build" / "bench")
    arguments.add_argument("--repetitions", type=int, default=0, help="more rounds than usual")
    arguments.add_argument("-o", dest="output", choices=["table", "json"], default="table")
    arguments.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = arguments.parse_args()
    Contestant.clock = dict(wall="seconds", cpu="cpu_seconds")[options.clock]
    unknown = set(options.suite) - set(SUITES)
    if unknown:
        arguments.error("no such suite: " + ", ".join(sorted(unknown)))
    bench = Bench(options.build, options.repetitions)
    rows = []
    for name in options.suite or SUITES:
        print(f"compare: {name}", file=sys.stderr)
        rows += SUITES[name](bench)
    if options.output == "json":
        print(json.dumps([dataclasses.asdict(row) | dict(met=row.met()) for row in rows], indent=1))
    else:
        print_table(rows)
    return 1 if any(row.met() is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
