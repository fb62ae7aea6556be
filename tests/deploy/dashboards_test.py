"""A real Prometheus watches a real job with a kill in it, and every query of every dashboard finds data (F57)."""

import os
import pathlib
import re
import signal
import statistics
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "scripts")]

import check_dashboards as house  # noqa: E402
import make_metrics_doc  # noqa: E402
from harness import EndToEnd, devices, wait_for  # noqa: E402
from prometheus import PROGRAM, Prometheus  # noqa: E402
import yaml  # noqa: E402

# What Grafana would put in for its own variable.
RATE_INTERVAL = "5s"
WORKERS = 3
# The software device behind the door of the back end for GPUs, and a library that looks like NVML.
DEVICE_LIBRARY = os.environ["SHERD_DEVICE_LIBRARY"]
NVML_LIBRARY = os.environ["SHERD_NVML_LIBRARY"]
# Of a worker, FLOP/s: more than any processor does for one.
PEAK = 1e13
SCRAPES_ENOUGH = 8


def filled(expression, values):
    """A query as Grafana sends it."""
    for name, value in values.items():
        expression = re.sub(rf"\$\{{?{name}\b\}}?", lambda _: value, expression)
    assert "$" not in expression, expression
    return expression


class Dashboards(EndToEnd):
    def setUp(self):
        super().setUp()
        self.assertTrue(PROGRAM.exists(), f"{PROGRAM} is missing: scripts/setup.sh --checks brings it")
        self.started = time.time()
        coordinator = self.start_coordinator("--metrics", "127.0.0.1:0")
        self.supervisor = self.start_workers(WORKERS, "--metrics", "127.0.0.1:0", "--peak-flops", f"{PEAK:g}")
        self.prometheus = Prometheus(self, coordinator, self.supervisor)
        wait_for(lambda: self.prometheus.discover() == WORKERS, "every worker's metrics port")
        self.wait_for_workers(WORKERS)

    def train_with_a_kill(self):
        """A job that saves, loses a worker, gets another and goes on; still running when this returns."""
        path = self.job(steps=1_000_000, workers=WORKERS - 1)
        job = self.submit(path, "--set", "checkpoint.every=200", "--set", "elastic.min_workers=1")
        self.wait_for_step(job, 300)
        victim = next(each["worker"].split("/")[1] for each in self.get(job)["ranks"] if each["rank"] == 1)
        os.kill(devices(self.supervisor)[victim], signal.SIGKILL)
        wait_for(lambda: self.get(job)["epoch"] > 1 and self.state(job) == "RUNNING", "it goes on")
        wait_for(lambda: self.prometheus.discover() > WORKERS, "the worker is started again")
        self.start_worker_with_a_gpu()
        self.wait_for_scrapes(job)
        return job

    def start_worker_with_a_gpu(self):
        """It has no rank: a GPU's readings are there without."""
        worker = self.start("sherd-worker", "--coordinator", self.address, "--name", "gpu", "--device", "cuda:0",
                            "--device-library", DEVICE_LIBRARY, "--nvml-library", NVML_LIBRARY, "--metrics",
                            "127.0.0.1:0", "--data-root", self.scratch, "--output-root", self.scratch)
        self.prometheus.watch(worker)
        wait_for(lambda: self.prometheus.discover() > WORKERS + 1, "the metrics port of a worker with a GPU")

    def wait_for_scrapes(self, job):
        for expression, least, what in (
                ('sum(sherd_job_restarts_total{reason="death"})', 1, "the kill"),
                ("sum(sherd_checkpoint_seconds_count)", 1, "a checkpoint"),
                (f'count(sherd_step{{job="{job}"}})', WORKERS - 1, "both ranks again"),
                # The dead worker is one more, and so is the one with a GPU.
                (f"count(count_over_time(up[5m]) >= {SCRAPES_ENOUGH})", WORKERS + 3, "all, often enough for rates")):
            # Somebody looks at the job meanwhile: calls between two scrapes have times.
            wait_for(lambda: self.get(job) and (self.prometheus.value_of(expression) or 0) >= least,
                     f"Prometheus sees {what}")

    def assert_data(self, expression):
        found = self.prometheus.values_of(expression, self.started, time.time())
        self.assertTrue(found, f"No data: {expression}")

    def assert_utilised(self, values):
        """F56: MFU is operations over the stated peak of the ranks that did them, and below 1."""
        panels = {title: filled(expression, values)
                  for title, expression in house.queries_of(house.load_dashboards()["job.json"])}

        def values_of(expression):
            return self.prometheus.values_of(expression, self.started, time.time())

        self.assertLess(max(values_of(panels["MFU"])), 1)
        # The spare worker's peak is not counted. While a rank is missing the two are of different ranks.
        shares = values_of(f"({panels['MFU']}) * {PEAK * (WORKERS - 1):g} / ({panels['Compute']})")
        self.assertAlmostEqual(statistics.median(shares), 1, places=6)

    def assert_documented(self):
        """docs/metrics.md, which is made from the sources, says of each series what the daemons serve."""
        rows = {name: (kind, said) for _, folder, _ in make_metrics_doc.SECTIONS
                for name, kind, said in make_metrics_doc.rows(folder)}
        served = self.prometheus.ask("metadata")
        for name in [name for name in served if name.startswith("sherd_")]:
            with self.subTest(metric=name):
                kinds = {said["type"] for said in served[name]}
                self.assertEqual(kinds, {rows[name][0]})
        added = {"__name__", "instance", "job", "le"}
        for series in self.prometheus.ask("series", **{"match[]": '{__name__=~"sherd_.+"}'}):
            name = series["__name__"]
            name = name if name in rows else re.sub("_(bucket|sum|count)$", "", name)
            labels = set(series) - added - ({"rank"} if name == "sherd_job_info" else set())
            with self.subTest(series=series["__name__"]):
                self.assertEqual(labels, set(make_metrics_doc.labels_of(name)) - added)

    def test_every_query_of_every_dashboard_finds_data(self):
        job = self.train_with_a_kill()
        values = {"__rate_interval": RATE_INTERVAL, "job": f"({job}|.+)", "rank": ".+"}
        asked = 0
        for name, dashboard in house.load_dashboards().items():
            for title, expression in house.queries_of(dashboard):
                with self.subTest(dashboard=name, panel=title):
                    self.assert_data(filled(expression, values))
                    asked += 1
            for variable in house.variables_of(dashboard).values():
                if variable["type"] != "query":
                    continue
                selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()
                with self.subTest(dashboard=name, variable=variable["name"]):
                    found = self.prometheus.ask(f"label/{label}/values", **{"match[]": filled(selector, values)})
                    self.assertIn(job if label == "job" else "1", found)
        for group in yaml.safe_load((ROOT / "dashboards/alerts.yaml").read_text())["groups"]:
            for rule in group["rules"]:
                # What is compared exists, so that silence of an alert means that all is well.
                for selector in re.findall(r"sherd_\w+(?:\{[^}]*\})?", rule["expr"]):
                    with self.subTest(alert=rule["alert"], series=selector):
                        self.assert_data(selector)
        self.assert_utilised(values)
        self.assert_documented()
        rules = self.prometheus.ask("rules")["groups"]
        self.assertEqual({rule["health"] for group in rules for rule in group["rules"]}, {"ok"})
        print(f"{asked} queries of {len(house.load_dashboards())} dashboards have data, "
              f"{time.time() - self.started:.0f} s after the start")
        self.sherd("cancel", job, check=0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
