#!/usr/bin/env python3
"""Draws the README's pictures from what a real Prometheus saw of real jobs: docs/pictures/*.svg.

  scripts/draw_pictures.py [--bin build/release/bin] [--steps N]

loss.svg      a job whose ranks are killed again and again, on the curve of the same job undisturbed
memory.svg    what a rank holds under each strategy, pool by pool
exposed.svg   a step's time under each strategy, and how much of it is communication that computation does not hide

Draw on a machine that has nothing else to do: exposed.svg is about time. Needs scripts/setup.sh --checks.
"""

import argparse
import os
import pathlib
import signal
import sys
import time
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKERS = 4
KILLS = 5
STRATEGIES = ("ddp", "zero1", "zero2", "zero3")
LONG = 1_000_000
JOB = ["--set", "model.layers=2", "--set", "model.hidden=64", "--set", "model.heads=2", "--set", "model.ffn=256",
       "--set", "train.global_batch=32", "--set", "train.micro_batch=4", "--set", "train.seq_len=64",
       "--set", "train.eval_every=0", "--set", f"elastic.min_workers={WORKERS}",
       "--set", f"elastic.max_workers={WORKERS}"]

INK, PAPER, FAINT = "#24292f", "#ffffff", "#d0d7de"
COLORS = ("#0969da", "#bf8700", "#1a7f37", "#8250df", "#cf222e", "#57606a", "#bc4c00", "#0a7ea4", "#a40e26", "#6e7781")
WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 46, 46
SCRAPE = 0.1  # seconds


# Drawing.

def text(x, y, words, anchor="middle", size=12, color=INK):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}">'
            f'{escape(words)}</text>')


def line(x1, y1, x2, y2, color=FAINT, dash=""):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{dashes}/>'


def picture(title, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
            f'<title>{escape(title)}</title>\n<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>\n'
            + text(LEFT, 20, title, "start", 15) + "\n" + "\n".join(body) + "\n</svg>\n")


def ticks(most, count=5):
    """Round numbers from 0 to a little above `most`."""
    raw = most / count
    scale = 10.0 ** len(str(int(raw))) / 10 if raw >= 1 else 10.0 ** -len(str(int(1 / raw)))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10, 20) if scale * factor >= raw)
    return [step * i for i in range(int(most / step) + 2)]


class Plot:
    """The area of a picture from 0 to `most_x` and `most_y`, with its grid."""

    def __init__(self, most_x, most_y, name_x, name_y):
        self.y_ticks = ticks(most_y)
        self.most_x, self.most_y = most_x, self.y_ticks[-1]
        self.body = [line(LEFT, self.y(tick), WIDTH - RIGHT, self.y(tick)) for tick in self.y_ticks]
        self.body += [text(LEFT - 8, self.y(tick) + 4, f"{tick:g}", "end") for tick in self.y_ticks]
        self.body += [text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, name_x), text(LEFT, TOP - 8, name_y, "start", 11)]

    def x(self, value):
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.most_x

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.most_y

    def legend(self, entries):
        x = WIDTH - RIGHT + 16
        for number, (name, color) in enumerate(entries):
            y = TOP + 18 * number
            self.body += [f'<rect x="{x}" y="{y}" width="10" height="10" fill="{color}"/>',
                          text(x + 16, y + 9, name, "start", 11)]


def draw_loss(undisturbed, disturbed, kills):
    plot = Plot(max(step for step, _ in undisturbed), max(loss for _, loss in undisturbed + disturbed),
                "step", "loss, nats a token")
    plot.body += [text(plot.x(tick), HEIGHT - BOTTOM + 16, f"{tick:g}") for tick in ticks(plot.most_x)
                  if tick <= plot.most_x]
    plot.body += [line(plot.x(step), TOP, plot.x(step), HEIGHT - BOTTOM, COLORS[4], "4 3") for step in kills]
    path = " ".join(f"{plot.x(step):.1f},{plot.y(loss):.1f}" for step, loss in sorted(undisturbed))
    plot.body.append(f'<polyline points="{path}" fill="none" stroke="{COLORS[0]}" stroke-width="1.5"/>')
    plot.body += [f'<circle cx="{plot.x(step):.1f}" cy="{plot.y(loss):.1f}" r="2.5" fill="{COLORS[1]}"/>'
                  for step, loss in sorted(disturbed)]
    plot.legend([("undisturbed", COLORS[0]), ("with killed ranks", COLORS[1]), ("kill", COLORS[4])])
    return picture("A loss curve does not show that ranks are killed", plot.body)


def draw_bars(title, name_y, bars, order):
    """Stacked bars: name → part → value."""
    plot = Plot(len(bars), max(sum(parts.values()) for parts in bars.values()), "", name_y)
    shown = [part for part in order if any(parts.get(part, 0) > 0.004 * plot.most_y for parts in bars.values())]
    colors = {part: COLORS[i % len(COLORS)] for i, part in enumerate(shown)}
    for number, (name, parts) in enumerate(bars.items()):
        base, left, right = 0.0, plot.x(number + 0.2), plot.x(number + 0.8)
        for part in shown:
            value = parts.get(part, 0)
            top, bottom = plot.y(base + value), plot.y(base)
            plot.body.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                             f'height="{bottom - top:.1f}" fill="{colors[part]}"/>')
            base += value
        plot.body += [text((left + right) / 2, plot.y(base) - 5, f"{base:.3g}"),
                      text((left + right) / 2, HEIGHT - BOTTOM + 18, name)]
    plot.legend(list(reversed(colors.items())))
    return picture(title, plot.body)


# Measuring.

def fortunes(cluster, name, steps, *more):
    return cluster.submit(ROOT / "examples/fortunes.yaml", "--set", f"name={name}", "--set", f"train.steps={steps}",
                          "--set", f"checkpoint.dir={cluster.scratch}/{name}", *JOB, *more)


def curve(prometheus, job, start):
    """What was seen of a job: (step, loss), each step once, and the steps after which its epochs ended."""
    def seen(expression):
        result = prometheus.ask("query_range", query=expression, start=start, end=time.time(), step=SCRAPE)["result"]
        return {float(at): float(value) for each in result for at, value in each["values"] if value != "NaN"}

    steps, losses = seen(f'sherd_job_step{{job="{job}"}}'), seen(f'sherd_job_loss{{job="{job}"}}')
    restarts = seen("sum(sherd_job_restarts_total) or vector(0)")
    points = {steps[at]: losses[at] for at in steps if at in losses and steps[at] > 0}
    moments = sorted(at for at in restarts if at in steps)
    kills = [steps[after] for before, after in zip(moments, moments[1:]) if restarts[after] > restarts[before]]
    return list(points.items()), kills


def run_loss(cluster, prometheus, supervisor, steps, harness):
    start = time.time()
    calm = fortunes(cluster, "calm", steps)
    cluster.wait_for_state(calm, "SUCCEEDED", limit=600)
    undisturbed, _ = curve(prometheus, calm, start)
    start = time.time()
    hunted = fortunes(cluster, "hunted", steps)
    for kill in range(1, KILLS + 1):
        cluster.wait_for_step(hunted, steps * kill // (KILLS + 1))
        worker = cluster.get(hunted)["ranks"][kill % WORKERS]["worker"].split("/")[1]
        os.kill(harness.devices(supervisor)[worker], signal.SIGKILL)
        harness.wait_for(lambda: cluster.get(hunted)["epoch"] > kill, "it goes on")
    cluster.wait_for_state(hunted, "SUCCEEDED", limit=600)
    disturbed, kills = curve(prometheus, hunted, start)
    return draw_loss(undisturbed, disturbed, kills)


def run_strategies(cluster, prometheus, supervisor, steps, harness):
    memory, seconds = {}, {}
    for strategy in STRATEGIES:
        cluster.wait_for_workers(WORKERS)
        job = fortunes(cluster, strategy, LONG, "--set", f"parallel.strategy={strategy}")
        cluster.wait_for_step(job, steps)
        harness.wait_for(lambda: prometheus.discover() and prometheus.value_of(
            f'count(sherd_step{{job="{job}"}} >= {steps})') == WORKERS, "every rank is seen")
        memory[strategy] = {pool: value / 2**20 for pool, value in prometheus.by_label(
            f'sherd_memory_peak_bytes{{job="{job}",rank="0"}}', "pool").items()}
        seconds[strategy] = {phase: value * 1e3 for phase, value in prometheus.by_label(
            f'sum by (phase) (sherd_phase_seconds_total{{job="{job}"}}) '
            f'/ scalar(sum(sherd_step_seconds_count{{job="{job}"}}))', "phase").items()}
        cluster.sherd("cancel", job, check=0)
        cluster.wait_for_state(job, "CANCELLED")
    pools = ("params", "grads", "optimizer", "replicas", "gathered", "accumulators", "activations", "comm", "staging",
             "scratch", "padding")
    return (draw_bars(f"What rank 0 of {WORKERS} holds, by strategy", "largest of each pool, MiB", memory, pools),
            draw_bars(f"A step of {WORKERS} ranks, by strategy", "milliseconds",
                      seconds, ("data", "forward", "backward", "update", "exposed")))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/pictures")
    parser.add_argument("--steps", type=int, default=400)
    flags = parser.parse_args()
    os.environ["SHERD_BIN"] = str(flags.bin)
    sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/deploy")]
    import harness
    import prometheus

    cluster = harness.EndToEnd()
    cluster.setUp()
    try:
        coordinator = cluster.start_coordinator("--metrics", "127.0.0.1:0")
        # One to spare, so that a killed rank is replaced at once.
        supervisor = cluster.start("sherd-worker", "--coordinator", cluster.address, "--devices", f"cpu:{WORKERS + 1}",
                                   "--metrics", "127.0.0.1:0", "--data-root", "/", "--output-root", cluster.scratch)
        watcher = prometheus.Prometheus(cluster, coordinator, supervisor, interval=f"{SCRAPE * 1000:.0f}ms")
        cluster.wait_for_workers(WORKERS + 1)
        watcher.discover()
        harness.wait_for(lambda: watcher.value_of("sum(up)") == WORKERS + 2, "all are watched")
        flags.out.mkdir(parents=True, exist_ok=True)
        loss = run_loss(cluster, watcher, supervisor, flags.steps, harness)
        memory, exposed = run_strategies(cluster, watcher, supervisor, flags.steps // 10, harness)
        for name, drawn in {"loss": loss, "memory": memory, "exposed": exposed}.items():
            (flags.out / f"{name}.svg").write_text(drawn)
            print(flags.out / f"{name}.svg")
    finally:
        cluster.doCleanups()
    return 0


if __name__ == "__main__":
    sys.exit(main())
