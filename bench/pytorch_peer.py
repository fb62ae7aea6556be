"""PyTorch as compare.py's peer: one repetition at a time on request, like bench_step and
bench_kernel (see repetitions.h). Needs torch and numpy.

  pytorch_peer.py step --preset gpt2-124m | adamw [--foreach] | attention | linear
"""

import argparse
import json
import math
import sys
import time

import torch

import pytorch_gpt2

PRESETS = {
    "gpt2-124m": dict(layers=12, hidden=768, heads=12, ffn=3072, vocab=50257, context=1024),
    "gpt2-bytes": dict(layers=6, hidden=384, heads=6, ffn=1536, vocab=256, context=256),
}


def resident(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name + ":"))


def timed(work):
    wall, cpu = time.monotonic(), time.process_time()
    work()
    return dict(seconds=time.monotonic() - wall, cpu_seconds=time.process_time() - cpu)


def serve(about, work):
    """Answers "run" and "memory" until stdin ends."""
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        if line.strip() == "memory":
            answer = dict(idle=IDLE_BYTES, peak=resident("VmHWM"))
        else:
            answer = timed(work)
        print(json.dumps(answer), flush=True)


def random_values(name, seed, first, elements, stddev):
    return (torch.randn(elements) * stddev).numpy()


def step_work(options):
    model = PRESETS[options.preset] | dict(tied=True)
    parameters = pytorch_gpt2.make_parameters(model, 1, values_of=random_values)
    decay = [p for p in parameters.values() if p.dim() > 1]
    rest = [p for p in parameters.values() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [dict(params=decay, weight_decay=0.1), dict(params=rest, weight_decay=0.0)],
        lr=1e-4, betas=(0.9, 0.95), foreach=options.foreach,
    )  # fmt: skip

    def step():
        inputs = torch.randint(0, 256, (options.batch, options.tokens))
        targets = torch.randint(0, 256, (options.batch, options.tokens))
        optimizer.zero_grad(set_to_none=True)
        loss = pytorch_gpt2.loss_sum(parameters, model, inputs, targets) / targets.numel()
        loss.backward()
        loss.item()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        optimizer.step()

    return step


def adamw_work(options):
    # Cut into matrices of a block's size, as a model's parameters are.
    size = 768 * 3072
    parameters = [
        torch.rand(min(size, options.elements - at)).requires_grad_()
        for at in range(0, options.elements, size)
    ]
    for parameter in parameters:
        parameter.grad = torch.rand_like(parameter)
    optimizer = torch.optim.AdamW(
        parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=options.foreach
    )
    return optimizer.step


def attention_work(options):
    heads, size = options.hidden // 64, 64
    shape = (options.batch, options.tokens, options.hidden)
    qkv = torch.randn(*shape[:2], 3 * options.hidden).requires_grad_()
    up = torch.randn(shape)
    mask = torch.full((options.tokens, options.tokens), -math.inf).triu(1)

    def attention():
        qkv.grad = None
        q, k, v = (
            t.view(options.batch, options.tokens, heads, size).transpose(1, 2)
            for t in qkv.split(options.hidden, dim=2)
        )
        scores = q @ k.transpose(2, 3) * (1.0 / math.sqrt(size)) + mask
        out = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(shape)
        out.backward(up)

    return attention


def linear_shapes(options):
    """(rows, in, out, times a step), as LinearShapesOf of kernel_cases.h."""
    rows, c, layers = options.batch * options.tokens, options.hidden, options.layers
    return [
        (rows, c, 3 * c, layers),
        (rows, c, c, layers),
        (rows, c, 4 * c, layers),
        (rows, 4 * c, c, layers),
        (rows, c, options.vocab, 1),
    ]


def serve_linear(options):
    shapes = linear_shapes(options)
    x, y, w = ({} for _ in range(3))
    for shape in shapes:
        rows, inner, out, _ = shape
        x[shape], y[shape] = torch.randn(rows, inner), torch.randn(rows, out)
        w[shape] = torch.randn(out, inner)
    print(json.dumps({}), flush=True)

    def products(shape):
        x[shape] @ w[shape].T
        y[shape] @ w[shape]
        y[shape].T @ x[shape]

    for _ in sys.stdin:
        total = dict(seconds=0.0, cpu_seconds=0.0)
        for shape in shapes:
            for key, seconds in timed(lambda: products(shape)).items():
                total[key] += shape[3] * seconds
        print(json.dumps(total), flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("what", choices=["step", "adamw", "attention", "linear"])
    arguments.add_argument("--preset", default="gpt2-124m")
    arguments.add_argument("--layers", type=int, default=12)
    arguments.add_argument("--hidden", type=int, default=768)
    arguments.add_argument("--vocab", type=int, default=50257)
    arguments.add_argument("--batch", type=int, default=4)
    arguments.add_argument("--tokens", type=int, default=256)
    arguments.add_argument("--elements", type=int, default=64 << 20)
    arguments.add_argument("--foreach", action="store_true")
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    if options.what == "linear":
        serve_linear(options)
    else:
        work = dict(step=step_work, adamw=adamw_work, attention=attention_work)[options.what]
        serve({}, work(options))


IDLE_BYTES = resident("VmRSS")

if __name__ == "__main__":
    main()
