#!/usr/bin/env python3
"""Writes Grafana's JSON from what people edit: dashboards/source/*.yaml becomes dashboards/*.json.

  scripts/make_dashboards.py           write
  scripts/make_dashboards.py --check   say which files are out of date; write nothing

It also writes the Kubernetes rules (a PrometheusRule) from dashboards/alerts.yaml, which Prometheus reads as it is.

A dashboard is a title, a uid, a description, its variables (job, rank) and rows of panels. A panel has a title, a
description, a unit and its queries by legend; a table has columns instead, each a label or a value of its own.
"""

import json
import pathlib
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "dashboards/source"
ALERTS = ROOT / "dashboards/alerts.yaml"
RULES = ROOT / "deploy/kubernetes/components/monitoring/rules.yaml"

SCHEMA_VERSION = 39  # Grafana 11
GRID_WIDTH = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
HEIGHTS = {"stat": 4, "table": 8, "timeseries": 8, "bargauge": 8}
VARIABLES = {
    "job": ("Job", "label_values(sherd_job_info, job)"),
    "rank": ("Rank", 'label_values(sherd_step{job=~"$job"}, rank)'),
}


def variable(name):
    label, query = VARIABLES[name]
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "definition": query,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 3, "multi": True, "includeAll": True,
            "allValue": ".+", "current": {"text": ["All"], "value": ["$__all"]}}


def datasource_variable():
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}


def target(number, expression, legend="", table=False):
    query = {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "editorMode": "code", "expr": expression}
    if table:
        return {**query, "format": "table", "instant": True, "range": False}
    return {**query, "legendFormat": legend, "instant": False, "range": True}


def table_parts(panel):
    """Targets, transformations and overrides of a table: columns are labels or values of their own."""
    targets, shown, overrides = [], [], []
    info = panel.get("info")
    if info:
        targets.append(target(0, info, table=True))
    for title, column in panel["columns"].items():
        if isinstance(column, str):
            shown.append((column, title))
            continue
        # Joined tables number their values by query; a single one has none to tell apart.
        field = f"Value #{chr(ord('A') + len(targets))}" if info else "Value"
        targets.append(target(len(targets), column["value"], table=True))
        shown.append((field, title))
        properties = [{"id": key, "value": column[key]} for key in ("unit", "decimals") if key in column]
        if properties:
            overrides.append({"matcher": {"id": "byName", "options": title}, "properties": properties})
    link = panel.get("link")
    if link:
        url = (f"/d/{link['dashboard']}?var-{link['variable']}=${{__value.raw}}"
               "&${datasource:queryparam}&${__url_time_range}")
        overrides.append({"matcher": {"id": "byName", "options": link["column"]},
                          "properties": [{"id": "links", "value": [{"title": "Open", "url": url}]}]})
    transformations = []
    if info:
        transformations.append({"id": "joinByField", "options": {"byField": panel["join"], "mode": "outerTabular"}})
    names = [name for name, _ in shown]
    transformations.append({"id": "filterFieldsByName", "options": {"include": {"names": names}}})
    order = {name: i for i, (name, _) in enumerate(shown)}
    transformations.append({"id": "organize", "options": {"renameByName": dict(shown), "indexByName": order}})
    return targets, transformations, overrides


def field_defaults(panel, kind):
    defaults = {"unit": panel["unit"], "noValue": "none"}
    if "decimals" in panel:
        defaults["decimals"] = panel["decimals"]
    steps = panel.get("thresholds", {})
    if steps:
        defaults["thresholds"] = {"mode": "absolute", "steps": [
            {"color": color, "value": None if value == 0 else value} for value, color in steps.items()]}
    if kind == "timeseries":
        stacked = panel.get("stack", False)
        defaults["min"] = 0 if stacked else None
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 20 if stacked else 0, "showPoints": "never",
                              "stacking": {"mode": "normal" if stacked else "none", "group": "A"}}
    return {key: value for key, value in defaults.items() if value is not None}


OPTIONS = {
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                   "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
             "colorMode": "value", "graphMode": "none", "textMode": "auto"},
    "bargauge": {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                 "orientation": "horizontal", "displayMode": "basic"},
    "table": {"showHeader": True},
}


def make_panel(panel, number, position):
    kind = panel.get("type", "timeseries")
    made = {"id": number, "type": kind, "title": panel["title"], "description": panel["description"],
            "datasource": DATASOURCE, "gridPos": position, "options": OPTIONS[kind]}
    overrides = []
    if kind == "table":
        made["targets"], made["transformations"], overrides = table_parts(panel)
    else:
        made["targets"] = [target(i, expression, legend)
                           for i, (legend, expression) in enumerate(panel["queries"].items())]
    made["fieldConfig"] = {"defaults": field_defaults(panel, kind), "overrides": overrides}
    return made


def make_panels(rows):
    """Panels side by side, in lines as wide as the grid."""
    panels, y = [], 0
    for row in rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row["title"], "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": GRID_WIDTH, "h": 1}})
        x, y, tallest = 0, y + 1, 0
        for panel in row["panels"]:
            width, height = panel.get("width", 8), HEIGHTS[panel.get("type", "timeseries")]
            if x + width > GRID_WIDTH:
                x, y, tallest = 0, y + tallest, 0
            panels.append(make_panel(panel, len(panels) + 1, {"x": x, "y": y, "w": width, "h": height}))
            x, tallest = x + width, max(tallest, height)
        y += tallest
    return panels


def make_dashboard(source):
    return {
        "uid": source["uid"], "title": f"Sherd / {source['title']}", "description": source["description"],
        "tags": ["sherd"], "schemaVersion": SCHEMA_VERSION, "version": 1, "editable": False, "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"}, "refresh": "10s", "timezone": "browser",
        "links": [{"title": "Sherd", "type": "dashboards", "tags": ["sherd"], "asDropdown": True, "includeVars": True,
                   "keepTime": True, "targetBlank": False}],
        "templating": {"list": [datasource_variable(), *map(variable, source["variables"])]},
        "annotations": {"list": []},
        "panels": make_panels(source["rows"]),
    }


def make_rules(text):
    """A PrometheusRule of the rule file's groups, to the letter."""
    head = ("# Made by scripts/make_dashboards.py from dashboards/alerts.yaml.\n"
            "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: sherd\nspec:\n")
    body = text[text.index("groups:"):]
    return head + "".join(f"  {line}" if line.strip() else line for line in body.splitlines(keepends=True))


def made_files():
    """Path → text of all that is made."""
    files = {}
    for path in sorted(SOURCES.glob("*.yaml")):
        dashboard = make_dashboard(yaml.safe_load(path.read_text()))
        files[ROOT / f"dashboards/{path.stem}.json"] = json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"
    files[RULES] = make_rules(ALERTS.read_text())
    return files


def main(arguments):
    stale = []
    for path, text in made_files().items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.relative_to(ROOT))
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in stale:
        print(f"{path}: {'out of date; run scripts/make_dashboards.py' if '--check' in arguments else 'written'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
