"""Folders of weights as the common Python stack (torch, transformers) writes them, and what it computes from them.

  pretrained.py make             writes pretrained/NAME/ beside itself: random tiny GPT-2 and Llama folders, and
                                 in each of them expected.safetensors: inputs, targets, logits, and the gradient of
                                 the sum of token losses for every parameter, computed in double precision
  pretrained.py check DIR NAME   loads DIR, an exported folder, with that stack; its logits must be those of
                                 pretrained/NAME within 1e-4 (for another type than fp32: within 1e-2)

Needs neither for the tests: run `make` only to write the folders anew.
  python3 -m venv build/venv && build/venv/bin/pip install torch transformers safetensors numpy
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from gpt2_reference import write_safetensors

ROOT = pathlib.Path(__file__).parent / "pretrained"
BATCH, TOKENS = 2, 9

GPT2 = dict(n_embd=12, n_head=2, n_layer=2, n_positions=10, vocab_size=23, initializer_range=0.4, attn_pdrop=0.0,
            embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=None, eos_token_id=None)
LLAMA = dict(hidden_size=16, num_attention_heads=4, num_hidden_layers=2, intermediate_size=20, vocab_size=21,
             max_position_embeddings=64, initializer_range=0.4, bos_token_id=None, eos_token_id=None,
             rms_norm_eps=1e-5)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=40)


def gpt2(**changes):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**GPT2, **changes}))


def llama(**changes):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **changes}))


def edit_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config, indent=2) + "\n")


def old_spelling(config):
    """As versions before 5 wrote it."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None


def without_prefix_and_with_buffers(folder):
    """As the oldest published GPT-2 folders are."""
    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    positions = GPT2["n_positions"]
    for layer in range(GPT2["n_layer"]):
        mask = torch.ones(positions, positions).tril().view(1, 1, positions, positions)
        tensors[f"h.{layer}.attn.bias"] = mask
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, path, metadata={"format": "pt"})
    edit_config(folder, lambda config: config.pop("n_inner"))


def with_head_and_frequencies(folder):
    """A tied head that is written all the same, and a buffer of older versions."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    for layer in range(LLAMA["num_hidden_layers"]):
        tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    save_file(tensors, path, metadata={"format": "pt"})


# Name → the model, the type of its weights, the largest shard, and what is changed afterwards.
CASES = {
    "gpt2_fp32": (lambda: gpt2(), torch.float32, "1GB", lambda folder: None),
    "gpt2_untied_fp16_sharded": (lambda: gpt2(tie_word_embeddings=False, n_inner=30), torch.float16, "6KB",
                                 lambda folder: None),
    "gpt2_plain_bf16": (lambda: gpt2(), torch.bfloat16, "1GB", without_prefix_and_with_buffers),
    "llama_untied_fp32": (lambda: llama(num_key_value_heads=4, tie_word_embeddings=False, rms_norm_eps=1e-6),
                          torch.float32, "1GB", lambda folder: edit_config(folder, old_spelling)),
    "llama_scaled_bf16_sharded": (lambda: llama(num_key_value_heads=2, tie_word_embeddings=False,
                                                rope_parameters=dict(LLAMA3, rope_theta=31.0)),
                                  torch.bfloat16, "5KB", lambda folder: None),
    "llama_tied_fp16": (lambda: llama(num_key_value_heads=1, tie_word_embeddings=True,
                                      rope_parameters=dict(LLAMA3, rope_theta=500.0)),
                        torch.float16, "1GB",
                        lambda folder: (edit_config(folder, old_spelling), with_head_and_frequencies(folder))),
}


def our_name(name):
    return name.removeprefix("transformer.")


def expected(model, generator):
    """What the model computes in double precision, by our names and with linear weights as (out, in)."""
    model = model.eval()
    vocab = model.config.vocab_size
    inputs = generator.integers(0, vocab, (BATCH, TOKENS)).astype(np.int32)
    targets = generator.integers(0, vocab, (BATCH, TOKENS)).astype(np.int32)
    targets[0, 3] = targets[1, 6:] = -1
    logits = model(torch.tensor(inputs).long()).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, vocab), torch.tensor(targets).long().view(-1),
                                             ignore_index=-1, reduction="sum")
    loss.backward()
    conv1d = {name for name, module in model.named_modules() if type(module).__name__ == "Conv1D"}
    tensors = {"inputs": inputs, "targets": targets,
               "logits": logits.detach().view(-1, vocab).numpy().astype(np.float32)}
    for name, parameter in model.named_parameters():
        grad = parameter.grad.T if name.removesuffix(".weight") in conv1d else parameter.grad
        tensors["grad." + our_name(name)] = np.ascontiguousarray(grad.numpy().astype(np.float32))
    return tensors, {"loss": repr(loss.item())}


def make():
    for seed, (name, (build, dtype, shard, finish)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        folder = ROOT / name
        shutil.rmtree(folder, ignore_errors=True)
        model = build().to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:  # norms and biases, which start at 1 and 0
                    parameter.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(folder, max_shard_size=shard)
        (folder / "generation_config.json").unlink(missing_ok=True)
        finish(folder)
        # Loaded, not as it is: a model that was made in a small type has rounded its rotary frequencies, too.
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
        tensors, metadata = expected(loaded, np.random.default_rng(seed))
        write_safetensors(folder / "expected.safetensors", tensors, metadata)
        print(name, sorted(path.name for path in folder.iterdir()), sum(p.stat().st_size for p in folder.iterdir()))


def check(folder, name):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    want = load_file(ROOT / name / "expected.safetensors")
    stored = next(model.parameters()).dtype
    with torch.no_grad():
        logits = model.float().eval()(want["inputs"].long()).logits
    difference = (logits.view_as(want["logits"]) - want["logits"]).abs().max().item()
    limit = 1e-4 if stored == torch.float32 or CASES[name][1] == stored else 1e-2 * want["logits"].abs().max().item()
    print(f"{name}: {stored}, logits differ by at most {difference:.3g} (largest {want['logits'].abs().max():.3g}, "
          f"limit {limit:.3g}); transformers {transformers.__version__}")
    return difference <= limit


def main():
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 4 and sys.argv[1] == "check":
        sys.exit(0 if check(sys.argv[2], sys.argv[3]) else 1)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
