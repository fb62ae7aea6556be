#!/usr/bin/env python3
"""Fails when a file includes what its folder may not include.

The table below is the architecture: which folder may include which, and which headers of a library belong to
which files alone. Tests may include anything.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folder → folders of ours that it may include besides itself. The longest matching folder counts.
MAY_INCLUDE = {
    "common": [],
    "common/rpc": ["common"],
    "plan": ["common", "sherd"],
    "kernels": ["common"],
    "kernels/cpu": ["common", "kernels"],
    "kernels/cuda": ["common", "kernels"],
    "coordinator/core": ["common", "plan", "sherd"],
    "coordinator/store": ["common", "plan", "sherd", "coordinator/core"],
    "coordinator/runtime": ["common", "plan", "sherd", "coordinator/core", "coordinator/store"],
    "coordinator/rpc": ["common", "common/rpc", "plan", "sherd", "coordinator/core", "coordinator/store",
                        "coordinator/runtime"],
    "coordinator": ["common", "common/rpc", "plan", "sherd", "coordinator/core", "coordinator/store",
                    "coordinator/runtime", "coordinator/rpc"],
    "worker/comm": ["common", "kernels", "kernels/cpu"],
    "worker/holdings": ["common", "sherd", "worker/comm"],
    "worker/model": ["common", "kernels", "plan", "sherd", "worker/comm"],
    "worker/data": ["common", "plan", "sherd"],
    "worker/device": ["common", "kernels", "kernels/cuda"],
    "worker/checkpoint": ["common", "kernels", "plan", "sherd"],
    "worker/pretrained": ["common", "kernels", "plan", "sherd", "worker/checkpoint", "worker/data"],
    "worker/record": ["common", "sherd", "worker/checkpoint"],
    "worker/tokenizer": ["common"],
    "worker/pack": ["common", "worker/data", "worker/tokenizer"],
    "worker/dataset": ["common", "plan", "sherd", "worker/data", "worker/pack", "worker/tokenizer"],
    "worker/sample": ["common", "kernels", "kernels/cpu", "plan", "sherd", "worker/model",
                      "worker/checkpoint", "worker/dataset"],
    "worker/evaluate": ["common", "kernels", "kernels/cpu", "plan", "sherd", "worker/model",
                        "worker/data", "worker/dataset", "worker/sample"],
    "worker/train": ["common", "kernels", "kernels/cpu", "plan", "sherd", "worker/comm",
                     "worker/model", "worker/data", "worker/dataset", "worker/checkpoint",
                     "worker/holdings", "worker/pretrained", "worker/record"],
    "worker/agent": ["common", "common/rpc", "plan", "sherd", "worker/comm", "worker/holdings", "worker/train"],
    "worker": ["common", "common/rpc", "kernels", "kernels/cpu", "plan", "sherd", "worker/agent", "worker/comm",
               "worker/checkpoint", "worker/device", "worker/holdings", "worker/train", "worker/sample",
               "worker/evaluate", "worker/data", "worker/dataset", "worker/pack", "worker/pretrained"],
    "client": ["common", "common/rpc", "plan", "sherd"],
    "bench": None,
    "tests": None,
}

# Header pattern → the only files or folders that may include it.
ONLY_IN = {
    r"grpcpp/|grpc\+\+|\.grpc\.pb\.h": ["common/rpc/", "coordinator/rpc", "worker/agent/session", "worker/agent/channel",
                                       "worker/agent/exit_reporter", "client/job_client", "tests"],
    r"^openssl/": ["common/rpc/pem_files", "coordinator/rpc/access", "tests/support/certificates"],
    r"^sqlite3\.h": ["coordinator/store/sqlite", "tests"],
    r"oneapi/dnnl|^dnnl": ["kernels/cpu/gemm", "kernels/cpu/cpu_ops.cc", "bench/sgemm_limit"],
    r"^nccl\.h": ["worker/comm/nccl/nccl_library.cc"],
    r"^cublasLt": ["kernels/cuda/matmul"],
    r"^cuda_runtime": ["kernels/cuda/runtime_driver", "kernels/cuda/simt.h"],
    r"^yaml-cpp/": ["client/"],
    r"^prometheus/": ["common/metrics", "coordinator/", "worker/device/gpu_metrics", "worker/train/",
                      "worker/agent/", "worker/main", "bench/scrape", "tests"],
}

# The pure parts know neither clocks nor files, sockets or threads.
PURE = ["plan/", "coordinator/core/", "worker/agent/agent_state"]
NOT_PURE = r"^(sys/|unistd|fcntl|fstream|filesystem|thread|mutex|random$|chrono|absl/time/clock|absl/synch)"

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def folder_rule(path: str):
    best = None
    for folder in MAY_INCLUDE:
        if path.startswith(folder + "/") and (best is None or len(folder) > len(best)):
            best = folder
    return best


def check(path: pathlib.Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    rule = folder_rule(name)
    if rule is None:
        return [f"{name}: its folder is not in the table of scripts/check_layers.py"]
    problems = []
    for header in INCLUDE.findall(path.read_text()):
        allowed = MAY_INCLUDE[rule]
        owner = folder_rule(header) if not header.startswith("sherd/") else "sherd"
        if owner is not None and allowed is not None and owner != rule and owner not in allowed:
            problems.append(f"{name}: {rule}/ may not include {header} (of {owner}/)")
        for pattern, places in ONLY_IN.items():
            if re.search(pattern, header) and not any(name.startswith(place) for place in places):
                problems.append(f"{name}: {header} may be included only in {', '.join(places)}")
        if any(name.startswith(pure) for pure in PURE) and re.search(NOT_PURE, header):
            problems.append(f"{name}: {header} has no place in a pure part")
    return problems


def main() -> int:
    folders = [folder for folder in MAY_INCLUDE if "/" not in folder]
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*")
                   if path.suffix in (".h", ".cc", ".cu", ".cuh"))
    problems = [problem for path in files for problem in check(path)]
    for problem in problems:
        print(problem)
    print(f"check_layers: {len(files)} files, {len(problems)} violations")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
