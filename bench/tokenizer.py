#!/usr/bin/env python3
"""Speed of `sherd data tokenize` on one thread beside the reference implementation (PyPI `tokenizers`) in one run, for
both families, on the same files; their ids are compared too.

    python3 -m venv build/venv && build/venv/bin/pip install tokenizers
    build/venv/bin/python bench/tokenizer.py --worker build/release/bin/sherd-worker

Trains a tokenizer of each family on a part of the corpus, tokenizes the rest. Seconds are of the processor (user and
system), so that other load on the machine disturbs little; those of sherd hold the start and the reading of the tokenizer.
"""

import argparse
import array
import json
import os
import pathlib
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")


def pre_tokenizer(family: str):
    if family == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(family: str, vocab: int, texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=family == "llama3"))
    tokenizer.pre_tokenizer = pre_tokenizer(family)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>"]))
    return tokenizer


def corpus(folders: list[str], most_bytes: int) -> list[str]:
    texts, total = [], 0
    files = [path for folder in folders for path in sorted(pathlib.Path(folder).rglob("*"))]
    for path in files:
        if not path.is_file() or path.suffix not in ("", ".py", ".txt", ".md", ".rst") or total >= most_bytes:
            continue
        try:
            text = path.read_text("utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        texts.append(text)
        total += len(text.encode())
    return texts


def measure(family: str, tokenizer: Tokenizer, texts: list[str], worker: str, directory: pathlib.Path) -> dict:
    paths = []
    for index, text in enumerate(texts):
        paths.append(directory / f"{index}.txt")
        paths[-1].write_bytes(text.encode())
    path, out = directory / f"{family}.json", directory / family
    tokenizer.save(str(path))
    before = os.times()
    subprocess.run([worker, "data", "tokenize", "--tokenizer", path, "--out", out, "--threads", "1", "--format",
                    "tokens_u16", *paths], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    ours = after.children_user - before.children_user + after.children_system - before.children_system
    ids = array.array("H")
    end = tokenizer.token_to_id("<|endoftext|>")
    start = time.process_time()
    for text in texts:
        ids.extend(tokenizer.encode(text, add_special_tokens=False).ids)
        ids.append(end)
    reference = time.process_time() - start
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    return {"family": family, "vocab": tokenizer.get_vocab_size(), "megabytes": round(megabytes, 1), "tokens": len(ids),
            "sherd_mb_per_second": round(megabytes / ours, 2), "reference_mb_per_second": round(megabytes / reference, 2),
            "ratio": round(reference / ours, 1), "equal": array.array("H", out.read_bytes()) == ids}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--corpus", nargs="+", default=["/usr/share/games/fortunes", "/usr/lib/python3.11"])
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--vocab", type=int, default=32000)
    arguments = parser.parse_args()
    texts = corpus(arguments.corpus, arguments.megabytes * 1_000_000)
    # Every fifth file trains; the rest is measured.
    for family in ("gpt2", "llama3"):
        tokenizer = train(family, arguments.vocab, texts[::5])
        with tempfile.TemporaryDirectory() as directory:
            held_out = [text for index, text in enumerate(texts) if index % 5]
            print(json.dumps(measure(family, tokenizer, held_out, arguments.worker, pathlib.Path(directory))), flush=True)


if __name__ == "__main__":
    main()
