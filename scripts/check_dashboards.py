#!/usr/bin/env python3
"""Fails when a dashboard or an alert breaks a rule of the house.

Dashboards: a uid of its own, schema version 39 or newer, a description and a unit on every panel, the data source as
a variable, every variable declared and used, rates over $__rate_interval, links that lead somewhere, panels that do
not overlap, and no metric that the sources do not have. Every metric of the sources is on some dashboard.
Alerts: a severity, a summary, a section in docs/operations.md, a test in which it fires and one in which it does not.
"""

import json
import pathlib
import re
import sys

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_dashboards  # noqa: E402

ROOT = make_dashboards.ROOT
OLDEST_SCHEMA = 39
UNITS = {"none", "s", "bytes", "Bps", "percentunit", "ops", "reqps", "wps", "hertz", "watt", "celsius"}
SEVERITIES = {"critical", "warning"}
BUILT_IN = {"__rate_interval"}
METRIC = re.compile(r"\bsherd_[a-z0-9_]+")
VARIABLE = re.compile(r"\$\{?([a-zA-Z_]+)")
BUILDERS = re.compile(r"Build(Gauge|Counter|Histogram)\(|Add(Gauge|Counter)\(|(Gauge)s\(")


def metrics_of(text):
    """Name → gauge, counter or histogram, of the metrics that a source registers."""
    found = {}
    for match in re.finditer(r'"(sherd_[a-z0-9_]+)"', text):
        kinds = [next(filter(None, builder.groups())).lower() for builder in BUILDERS.finditer(text, 0, match.start())]
        found[match.group(1)] = kinds[-1] if kinds else "counter"
    return found


def source_metrics():
    found = {}
    for folder in ("common", "coordinator", "worker"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cc", ".h"):
                found.update(metrics_of(path.read_text()))
    return found


def series_of(metrics):
    """Series → the metric that it belongs to."""
    series = {}
    for name, kind in metrics.items():
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            series[name + suffix] = name
    return series


def panels_of(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries_of(dashboard):
    """Panel title and expression of every query."""
    return [(panel["title"], target["expr"]) for panel in panels_of(dashboard) for target in panel["targets"]]


def variables_of(dashboard):
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def check_panel(panel, declared):
    unit = panel["fieldConfig"]["defaults"].get("unit")
    if unit not in UNITS:
        yield f"unit {unit!r} is none of {', '.join(sorted(UNITS))}"
    if not re.search(r"\S.*\.$", panel.get("description", ""), re.DOTALL):
        yield "no description that ends as a sentence"
    if panel.get("datasource") != make_dashboards.DATASOURCE:
        yield "its data source is not ${datasource}"
    if not panel["targets"]:
        yield "no query"
    for target in panel["targets"]:
        expression = target["expr"]
        if target["datasource"] != make_dashboards.DATASOURCE:
            yield "a query's data source is not ${datasource}"
        if len(panel["targets"]) > 1 and target.get("format") != "table" and not target.get("legendFormat"):
            yield "several queries, and one without a legend"
        for name in set(VARIABLE.findall(expression)) - declared - BUILT_IN:
            yield f"${name} is not declared"
        for window in re.findall(r"\[([^\]]+)\]", expression):
            if window != "$__rate_interval":
                yield f"a rate over [{window}] and not [$__rate_interval]"
        for name in re.findall(r"(\w+)\s*(?:\{[^}]*\})?\[", expression):
            if not name.endswith(("_total", "_bucket", "_sum", "_count")):
                yield f"a rate of {name}, which is no counter"


def check_layout(dashboard):
    taken = {}
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        if at["x"] < 0 or at["x"] + at["w"] > make_dashboards.GRID_WIDTH:
            yield f"panel {panel['title']!r} is wider than the grid"
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if taken.setdefault((x, y), panel["title"]) != panel["title"]:
                    yield f"panels {taken[x, y]!r} and {panel['title']!r} overlap"
                    return


def check_links(dashboard, by_uid):
    if not any(link["type"] == "dashboards" and "sherd" in link["tags"] for link in dashboard["links"]):
        yield "no links to the other dashboards"
    for uid, name in re.findall(r"/d/([a-z-]+)\?var-(\w+)", json.dumps(dashboard)):
        if name not in variables_of(by_uid.get(uid, {"templating": {"list": []}})):
            yield f"a link leads to {uid} with the variable {name}, which is not there"


def check_dashboard(dashboard, by_uid, series):
    if not re.fullmatch(r"sherd-[a-z]+", dashboard.get("uid", "")):
        yield f"uid {dashboard.get('uid')!r} is not sherd-WORD"
    if not dashboard.get("title", "").startswith("Sherd / ") or not dashboard.get("description"):
        yield "no title that starts with Sherd, or no description"
    if dashboard.get("schemaVersion", 0) < OLDEST_SCHEMA:
        yield f"schema version {dashboard.get('schemaVersion')} is older than {OLDEST_SCHEMA}"
    if "sherd" not in dashboard.get("tags", []):
        yield "no tag sherd"
    variables = variables_of(dashboard)
    if variables.get("datasource", {}).get("type") != "datasource":
        yield "no variable for the data source"
    titles = [panel["title"] for panel in panels_of(dashboard)]
    for title in sorted({title for title in titles if titles.count(title) > 1}):
        yield f"two panels are called {title!r}"
    for panel in panels_of(dashboard):
        yield from (f"panel {panel['title']!r}: {problem}" for problem in check_panel(panel, set(variables)))
    texts = [expression for _, expression in queries_of(dashboard)]
    for variable in variables.values():
        if variable["name"] != "datasource" and not any(f"${variable['name']}" in text for text in texts):
            yield f"no query uses ${variable['name']}"
    for text in texts + [variable.get("definition", "") for variable in variables.values()]:
        for name in sorted(set(METRIC.findall(text)) - set(series)):
            yield f"there is no series {name} in the sources"
    yield from check_layout(dashboard)
    yield from check_links(dashboard, by_uid)


def check_dashboards(dashboards, metrics):
    """Problems of all dashboards, by file name, together."""
    series = series_of(metrics)
    by_uid = {dashboard.get("uid"): dashboard for dashboard in dashboards.values()}
    if len(by_uid) != len(dashboards):
        yield "two dashboards have the same uid"
    for name, dashboard in dashboards.items():
        yield from (f"{name}: {problem}" for problem in check_dashboard(dashboard, by_uid, series))
    shown = {series.get(name) for dashboard in dashboards.values() for _, text in queries_of(dashboard)
             for name in METRIC.findall(text)}
    for name in sorted(set(metrics) - shown):
        yield f"{name} is on no dashboard"


def anchors_of(markdown):
    """What headings of a page can be linked to as."""
    headings = re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_alerts(alerts, tests, metrics, runbook):
    series = series_of(metrics)
    fires, silent = set(), set()
    for case in (case for test in tests["tests"] for case in test.get("alert_rule_test", [])):
        (fires if case.get("exp_alerts") else silent).add(case["alertname"])
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    for rule in rules:
        name = rule["alert"]
        if rule.get("labels", {}).get("severity") not in SEVERITIES:
            yield f"{name}: its severity is none of {', '.join(sorted(SEVERITIES))}"
        notes = rule.get("annotations", {})
        if not notes.get("summary") or not notes.get("description"):
            yield f"{name}: no summary or no description"
        if notes.get("runbook") != f"docs/operations.md#{name.lower()}" or name.lower() not in anchors_of(runbook):
            yield f"{name}: no section of its own in docs/operations.md, or no link to it"
        for metric in sorted(set(METRIC.findall(rule["expr"])) - set(series)):
            yield f"{name}: there is no series {metric} in the sources"
        if name not in fires:
            yield f"{name}: no test in which it fires"
        if name not in silent:
            yield f"{name}: no test in which it does not"
    for name in sorted((fires | silent) - {rule["alert"] for rule in rules}):
        yield f"{name}: tested, and not there"


def load_dashboards():
    return {path.name: json.loads(path.read_text()) for path in sorted((ROOT / "dashboards").glob("*.json"))}


def main():
    metrics = source_metrics()
    dashboards = load_dashboards()
    alerts = yaml.safe_load(make_dashboards.ALERTS.read_text())
    tests = yaml.safe_load((ROOT / "dashboards/alerts_test.yaml").read_text())
    problems = list(check_dashboards(dashboards, metrics))
    problems += check_alerts(alerts, tests, metrics, (ROOT / "docs/operations.md").read_text())
    made = make_dashboards.made_files()
    problems += [f"{name}: made from no source" for name in dashboards if ROOT / "dashboards" / name not in made]
    problems += [f"{path.name}: out of date; run scripts/make_dashboards.py" for path, text in made.items()
                 if not path.exists() or path.read_text() != text]
    for problem in problems:
        print(problem)
    panels = sum(len(panels_of(dashboard)) for dashboard in dashboards.values())
    rules = sum(len(group["rules"]) for group in alerts["groups"])
    print(f"check_dashboards: {len(dashboards)} dashboards, {panels} panels, {len(metrics)} metrics, {rules} alerts, "
          f"{len(problems)} problems")
    return 1 if problems or not dashboards or not metrics else 0


if __name__ == "__main__":
    sys.exit(main())
