#!/usr/bin/env python3
"""Compares `sherd data tokenize` with the reference implementation, id by id: 10,000 texts each of tests/golden/tokenizer
under its tokenizers, of a seed that changes by day. Needs PyPI's `tokenizers`:

    python3 -m venv build/venv && build/venv/bin/pip install tokenizers
    build/venv/bin/python scripts/check_tokenizer.py build/release/bin/sherd-worker
"""

import array
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/tokenizer"
sys.path.insert(0, str(GOLDEN))
from strings import string  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

TEXTS = 10000
# Each text is a document of its own, ended by this.
END = {"gpt2": "<|endoftext|>", "llama3": "<|end_of_text|>", "flags": "<|endoftext|>"}


def document(name: str) -> dict:
    read = json.loads((GOLDEN / f"{name}.json").read_text())
    return document("gpt2") | read if name == "flags" else read


def check(worker: str, name: str, seed: int, directory: pathlib.Path) -> int:
    """1 if any ids differ, else 0."""
    texts = [string(seed, i) for i in range(TEXTS)]
    tokenizer_json = directory / f"{name}.json"
    tokenizer_json.write_text(json.dumps(document(name)))
    source = directory / f"{name}.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = directory / name
    subprocess.run([worker, "data", "tokenize", "--tokenizer", tokenizer_json, "--out", out, "--format", "tokens_u16",
                    "--jsonl", "--end", END[name], source], check=True, stdout=subprocess.DEVNULL)
    found = array.array("H", out.read_bytes())
    reference = Tokenizer.from_file(str(tokenizer_json))
    end = reference.token_to_id(END[name])
    at = 0
    for index, encoding in enumerate(reference.encode_batch(texts, add_special_tokens=False)):
        expected = encoding.ids + [end]
        if list(found[at : at + len(expected)]) != expected:
            print(f"{name}: text {index} of seed {seed} differs: {texts[index]!r}")
            return 1
        at += len(expected)
    return int(at != len(found))


def main() -> int:
    worker = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time()) // 86400
    with tempfile.TemporaryDirectory() as directory:
        wrong = [name for name in END if check(worker, name, seed, pathlib.Path(directory))]
    print(f"check_tokenizer: {TEXTS} texts of seed {seed} for each of {', '.join(END)}: "
          f"{'ids differ for ' + ', '.join(wrong) if wrong else 'all ids equal'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
