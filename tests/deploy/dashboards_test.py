"""A real Prometheus watches a real job with a kill in it, and every query of every dashboard finds data (F57)."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "scripts")]

import check_dashboards as house  # noqa: E402
from harness import EndToEnd, devices, wait_for  # noqa: E402
import yaml  # noqa: E402

PROMETHEUS = pathlib.Path(os.environ.get("SHERD_PROMETHEUS", ROOT / "build/tools/prometheus/usr/bin/prometheus"))
SCRAPES = "500ms"
# What Grafana would put in for its own variables.
RATE_INTERVAL = "5s"
WORKERS = 3
SCRAPES_ENOUGH = 8

CONFIGURATION = """\
global: {{scrape_interval: {scrapes}, scrape_timeout: {scrapes}, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - {{job_name: sherd-coordinator, honor_labels: true, static_configs: [{{targets: ["{coordinator}"]}}]}}
  - job_name: sherd-workers
    honor_labels: true
    file_sd_configs: [{{files: ["{workers}"], refresh_interval: 1s}}]
"""


def filled(expression, values):
    """A query as Grafana sends it."""
    for name, value in values.items():
        expression = re.sub(rf"\$\{{?{name}\b\}}?", lambda _: value, expression)
    assert "$" not in expression, expression
    return expression


class Prometheus:
    """A server on a free port of this host, with a directory of its own."""

    def __init__(self, test, configuration):
        self.test = test
        directory = test.scratch / "prometheus"
        directory.mkdir()
        (directory / "prometheus.yml").write_text(configuration)
        # Prometheus does not tell which port it was given for port 0.
        for _ in range(5):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.address = f"127.0.0.1:{probe.getsockname()[1]}"
            self.log = open(directory / "log", "ab")
            self.process = subprocess.Popen(
                [str(PROMETHEUS), f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
                 f"--web.listen-address={self.address}"],
                stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
            test.stack.callback(self.log.close)
            test.stack.callback(test.stop, self.process)
            wait_for(lambda: self.process.poll() is not None or self.ready(), "Prometheus serves")
            if self.process.poll() is None:
                return
        raise AssertionError((directory / "log").read_text())

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, path, **parameters):
        address = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def values_of(self, expression, start, end):
        """All numbers that a query has between two moments; one that is not finite is none."""
        series = self.ask("query_range", query=expression, start=start, end=end, step=0.5)["result"]
        return [float(value) for each in series for _, value in each["values"]
                if value not in ("NaN", "+Inf", "-Inf")]

    def value_of(self, expression):
        result = self.ask("query", query=expression)["result"]
        return float(result[0]["value"][1]) if result else None


class Dashboards(EndToEnd):
    def worker_ports(self, supervisor):
        """Where the children of a supervisor serve their metrics: its own log says it, child by child."""
        log = pathlib.Path(supervisor.log_path).read_text()
        return sorted(set(re.findall(r"serving /metrics on port (\d+)", log)))

    def discover(self, supervisor):
        targets = [f"127.0.0.1:{port}" for port in self.worker_ports(supervisor)]
        temporary = self.scratch / "workers.tmp"
        temporary.write_text(json.dumps([{"targets": targets}]))
        temporary.rename(self.scratch / "workers.json")
        return len(targets)

    def train_with_a_kill(self, supervisor):
        """A job that saves, loses a worker, gets another and goes on; still running when this returns."""
        path = self.job(steps=1_000_000, workers=WORKERS - 1)
        job = self.submit(path, "--set", "checkpoint.every=200", "--set", "elastic.min_workers=1")
        self.wait_for_step(job, 300)
        victim = next(each["worker"].split("/")[1] for each in self.get(job)["ranks"] if each["rank"] == 1)
        os.kill(devices(supervisor)[victim], signal.SIGKILL)
        wait_for(lambda: self.get(job)["epoch"] > 1 and self.state(job) == "RUNNING", "it goes on")
        wait_for(lambda: self.discover(supervisor) > WORKERS, "the worker is started again")
        return job

    def test_every_query_of_every_dashboard_finds_data(self):
        self.assertTrue(PROMETHEUS.exists(), f"{PROMETHEUS} is missing: scripts/setup.sh --checks brings it")
        started = time.time()
        coordinator = self.start_coordinator("--metrics", "127.0.0.1:0")
        supervisor = self.start_workers(WORKERS, "--metrics", "127.0.0.1:0")
        wait_for(lambda: self.discover(supervisor) == WORKERS, "every worker's metrics port")
        prometheus = Prometheus(self, CONFIGURATION.format(
            scrapes=SCRAPES, rules=ROOT / "dashboards/alerts.yaml", coordinator=self.metrics_address(coordinator),
            workers=self.scratch / "workers.json"))
        self.wait_for_workers(WORKERS)
        job = self.train_with_a_kill(supervisor)
        wait_for(lambda: prometheus.value_of('sum(sherd_job_restarts_total{reason="death"})'), "the kill is seen")
        wait_for(lambda: (prometheus.value_of("sum(sherd_checkpoint_seconds_count)") or 0) > 0, "a checkpoint is seen")
        wait_for(lambda: (prometheus.value_of(f'count(sherd_step{{job="{job}"}})') or 0) >= WORKERS - 1,
                 "both ranks are seen again")
        wait_for(lambda: prometheus.value_of(f"count(count_over_time(up[5m]) >= {SCRAPES_ENOUGH})") == WORKERS + 2,
                 "every target, the dead worker's and its successor's too, was scraped often enough for rates")

        values = {"__rate_interval": RATE_INTERVAL, "job": "(" + job + "|.+)", "rank": ".+"}
        asked = 0
        for name, dashboard in house.load_dashboards().items():
            for title, expression in house.queries_of(dashboard):
                with self.subTest(dashboard=name, panel=title):
                    found = prometheus.values_of(filled(expression, values), started, time.time())
                    self.assertTrue(found, f"No data: {expression}")
                    asked += 1
            for variable in house.variables_of(dashboard).values():
                if variable["type"] != "query":
                    continue
                selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()
                with self.subTest(dashboard=name, variable=variable["name"]):
                    found = prometheus.ask(f"label/{label}/values", **{"match[]": filled(selector, values)})
                    self.assertIn(job if label == "job" else "1", found)
        for group in yaml.safe_load((ROOT / "dashboards/alerts.yaml").read_text())["groups"]:
            for rule in group["rules"]:
                # What is compared exists, so that silence of an alert means that all is well.
                for selector in re.findall(r"sherd_\w+(?:\{[^}]*\})?", rule["expr"]):
                    with self.subTest(alert=rule["alert"], series=selector):
                        self.assertTrue(prometheus.values_of(selector, started, time.time()), f"No data: {selector}")
        rules = prometheus.ask("rules")["groups"]
        self.assertEqual({rule["health"] for group in rules for rule in group["rules"]}, {"ok"})
        print(f"{asked} queries of {len(house.load_dashboards())} dashboards have data, "
              f"{time.time() - started:.0f} s after the start")
        self.sherd("cancel", job, check=0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
