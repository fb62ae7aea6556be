#!/usr/bin/env python3
"""Reads what ptxas says of the CUDA kernels (nvcc -Xptxas -v) and prints a table: registers, static shared memory, stack
and spills of every kernel and architecture.

    check_kernel_resources.py BUDGETS REPORT…

BUDGETS is a TOML table: kernel, with or without template arguments, to the most registers that it may use. Exit code 1
when a kernel spills, uses more registers than its budget, or has none, and when a budget names no kernel.
"""

import pathlib
import re
import subprocess
import sys
import tomllib

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def demangled(names: list[str]) -> list[str]:
    """As the source writes them, without namespaces and parameters: AdamWKernel<float, BF16>."""
    output = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    result = []
    for line in output.splitlines():
        line = line.replace("(anonymous namespace)::", "").replace("sherd::", "")
        # "void Kernel<…>(parameters)", where neither void nor a bracket within <…> need be.
        head = re.match(r"(?:void )?([\w]+(?:<[^()]*?>)?)\(", re.sub(r"\(int\)|\(bool\)", "", line))
        result.append(head.group(1) if head else line)
    return result


def parse(text: str) -> list[dict]:
    kernels = []
    for line in text.splitlines():
        if entry := ENTRY.search(line):
            kernels.append({"symbol": entry.group(1), "arch": entry.group(2)})
        elif kernels and (stack := STACK.search(line)):
            kernels[-1].setdefault("stack", int(stack.group(1)))
            kernels[-1].setdefault("spills", int(stack.group(2)) + int(stack.group(3)))
        elif kernels and (used := USED.search(line)):
            kernels[-1].setdefault("registers", int(used.group(1)))
            kernels[-1].setdefault("shared", int(used.group(2) or 0))
    for kernel, name in zip(kernels, demangled([kernel["symbol"] for kernel in kernels]) if kernels else []):
        kernel["name"] = name
    return kernels


def main() -> int:
    budgets = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["registers"]
    kernels = [kernel for report in sys.argv[2:] for kernel in parse(pathlib.Path(report).read_text())]
    problems, used = [], set()
    print(f"{'kernel':46} {'arch':8} {'registers':>9} {'budget':>6} {'shared':>7} {'stack':>6} {'spills':>6}")
    for kernel in sorted(kernels, key=lambda kernel: (kernel["name"], kernel["arch"])):
        name, where = kernel["name"], f"{kernel['name']} for {kernel['arch']}"
        key = name if name in budgets else name.split("<")[0]
        used.add(key)
        budget = budgets.get(key)
        if not {"registers", "spills"} <= kernel.keys():
            problems.append(f"{where}: the report says nothing of its registers or spills")
            continue
        print(f"{name:46} {kernel['arch']:8} {kernel['registers']:9} {budget or '-':>6} {kernel['shared']:7} "
              f"{kernel['stack']:6} {kernel['spills']:6}")
        if kernel["spills"] > 0:
            problems.append(f"{where} spills {kernel['spills']} bytes")
        if budget is None:
            problems.append(f"{where} has no budget of registers")
        elif kernel["registers"] > budget:
            problems.append(f"{where} uses {kernel['registers']} registers, its budget is {budget}")
    problems += [f"no kernel is called {key}, which has a budget" for key in sorted(set(budgets) - used)]
    for problem in problems:
        print(problem)
    print(f"check_kernel_resources: {len(kernels)} kernels, {len(problems)} problems")
    return 1 if problems or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
