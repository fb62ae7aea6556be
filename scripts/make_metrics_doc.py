#!/usr/bin/env python3
"""Writes docs/metrics.md: every metric that the sources register, with type, labels and meaning.

  scripts/make_metrics_doc.py [--check]    --check: says whether the page is up to date, writes nothing

Names, types and meanings are read out of the sources; labels are listed below, and tests/deploy/dashboards_test.py holds
them against what the daemons serve.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_dashboards  # noqa: E402

ROOT = check_dashboards.ROOT
PAGE = ROOT / "docs/metrics.md"
RANK = ("job", "rank")
GPU = ("device", "uuid")
LABELS = {
    "sherd_build_info": ("compiler", "component", "version"),
    "sherd_checkpoint_seconds": (), "sherd_event_log_appends_total": (), "sherd_event_queue_depth": (), "sherd_sessions": (),
    "sherd_rolled_back_steps_total": (),
    "sherd_collective_bytes_total": ("group", "job", "op", "rank", "transport"),
    "sherd_collective_messages_total": ("group", "job", "op", "rank", "transport"),
    "sherd_collective_seconds": ("group", "job", "op", "rank", "transport"),
    "sherd_device_peak_flops": (), "sherd_disk_bytes": ("disk",), "sherd_disk_free_bytes": ("disk",),
    "sherd_gpu_clock_hertz": ("clock", *GPU), "sherd_gpu_throttle_reason": (*GPU[:1], "reason", *GPU[1:]),
    "sherd_gpu_nvlink_bytes_total": (*GPU[:1], "direction", *GPU[1:]),
    "sherd_gpu_pcie_bytes_per_second": (*GPU[:1], "direction", *GPU[1:]),
    "sherd_job_restarts_total": ("reason",), "sherd_job_warnings_total": ("kind",),
    "sherd_jobs": ("state",), "sherd_workers": ("status",), "sherd_workers_lost_total": ("how",),
    "sherd_memory_bytes": ("job", "pool", "rank"), "sherd_memory_peak_bytes": ("job", "pool", "rank"),
    "sherd_memory_predicted_bytes": ("job", "pool", "rank"),
    "sherd_phase_seconds_total": ("job", "phase", "rank"),
    "sherd_recovery_seconds": ("phase",), "sherd_rpc_seconds": ("method",), "sherd_rpcs_total": ("code", "method"),
    "sherd_worker_reports_dropped_total": (), "sherd_worker_session_connected": (), "sherd_worker_session_streams_total": (),
    "sherd_worker_state": ("state",),
    # Of ranks also `rank`.
    "sherd_job_info": ("job", "name", "strategy"),
}
# Name, then what is said about it, as each way to register spells the two.
MEANING = re.compile(r'"(sherd_[a-z0-9_]+)"\s*(?:,|\)\s*\.Help\(|;\s*families\[\d\]\.help =)\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
SECTIONS = (
    ("The coordinator", "coordinator", "At `sherd-coordinator --metrics`. Series of jobs go when the job ends."),
    ("Workers", "worker", "At `sherd-worker --metrics`, one port a worker. Series of a rank go when its job ends or it gets another epoch."),
    ("Both", "common", ""),
)


def labels_of(name):
    if name in LABELS:
        return LABELS[name]
    if name.startswith("sherd_gpu_"):
        return GPU
    return ("job",) if name.startswith("sherd_job_") else RANK


def rows(folder):
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        text = path.read_text()
        kinds = check_dashboards.metrics_of(text)
        said = {name: "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)) for name, literals in MEANING.findall(text)}
        for name, kind in kinds.items():
            if name not in said:
                raise SystemExit(f"{path.relative_to(ROOT)}: {name} says nothing about itself where it is registered")
            yield name, kind if path.name != "metrics.cc" else "gauge", said[name]


def page():
    out = ["# Metrics", "", "Made by `scripts/make_metrics_doc.py` from the sources; CI says when it is out of date. Units are base units and part of the name; a histogram `x` has the series",
           "`x_bucket`, `x_sum` and `x_count`. Dashboards and alerts: [operations.md](operations.md).", ""]
    for title, folder, where in SECTIONS:
        out += [f"## {title}", ""] + ([where, ""] if where else []) + ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        for name, kind, said in sorted(set(rows(folder))):
            labels = ", ".join(f"`{label}`" for label in labels_of(name))
            out.append(f"| `{name}` | {kind} | {labels} | {said} |")
        out.append("")
    return "\n".join(out)


def main():
    made = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != made:
            print("docs/metrics.md is out of date: run scripts/make_metrics_doc.py")
            return 1
        return 0
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
