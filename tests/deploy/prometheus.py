"""A real Prometheus that watches the daemons of a test."""

import json
import os
import pathlib
import re
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from harness import wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("SHERD_PROMETHEUS", ROOT / "build/tools/prometheus/usr/bin/prometheus"))

CONFIGURATION = """\
global: {{scrape_interval: {interval}, scrape_timeout: {interval}, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - {{job_name: sherd-coordinator, honor_labels: true, static_configs: [{{targets: ["{coordinator}"]}}]}}
  - job_name: sherd-workers
    honor_labels: true
    file_sd_configs: [{{files: ["{workers}"], refresh_interval: 1s}}]
"""


class Prometheus:
    """A server on a free port of this host, with a directory of its own, for a coordinator and a supervisor."""

    def __init__(self, test, coordinator, supervisor, interval="500ms"):
        self.test, self.started = test, [supervisor]
        directory = test.scratch / "prometheus"
        directory.mkdir()
        self.targets = directory / "workers.json"
        (directory / "prometheus.yml").write_text(CONFIGURATION.format(
            interval=interval, rules=ROOT / "dashboards/alerts.yaml", coordinator=test.metrics_address(coordinator),
            workers=self.targets))
        # Prometheus does not tell which port it was given for port 0.
        for _ in range(5):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.address = f"127.0.0.1:{probe.getsockname()[1]}"
            with open(directory / "log", "ab") as log:
                self.process = subprocess.Popen(
                    [str(PROGRAM), f"--config.file={directory}/prometheus.yml",
                     f"--storage.tsdb.path={directory}/data", f"--web.listen-address={self.address}"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)
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

    def watch(self, worker):
        """Another process, of one worker."""
        self.started.append(worker)

    def discover(self):
        """Has all workers scraped that were started so far, and says how many. Their logs have the ports."""
        logs = "".join(pathlib.Path(process.log_path).read_text() for process in self.started)
        ports = set(re.findall(r"serving /metrics on port (\d+)", logs))
        temporary = self.targets.with_suffix(".tmp")
        temporary.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}" for port in sorted(ports)]}]))
        temporary.rename(self.targets)
        return len(ports)

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

    def by_label(self, expression, label):
        """A query's values now, by one label."""
        result = self.ask("query", query=expression)["result"]
        return {each["metric"][label]: float(each["value"][1]) for each in result}
