"""Writes llama_*.safetensors beside itself: small Llamas with odd sizes, their logits, loss and every
gradient, computed by PyTorch's autograd in double precision and rounded once to fp32. Written from
the published formulas (Touvron et al. 2023; the frequency scaling of Llama 3.1). Needs torch and
numpy; run it only to make the vectors anew.

With --check it writes nothing and compares its own logits and gradients with those of the common
Python implementation (the package transformers).

Each file holds "param.NAME" and "grad.NAME" (F32; linear weights are (out, in)), "logits" (B·T, V),
"inputs" and "targets" (I32, (B, T); a negative target counts nothing), and as metadata the shape, the
sum of token losses and the scale by which the gradients are multiplied.
"""

import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

from gpt2_reference import write_safetensors

BATCH, TOKENS, SCALE = 2, 13, 0.37
SIZES = dict(layers=2, heads=4, hidden=24, ffn=37, vocab=31, context=16, norm_eps=1e-5)
PLAIN = dict(theta=10000.0, factor=1.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192)
# Waves of 6.3, 20 and 63 tokens: kept, mixed and slowed.
SCALED = dict(theta=31.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=40)

CASES = {
    "tied": dict(SIZES, kv_heads=4, tied=True, **PLAIN),
    "untied": dict(SIZES, kv_heads=4, tied=False, **PLAIN),
    "one_kv_head": dict(SIZES, kv_heads=1, tied=True, **PLAIN),
    "half_kv_heads": dict(SIZES, kv_heads=2, tied=False, **PLAIN),
    "scaled": dict(SIZES, kv_heads=2, tied=True, **SCALED),
}


def parameter_shapes(case):
    c, f, kv = case["hidden"], case["ffn"], case["kv_heads"] * case["hidden"] // case["heads"]
    shapes = {"model.embed_tokens.weight": (case["vocab"], c)}
    for layer in range(case["layers"]):
        h = f"model.layers.{layer}."
        shapes |= {
            h + "input_layernorm.weight": (c,),
            h + "self_attn.q_proj.weight": (c, c),
            h + "self_attn.k_proj.weight": (kv, c),
            h + "self_attn.v_proj.weight": (kv, c),
            h + "self_attn.o_proj.weight": (c, c),
            h + "post_attention_layernorm.weight": (c,),
            h + "mlp.gate_proj.weight": (f, c),
            h + "mlp.up_proj.weight": (f, c),
            h + "mlp.down_proj.weight": (c, f),
        }
    shapes["model.norm.weight"] = (c,)
    if not case["tied"]:
        shapes["lm_head.weight"] = (case["vocab"], c)
    return shapes


def make_parameters(case, generator):
    """Far from the usual start, so that no term of a gradient is small."""
    parameters = {}
    for name, shape in parameter_shapes(case).items():
        values = generator.normal(0.0, 0.3, shape)
        if len(shape) == 1:
            values += 1.0
        parameters[name] = values.astype(np.float32)
    return parameters


def frequencies(case):
    """Radians a token of each pair of a head's channels."""
    size = case["hidden"] // case["heads"]
    result = []
    for pair in range(size // 2):
        frequency = case["theta"] ** (-2 * pair / size)
        wavelength = 2 * math.pi / frequency
        low = case["original_context"] / case["low_freq_factor"]
        high = case["original_context"] / case["high_freq_factor"]
        if wavelength > low:
            frequency /= case["factor"]
        elif wavelength >= high:
            smooth = (case["original_context"] / wavelength - case["low_freq_factor"]) / (
                case["high_freq_factor"] - case["low_freq_factor"]
            )
            frequency = (1 - smooth) * frequency / case["factor"] + smooth * frequency
        result.append(frequency)
    return torch.tensor(result, dtype=torch.float64)


def rotate(x, case):
    """x (B, heads, T, D): channel i of a head's first half pairs with channel i of its second."""
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequencies(case)
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps) * weight


def attention(p, h, x, case):
    batch, tokens, c = x.shape
    heads, kv_heads = case["heads"], case["kv_heads"]
    size = c // heads

    def project(name, count):
        y = F.linear(x, p[h + f"self_attn.{name}_proj.weight"])
        return y.view(batch, tokens, count, size).transpose(1, 2)

    q, k, v = rotate(project("q", heads), case), rotate(project("k", kv_heads), case), project("v", kv_heads)
    outputs = []
    for head in range(heads):
        shared = head // (heads // kv_heads)
        scores = q[:, head] @ k[:, shared].transpose(1, 2) / math.sqrt(size)
        mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        outputs.append(scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ v[:, shared])
    return F.linear(torch.cat(outputs, dim=-1), p[h + "self_attn.o_proj.weight"])


def mlp(p, h, x):
    gate = F.linear(x, p[h + "mlp.gate_proj.weight"])
    up = F.linear(x, p[h + "mlp.up_proj.weight"])
    return F.linear(gate * torch.sigmoid(gate) * up, p[h + "mlp.down_proj.weight"])


def logits_of(p, inputs, case):
    x = p["model.embed_tokens.weight"][inputs]
    for layer in range(case["layers"]):
        h = f"model.layers.{layer}."
        x = x + attention(p, h, rms_norm(x, p[h + "input_layernorm.weight"], case["norm_eps"]), case)
        x = x + mlp(p, h, rms_norm(x, p[h + "post_attention_layernorm.weight"], case["norm_eps"]))
    x = rms_norm(x, p["model.norm.weight"], case["norm_eps"])
    return F.linear(x, p.get("lm_head.weight", p["model.embed_tokens.weight"]))


def total_loss(logits, targets):
    return F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1, reduction="sum"
    )


class Run:
    """One case: tensors of the file, and what was computed."""

    def __init__(self, name):
        self.case = CASES[name]
        generator = np.random.default_rng(31000 + list(CASES).index(name))
        self.parameters = make_parameters(self.case, generator)
        size = (BATCH, TOKENS)
        self.inputs = generator.integers(0, self.case["vocab"], size).astype(np.int32)
        self.targets = generator.integers(0, self.case["vocab"], size).astype(np.int32)
        self.targets[0, 4] = self.targets[1, 10:] = -1
        self.leaves = {
            name: torch.tensor(values, dtype=torch.float64, requires_grad=True)
            for name, values in self.parameters.items()
        }
        self.logits = logits_of(self.leaves, torch.tensor(self.inputs).long(), self.case)
        self.loss = total_loss(self.logits, torch.tensor(self.targets).long())
        (self.loss * SCALE).backward()

    def write(self, path):
        tensors = {"inputs": self.inputs, "targets": self.targets}
        for name, values in self.parameters.items():
            tensors["param." + name] = values
            tensors["grad." + name] = self.leaves[name].grad.numpy().astype(np.float32)
        logits = self.logits.detach().numpy().astype(np.float32)
        tensors["logits"] = logits.reshape(BATCH * TOKENS, -1)
        metadata = {key: repr(float(value)) if isinstance(value, float) else str(int(value))
                    for key, value in self.case.items()}  # fmt: skip
        metadata |= {"loss": repr(self.loss.item()), "scale": repr(SCALE)}
        write_safetensors(path, tensors, metadata)

    def check(self):
        """The largest difference from the common implementation, relative to each tensor's largest."""
        import transformers

        case = self.case
        scaling = dict(rope_type="llama3", factor=case["factor"], low_freq_factor=case["low_freq_factor"],
                       high_freq_factor=case["high_freq_factor"],
                       original_max_position_embeddings=case["original_context"])  # fmt: skip
        config = transformers.LlamaConfig(
            vocab_size=case["vocab"], hidden_size=case["hidden"], intermediate_size=case["ffn"],
            num_hidden_layers=case["layers"], num_attention_heads=case["heads"],
            num_key_value_heads=case["kv_heads"], max_position_embeddings=case["context"],
            rms_norm_eps=case["norm_eps"], rope_theta=case["theta"], tie_word_embeddings=case["tied"],
            rope_scaling=scaling if case["factor"] != 1 else None, attn_implementation="eager",
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config).double()
        state = {name: torch.tensor(values).double() for name, values in self.parameters.items()}
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
        logits = model(torch.tensor(self.inputs).long(), use_cache=False).logits
        (total_loss(logits, torch.tensor(self.targets).long()) * SCALE).backward()
        pairs = [(logits, self.logits)]
        for name, parameter in model.named_parameters():
            pairs.append((parameter.grad, self.leaves[name].grad))
        return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


def main():
    for name in CASES:
        run = Run(name)
        if sys.argv[1:] == ["--check"]:
            print(name, run.check())
        else:
            run.write(pathlib.Path(__file__).parent / f"llama_{name}.safetensors")


if __name__ == "__main__":
    main()
