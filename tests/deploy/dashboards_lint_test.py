"""The rules of the house hold for the dashboards and alerts as they are, and each is broken by what breaks it."""

import copy
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_dashboards as house  # noqa: E402
import make_metrics_doc  # noqa: E402
import yaml  # noqa: E402

PROMETHEUS = pathlib.Path(os.environ.get("SHERD_PROMETHEUS", ROOT / "build/tools/prometheus/usr/bin/prometheus"))
PROMTOOL = PROMETHEUS.parent / "promtool"
METRICS = house.source_metrics()


def first_panel(dashboard):
    return house.panels_of(dashboard)[0]


def first_target(dashboard):
    return first_panel(dashboard)["targets"][0]


def set_unit(dashboard):
    first_panel(dashboard)["fieldConfig"]["defaults"]["unit"] = "parsecs"


def overlap(dashboard):
    panels = house.panels_of(dashboard)
    panels[1]["gridPos"] = panels[0]["gridPos"]


# What a mistake is → what is done to the dashboard "Job", and a piece of what is said about it.
MISTAKES = {
    "no description": (lambda d: first_panel(d).update(description=""), "no description"),
    "another unit": (set_unit, "unit 'parsecs'"),
    "a data source of this installation": (
        lambda d: first_panel(d).update(datasource={"type": "prometheus", "uid": "P1"}),
        "data source is not"),
    "a query with a data source of its own": (
        lambda d: first_target(d).update(datasource={"uid": "P1"}),
        "data source is not"),
    "a metric that is nowhere": (
        lambda d: first_target(d).update(expr="sherd_job_happiness"),
        "no series sherd_job_happiness"),
    "a histogram without its suffix": (
        lambda d: first_target(d).update(expr="sherd_step_seconds"),
        "no series sherd_step_seconds"),
    "a variable that is not declared": (
        lambda d: first_target(d).update(expr='sherd_step{rank="$rank"}'),
        "$rank is not declared"),
    "a variable that nothing uses": (
        lambda d: d["templating"]["list"].append({"name": "node", "type": "query"}),
        "uses $node"),
    "no variable for the data source": (lambda d: d["templating"]["list"].pop(0), "no variable for the data source"),
    "a rate over a fixed window": (lambda d: first_target(d).update(expr="rate(sherd_tokens_total[5m])"), "[5m]"),
    "a rate of a gauge": (
        lambda d: first_target(d).update(expr="rate(sherd_job_step[$__rate_interval])"),
        "no counter"),
    "an old schema": (lambda d: d.update(schemaVersion=16), "schema version 16"),
    "another uid": (lambda d: d.update(uid="a7f3"), "uid 'a7f3'"),
    "the uid of another": (lambda d: d.update(uid="sherd-ranks"), "the same uid"),
    "a title twice": (lambda d: house.panels_of(d)[1].update(title=first_panel(d)["title"]), "two panels are called"),
    "panels on each other": (overlap, "overlap"),
    "a panel beyond the grid": (lambda d: first_panel(d)["gridPos"].update(x=22), "wider than the grid"),
    "no links": (lambda d: d.update(links=[]), "no links"),
    "a link to nowhere": (
        lambda d: first_panel(d).update(links=[{"url": "/d/sherd-node?var-job=a"}]),
        "leads to sherd-node"),
    "no query": (lambda d: first_panel(d).update(targets=[]), "no query"),
}


class Dashboards(unittest.TestCase):
    def test_the_committed_files_keep_every_rule(self):
        command = [sys.executable, str(ROOT / "scripts/check_dashboards.py")]
        result = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_mistake_is_found(self):
        for name, (make, said) in MISTAKES.items():
            with self.subTest(name):
                dashboards = copy.deepcopy(house.load_dashboards())
                make(dashboards["job.json"])
                problems = list(house.check_dashboards(dashboards, METRICS))
                self.assertTrue(any(said in problem for problem in problems), problems)

    def test_a_metric_that_no_dashboard_shows_is_found(self):
        problems = list(house.check_dashboards(house.load_dashboards(), {**METRICS, "sherd_new_total": "counter"}))
        self.assertEqual(problems, ["sherd_new_total is on no dashboard"])

    def test_metrics_are_read_from_sources_with_their_kinds(self):
        self.assertEqual(METRICS["sherd_recovery_seconds"], "histogram")
        self.assertEqual(METRICS["sherd_job_step"], "gauge")
        self.assertEqual(METRICS["sherd_rpcs_total"], "counter")
        self.assertEqual(METRICS["sherd_memory_bytes"], "gauge")


class Page(unittest.TestCase):
    def test_the_page_of_metrics_is_what_the_sources_say(self):
        self.assertEqual(make_metrics_doc.PAGE.read_text(), make_metrics_doc.page(), "run scripts/make_metrics_doc.py")


class Alerts(unittest.TestCase):
    def setUp(self):
        self.alerts = yaml.safe_load((ROOT / "dashboards/alerts.yaml").read_text())
        self.tests = yaml.safe_load((ROOT / "dashboards/alerts_test.yaml").read_text())
        self.runbook = (ROOT / "docs/operations.md").read_text()

    def problems(self):
        return list(house.check_alerts(self.alerts, self.tests, METRICS, self.runbook))

    def test_rules_are_sound_and_fire_when_they_should(self):
        self.assertTrue(PROMTOOL.exists(), f"{PROMTOOL} is missing: scripts/setup.sh --checks brings it")
        for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
            result = subprocess.run([PROMTOOL, *command], cwd=ROOT / "dashboards", capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_an_alert_without_a_runbook_a_test_or_a_severity_is_found(self):
        rule = copy.deepcopy(self.alerts["groups"][0]["rules"][0])
        rule.update(alert="SherdNew", labels={"severity": "meh"}, expr="sherd_new > 0")
        self.alerts["groups"][0]["rules"].append(rule)
        said = "\n".join(self.problems())
        for piece in ("severity", "no section of its own", "no test in which it fires", "no test in which it does not",
                      "no series sherd_new"):
            self.assertIn(piece, said)

    def test_a_runbook_section_that_is_gone_is_found(self):
        self.runbook = self.runbook.replace("SherdStraggler", "Stragglers")
        [problem] = self.problems()
        self.assertIn("SherdStraggler: no section of its own", problem)


if __name__ == "__main__":
    unittest.main(verbosity=2)
