"""Gloo's all-reduce between processes as compare.py's peer (see repetitions.h). Needs torch.

Each process is one rank; they meet in a file.
"""

import argparse
import json
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from pytorch_peer import timed


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--bytes", type=int, default=64 << 20)
    arguments.add_argument("--rank", type=int, required=True)
    arguments.add_argument("--world", type=int, default=2)
    arguments.add_argument("--store", required=True, help="a file for the rendezvous")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    store = dist.FileStore(options.store, options.world)
    dist.init_process_group(
        "gloo", store=store, rank=options.rank, world_size=options.world,
        timeout=timedelta(minutes=30),
    )  # fmt: skip
    data = torch.zeros(options.bytes // 4)
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        dist.barrier()
        print(json.dumps(timed(lambda: dist.all_reduce(data))), flush=True)


if __name__ == "__main__":
    main()
