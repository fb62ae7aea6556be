"""The job of an examples/*.yaml file in PyTorch: the same GPT-2, initial values, order of samples,
optimizer and schedule as Sherd's, on one process; prints the loss as it trains and the held-out loss
in nats a token at the end. Needs torch, numpy and yaml.

  python3 bench/pytorch_gpt2.py examples/fortunes.yaml [--data-root DIR] [--steps N] [--threads N]

What differs is rounding only: Sherd sums in its own order, and with `compute: bf16` it stores
parameters in bf16, which --bf16 does here too. The held-out losses should agree within 0.03.
"""

import argparse
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
import yaml

from pure_functions import normal_values, window

PRESETS = {"gpt2-bytes": dict(layers=6, hidden=384, heads=6, vocab=256, context=256)}


def read_job(path):
    """Fills in the defaults of plan/job_spec.cc."""
    job = yaml.safe_load(pathlib.Path(path).read_text())
    model = PRESETS.get(job["model"].get("preset"), {}) | job["model"]
    model["ffn"] = model.get("ffn") or 4 * model["hidden"]
    model["tied"] = model.get("tie_embeddings", True)
    train = dict(global_batch=32, seed=1, grad_clip=1.0) | job["train"]
    foreign = {"z_loss", "label_smoothing", "freeze"} & train.keys()
    if foreign:
        raise SystemExit(f"{path}: this comparison does not know {', '.join(sorted(foreign))}")
    train["seq_len"] = train.get("seq_len") or model["context"]
    train.setdefault("micro_batch", math.gcd(train["global_batch"], 4))
    optimizer = dict(lr=3e-4, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1)
    train["optimizer"] = optimizer | train.get("optimizer", {})
    # YAML 1.1 reads 3e-4 as a text.
    train["optimizer"] |= {k: float(v) for k, v in train["optimizer"].items() if k != "betas"}
    schedule = dict(kind="cosine", warmup=0, min_lr=train["optimizer"]["lr"] / 10)
    train["schedule"] = schedule | train.get("schedule", {})
    return model, train, job["data"]


def read_bytes(paths, root):
    data = b"".join((pathlib.Path(root) / path).read_bytes() for path in paths)
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint8).astype(np.int64))


def make_parameters(model, seed, values_of=normal_values):
    c, f, layers = model["hidden"], model["ffn"], model["layers"]
    residual = 0.02 / math.sqrt(2.0 * layers)
    parameters = {}

    def normal(name, shape, stddev=0.02):
        values = values_of(name, seed, 0, math.prod(shape), stddev)
        parameters[name] = torch.from_numpy(values).view(shape).requires_grad_()

    def constant(name, size, value):
        parameters[name] = torch.full((size,), value).requires_grad_()

    normal("wte.weight", (model["vocab"], c))
    normal("wpe.weight", (model["context"], c))
    for h in (f"h.{layer}." for layer in range(layers)):
        for norm in ("ln_1", "ln_2"):
            constant(h + norm + ".weight", c, 1.0)
            constant(h + norm + ".bias", c, 0.0)
        for name, rows, columns, stddev in (
            ("attn.c_attn", 3 * c, c, 0.02),
            ("attn.c_proj", c, c, residual),
            ("mlp.c_fc", f, c, 0.02),
            ("mlp.c_proj", c, f, residual),
        ):
            normal(h + name + ".weight", (rows, columns), stddev)
            constant(h + name + ".bias", rows, 0.0)
    constant("ln_f.weight", c, 1.0)
    constant("ln_f.bias", c, 0.0)
    if not model["tied"]:
        normal("lm_head.weight", (model["vocab"], c))
    return parameters


def block(p, h, x, heads, mask):
    batch, tokens, c = x.shape
    norm = F.layer_norm(x, (c,), p[h + "ln_1.weight"], p[h + "ln_1.bias"], 1e-5)
    qkv = F.linear(norm, p[h + "attn.c_attn.weight"], p[h + "attn.c_attn.bias"])
    q, k, v = (t.view(batch, tokens, heads, c // heads).transpose(1, 2) for t in qkv.split(c, dim=2))
    scores = q @ k.transpose(2, 3) * (1.0 / math.sqrt(c // heads)) + mask
    attention = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, tokens, c)
    x = x + F.linear(attention, p[h + "attn.c_proj.weight"], p[h + "attn.c_proj.bias"])
    norm = F.layer_norm(x, (c,), p[h + "ln_2.weight"], p[h + "ln_2.bias"], 1e-5)
    fc = F.linear(norm, p[h + "mlp.c_fc.weight"], p[h + "mlp.c_fc.bias"])
    gelu = F.gelu(fc, approximate="tanh")
    return x + F.linear(gelu, p[h + "mlp.c_proj.weight"], p[h + "mlp.c_proj.bias"])


def loss_sum(p, model, inputs, targets):
    tokens = inputs.shape[1]
    mask = torch.full((tokens, tokens), -math.inf).triu(1)
    x = p["wte.weight"][inputs] + p["wpe.weight"][:tokens]
    for layer in range(model["layers"]):
        x = block(p, f"h.{layer}.", x, model["heads"], mask)
    x = F.layer_norm(x, (model["hidden"],), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    logits = F.linear(x, p.get("lm_head.weight", p["wte.weight"]))
    return F.cross_entropy(
        logits.view(-1, model["vocab"]), targets.reshape(-1), ignore_index=-1, reduction="sum"
    )


def learning_rate(train, step):
    peak, schedule = train["optimizer"]["lr"], train["schedule"]
    warmup, low = int(schedule["warmup"]), float(schedule["min_lr"])
    if step <= warmup:
        return peak * step / warmup
    if schedule["kind"] == "constant":
        return peak
    if schedule["kind"] == "wsd":
        warmup = train["steps"] - int(schedule["decay"])
    progress = min(1.0, max(0.0, (step - warmup) / max(1, train["steps"] - warmup)))
    if schedule["kind"] != "cosine":
        return low + (peak - low) * (1.0 - progress)
    return low + (peak - low) * 0.5 * (1.0 + math.cos(math.pi * progress))


def batch_of(data, train, step):
    length, size = train["seq_len"], train["global_batch"]
    windows = (len(data) - 1) // length
    starts = [
        window((step - 1) * size + i, windows, train["seed"]) * length for i in range(size)
    ]
    rows = torch.stack([data[start : start + length + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


def evaluate(p, model, train, data):
    """Every token but the first is predicted once; the tail's sequence is shorter."""
    length, total = train["seq_len"], 0.0
    with torch.no_grad():
        whole = (len(data) - 1) // length
        inputs = data[: whole * length].view(whole, length)
        targets = data[1 : whole * length + 1].view(whole, length)
        for rows in torch.arange(whole).split(train["micro_batch"]):
            total += loss_sum(p, model, inputs[rows], targets[rows]).item()
        tail = data[whole * length :]
        if len(tail) > 1:
            total += loss_sum(p, model, tail[None, :-1], tail[None, 1:]).item()
    return total / (len(data) - 1)


def train_job(model, train, last_step, data, held_out, report_every, bf16):
    master = make_parameters(model, train["seed"])
    decay = [p for p in master.values() if p.dim() > 1]
    rest = [p for p in master.values() if p.dim() <= 1]
    settings = train["optimizer"]
    optimizer = torch.optim.AdamW(
        [dict(params=decay, weight_decay=settings["weight_decay"]),
         dict(params=rest, weight_decay=0.0)],
        lr=settings["lr"], betas=tuple(settings["betas"]), eps=settings["eps"],
    )  # fmt: skip

    def working():
        if not bf16:
            return master
        return {name: p.bfloat16().float() for name, p in master.items()}

    for step in range(1, last_step + 1):
        began = time.monotonic()
        inputs, targets = batch_of(data, train, step)
        optimizer.zero_grad()
        total = 0.0
        for rows in torch.arange(len(inputs)).split(train["micro_batch"]):
            loss = loss_sum(working(), model, inputs[rows], targets[rows]) / targets.numel()
            loss.backward()
            total += loss.item()
        if train["grad_clip"] > 0:
            torch.nn.utils.clip_grad_norm_(master.values(), train["grad_clip"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(train, step)
        optimizer.step()
        if step % report_every == 0 or step in (1, last_step):
            rate = targets.numel() / (time.monotonic() - began)
            print(f"step {step} loss {total:.6f} tokens/s {rate:.0f}", flush=True)
    if held_out is not None:
        print(f"held-out loss {evaluate(working(), model, train, held_out):.6f} nats a token")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("job")
    arguments.add_argument("--data-root", default="/", help="where relative paths of the job start")
    arguments.add_argument("--steps", type=int, help="stop early; the schedule stays the job's")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--report-every", type=int, default=10)
    arguments.add_argument("--bf16", action="store_true", help="parameters rounded to bf16")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    model, train, files = read_job(options.job)
    data = read_bytes(files["train"], options.data_root)
    held_out = read_bytes(files["eval"], options.data_root) if files.get("eval") else None
    last_step = options.steps or train["steps"]
    train_job(model, train, last_step, data, held_out, options.report_every, options.bf16)


if __name__ == "__main__":
    main()
