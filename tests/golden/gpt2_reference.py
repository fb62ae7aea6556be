"""Writes gpt2_tied.safetensors and gpt2_untied.safetensors beside itself: a small GPT-2 with odd
sizes, its loss and every gradient, computed by PyTorch's autograd in double precision and rounded
once to fp32. Needs torch and numpy; run it only to make the vectors anew.

Each file holds "param.NAME" and "grad.NAME" (F32; linear weights are (out, in)), "inputs" and
"targets" (I32, (B, T); a negative target counts nothing), and as metadata the shape, the sum of
token losses and the scale by which the gradients are multiplied.
"""

import json
import math
import pathlib
import struct

import numpy as np
import torch
import torch.nn.functional as F

SHAPE = dict(layers=2, hidden=21, heads=3, ffn=37, vocab=31, context=11)
BATCH, TOKENS, SCALE = 3, 9, 0.37


def parameter_shapes(tied):
    c, f = SHAPE["hidden"], SHAPE["ffn"]
    shapes = {"wte.weight": (SHAPE["vocab"], c), "wpe.weight": (SHAPE["context"], c)}
    for layer in range(SHAPE["layers"]):
        h = f"h.{layer}."
        shapes |= {
            h + "ln_1.weight": (c,), h + "ln_1.bias": (c,),
            h + "attn.c_attn.weight": (3 * c, c), h + "attn.c_attn.bias": (3 * c,),
            h + "attn.c_proj.weight": (c, c), h + "attn.c_proj.bias": (c,),
            h + "ln_2.weight": (c,), h + "ln_2.bias": (c,),
            h + "mlp.c_fc.weight": (f, c), h + "mlp.c_fc.bias": (f,),
            h + "mlp.c_proj.weight": (c, f), h + "mlp.c_proj.bias": (c,),
        }  # fmt: skip
    shapes |= {"ln_f.weight": (c,), "ln_f.bias": (c,)}
    if not tied:
        shapes["lm_head.weight"] = (SHAPE["vocab"], c)
    return shapes


def make_parameters(tied, generator):
    """Far from the usual start, so that no term of a gradient is small."""
    parameters = {}
    for name, shape in parameter_shapes(tied).items():
        values = generator.normal(0.0, 0.3, shape)
        if ".ln_" in "." + name and name.endswith("weight"):
            values += 1.0
        parameters[name] = values.astype(np.float32)
    return parameters


def block(p, h, x):
    batch, tokens, c = x.shape
    heads = SHAPE["heads"]
    norm = F.layer_norm(x, (c,), p[h + "ln_1.weight"], p[h + "ln_1.bias"], 1e-5)
    qkv = F.linear(norm, p[h + "attn.c_attn.weight"], p[h + "attn.c_attn.bias"])
    q, k, v = (t.view(batch, tokens, heads, c // heads).transpose(1, 2) for t in qkv.split(c, dim=2))
    scores = q @ k.transpose(2, 3) / math.sqrt(c // heads)
    mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    attention = scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ v
    attention = attention.transpose(1, 2).reshape(batch, tokens, c)
    x = x + F.linear(attention, p[h + "attn.c_proj.weight"], p[h + "attn.c_proj.bias"])
    norm = F.layer_norm(x, (c,), p[h + "ln_2.weight"], p[h + "ln_2.bias"], 1e-5)
    fc = F.linear(norm, p[h + "mlp.c_fc.weight"], p[h + "mlp.c_fc.bias"])
    gelu = F.gelu(fc, approximate="tanh")
    return x + F.linear(gelu, p[h + "mlp.c_proj.weight"], p[h + "mlp.c_proj.bias"])


def total_loss(p, inputs, targets):
    x = p["wte.weight"][inputs] + p["wpe.weight"][: inputs.shape[1]]
    for layer in range(SHAPE["layers"]):
        x = block(p, f"h.{layer}.", x)
    x = F.layer_norm(x, (SHAPE["hidden"],), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    logits = F.linear(x, p.get("lm_head.weight", p["wte.weight"]))
    return F.cross_entropy(
        logits.view(-1, SHAPE["vocab"]), targets.view(-1), ignore_index=-1, reduction="sum"
    )


def write_safetensors(path, tensors, metadata):
    types = {np.dtype("float32"): "F32", np.dtype("int32"): "I32"}
    header, data, begin = {"__metadata__": metadata}, b"", 0
    for name, tensor in tensors.items():
        end = begin + tensor.nbytes
        header[name] = dict(dtype=types[tensor.dtype], shape=tensor.shape, data_offsets=[begin, end])
        data += tensor.tobytes()
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    for tied in (True, False):
        generator = np.random.default_rng(20240 + tied)
        parameters = make_parameters(tied, generator)
        inputs = generator.integers(0, SHAPE["vocab"], (BATCH, TOKENS)).astype(np.int32)
        targets = generator.integers(0, SHAPE["vocab"], (BATCH, TOKENS)).astype(np.int32)
        targets[1, 4] = targets[2, 7:] = -1
        leaves = {
            name: torch.tensor(values, dtype=torch.float64, requires_grad=True)
            for name, values in parameters.items()
        }
        loss = total_loss(leaves, torch.tensor(inputs).long(), torch.tensor(targets).long())
        (loss * SCALE).backward()
        tensors = {"inputs": inputs, "targets": targets}
        for name, values in parameters.items():
            tensors["param." + name] = values
            tensors["grad." + name] = leaves[name].grad.numpy().astype(np.float32)
        metadata = {key: str(value) for key, value in SHAPE.items()}
        metadata |= {"tied": str(int(tied)), "loss": repr(loss.item()), "scale": repr(SCALE)}
        name = "gpt2_tied.safetensors" if tied else "gpt2_untied.safetensors"
        write_safetensors(pathlib.Path(__file__).parent / name, tensors, metadata)


if __name__ == "__main__":
    main()
