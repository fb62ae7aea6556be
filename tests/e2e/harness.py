"""Real processes for end-to-end tests: coordinators, workers, the client; and what they may not leave behind."""

import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

BIN = pathlib.Path(os.environ["SHERD_BIN"])
LIMIT = float(os.environ.get("SHERD_TEST_LIMIT", "60"))

JOB = """\
name: {name}
model: {{arch: gpt2, layers: 2, hidden: 32, heads: 2, vocab: 256, context: 32, tie_embeddings: true}}
data: {{train: [{text}], format: text, tokenizer: bytes}}
train:
  steps: {steps}
  global_batch: 4
  micro_batch: 1
  seq_len: 32
  seed: 1
  optimizer: {{lr: 1e-3, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1}}
  schedule: {{kind: cosine, warmup: 2, min_lr: 1e-4}}
  grad_clip: 1.0
parallel: {{strategy: {strategy}}}
precision: {{compute: bf16}}
elastic: {{min_workers: {workers}, max_workers: {workers}, failure_detection: 3s}}
checkpoint: {{dir: {out}}}
"""

# A health check as a kubelet makes it: ADDRESS SERVICE.
HEALTH = """\
import sys, grpc
channel = grpc.insecure_channel(sys.argv[1])
service = sys.argv[2].encode()
request = b"\\x0a" + bytes([len(service)]) + service if service else b""
answer = channel.unary_unary("/grpc.health.v1.Health/Check")(request, timeout=2)
sys.exit(0 if answer == b"\\x08\\x01" else 1)
"""


def wait_for(condition, what, limit=LIMIT):
    """Polls until the condition holds and returns its value; fails the test at the limit."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(0.02)


def quantile(values, share):
    """The smallest of the values that this share of all does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return []


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def growth(pid):
    """What a long-running process may not accumulate."""
    with open(f"/proc/{pid}/status") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    return {
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "maps": pathlib.Path(f"/proc/{pid}/maps").read_text().count("\n"),
        "resident_kib": int(status["VmRSS"].split()[0]),
    }


class Follower:
    """A client that watches a job: its events, each with the moment at which it came."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env=environment)
        self.came = threading.Condition()
        self.seen = []  # (moment, event), guarded by `came`
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            with self.came:
                self.seen.append((time.monotonic(), event))
                self.came.notify_all()

    def events(self):
        with self.came:
            return [event for _, event in self.seen]

    def count(self, name):
        return sum(event["event"] == name for event in self.events())

    def last(self, name):
        """The last event of a kind; None while there is none."""
        with self.came:
            return next((event for _, event in reversed(self.seen) if event["event"] == name), None)

    def over(self):
        return self.last("done") is not None

    def place(self):
        """Where the feed is: what comes later lies behind it."""
        with self.came:
            return len(self.seen)

    def await_event(self, accepts, what, behind=0, limit=LIMIT):
        """The first event behind a place that is accepted: its moment, the event and the place behind it."""
        deadline = time.monotonic() + limit
        at = behind
        with self.came:
            while True:
                while at < len(self.seen):
                    moment, event = self.seen[at]
                    at += 1
                    if accepts(event):
                        return moment, event, at
                if not self.came.wait(deadline - time.monotonic()) and at == len(self.seen):
                    raise AssertionError(f"not within {limit} s: {what}; the last events: {self.seen[-3:]}")

    def finish(self, limit=LIMIT):
        """All events, when the feed has ended."""
        self.thread.join(limit)
        if self.thread.is_alive():
            raise AssertionError(f"not within {limit} s: the end of the feed; it stands at {self.events()[-1:]}")
        self.process.wait()
        return self.events()

    def stop(self):
        self.process.terminate()
        self.thread.join()
        self.process.wait()
        self.process.stdout.close()


class EndToEnd(unittest.TestCase):
    """Every test has a scratch directory, and checks at its end that no process of ours is left."""

    # The network namespace in which programs run; None: this process's own.
    inside = None

    def command(self, program, arguments):
        enter = ["ip", "netns", "exec", self.inside] if self.inside else []
        return [*enter, str(BIN / program), *map(str, arguments)]

    def environment(self):
        """Of every program. Namespaces are no loopback, where plain text would need no word."""
        insecure = {"SHERD_INSECURE": "1"} if self.inside else {}
        return {**os.environ, "SHERD_COORDINATOR": getattr(self, "address", ""), **insecure}

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        # Unique, so that only this test's processes carry it in their command lines.
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="sherd-e2e-"))
        self.stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
        self.stack.callback(self.assert_no_processes)
        self.text = self.scratch / "text.txt"
        self.text.write_text("the shard of a rank is kept by the rank that owns it.\n" * 200)

    def ours(self):
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and str(self.scratch) in command_line(int(entry)):
                if alive(int(entry)) and int(entry) != os.getpid():
                    found.append((int(entry), command_line(int(entry))))
        return found

    def assert_no_processes(self):
        wait_for(lambda: not self.ours(), f"all processes ended, left: {self.ours()}", limit=15)

    def start(self, *arguments, **options):
        log = open(self.scratch / f"{arguments[0]}-{time.monotonic_ns()}.log", "w+b")
        process = subprocess.Popen(self.command(arguments[0], arguments[1:]),
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   **{"env": self.environment(), **options})
        process.log_path = log.name
        log.close()
        self.stack.callback(self.stop, process)
        return process

    def stop(self, process, sig=signal.SIGTERM, limit=15):
        if process.poll() is None:
            process.send_signal(sig)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"did not end after {sig}: {process.args}")
        return process.returncode

    def start_coordinator(self, *extra, listen="127.0.0.1:0"):
        port_file = self.scratch / f"port-{time.monotonic_ns()}"
        self.coordinator_data = self.scratch / "coordinator"
        process = self.start("sherd-coordinator", "--listen", listen, "--port-file", port_file,
                             "--data-dir", self.coordinator_data, *extra)
        wait_for(lambda: port_file.exists() or process.poll() is not None, "coordinator serves")
        self.assertIsNone(process.poll(), pathlib.Path(process.log_path).read_text())
        self.address = port_file.read_text().strip()
        return process

    def start_workers(self, count, *extra):
        return self.start("sherd-worker", "--coordinator", self.address, "--devices", f"cpu:{count}",
                          "--data-root", self.scratch, "--output-root", self.scratch, *extra)

    def job(self, name="job", steps=20, workers=2, strategy="zero3", text=None, out=None):
        path = self.scratch / f"{name}.yaml"
        path.write_text(JOB.format(name=name, steps=steps, workers=workers, strategy=strategy,
                                   text=text or self.text, out=out or f"{self.scratch}/weights-{name}"))
        return path

    def sherd(self, *arguments, limit=LIMIT, check=None, **options):
        result = subprocess.run(self.command("sherd", arguments), capture_output=True, text=True, errors="replace",
                                timeout=limit, stdin=subprocess.DEVNULL, **{"env": self.environment(), **options})
        if check is not None:
            self.assertEqual(result.returncode, check, f"{result.args}\n{result.stdout}\n{result.stderr}")
        return result

    def submit(self, path, *overrides):
        answer = json.loads(self.sherd("submit", path, *overrides, "-o", "json", check=0).stdout)
        return answer["id"]

    def get(self, job):
        # The exit code tells the job's state.
        result = self.sherd("get", job, "-o", "json")
        self.assertNotEqual(result.stdout, "", f"exit code {result.returncode}: {result.stderr}")
        return json.loads(result.stdout)

    def state(self, job):
        return self.get(job)["state"]

    def workers(self):
        return json.loads(self.sherd("workers", "-o", "json", check=0).stdout)

    def wait_for_workers(self, count, status="idle", limit=LIMIT):
        return wait_for(lambda: sum(worker["status"] == status for worker in self.workers()) >= count,
                        f"{count} {status} workers", limit)

    def wait_for_state(self, job, *states, limit=LIMIT):
        return wait_for(lambda: self.state(job) in states, f"{job} in {states}: {self.get(job)}", limit)

    def wait_for_step(self, job, step):
        return wait_for(lambda: int(self.get(job).get("step", 0)) >= step, f"{job} at step {step}")

    def follow(self, job):
        """Follows a job's events from the first one on, until its end or the test's."""
        follower = Follower(self.command("sherd", ["watch", job, "-o", "json"]), self.environment())
        self.stack.callback(follower.stop)
        return follower

    def run_python(self, program, *arguments):
        return subprocess.run(["/usr/bin/python3", str(program), *map(str, arguments)], capture_output=True,
                              text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)

    def metrics_address(self, process):
        """Where a process serves its metrics, from its log."""
        pattern = re.compile(r"metrics on port (\d+)")
        found = wait_for(lambda: pattern.search(pathlib.Path(process.log_path).read_text()), "a metrics port")
        return f"127.0.0.1:{found.group(1)}"

    def health_address(self, process):
        """Where a process answers health checks, from its log."""
        pattern = re.compile(r"health checks on (\S+)")
        return wait_for(lambda: pattern.search(pathlib.Path(process.log_path).read_text()), "a health port").group(1)

    def serves(self, address, service=""):
        """What a health check says."""
        return subprocess.run(["/usr/bin/python3", "-c", HEALTH, address, service], capture_output=True, timeout=LIMIT).returncode == 0

    def scrape(self, address):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            return answer.read().decode()


def devices(supervisor):
    """Process ids of a supervisor's workers by device."""
    found = {}
    for child in children_of(supervisor.pid):
        match = re.search(r"--device (\S+)", command_line(child))
        if match:
            found[match.group(1)] = child
    return found
