#!/usr/bin/env python3
"""Makes the tokenizers and vectors beside it with the reference implementation (PyPI `tokenizers`).

gpt2.json and llama3.json are tiny tokenizers of the two families, trained here; flags.json is what a
third one has other than gpt2.json. NAME.txt holds, of so many strings of strings.py, a hash of all
the texts, and of each text the low 24 bits of the FNV-1a hash of its ids as little-endian uint32.
"""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from strings import FNV_START, fnv, string

HERE = pathlib.Path(__file__).resolve().parent
SEED = 1
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")


def corpus():
    """English, and what the strings hold: other ones than those of the vectors."""
    for file in ("fortunes", "literature", "riddles"):
        yield from pathlib.Path("/usr/share/games/fortunes", file).read_text(errors="replace").split("\n%\n")
    yield from (string(SEED + 1, i) for i in range(30000))


def train(pre_tokenizer, vocab: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def write(name: str, document) -> str:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (HERE / f"{name}.json").write_text(text + "\n")
    return text


def vectors(name: str, document, count: int) -> None:
    tokenizer = Tokenizer.from_str(json.dumps(document))
    texts = [string(SEED, i) for i in range(count)]
    all_texts = FNV_START
    hashes = []
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False)):
        all_texts = fnv(all_texts, text.encode())
        ids = fnv(FNV_START, b"".join(id_.to_bytes(4, "little") for id_ in encoding.ids))
        hashes.append(f"{ids & 0xFFFFFF:06x}")
    rows = ["".join(hashes[i : i + 20]) for i in range(0, count, 20)]
    (HERE / f"{name}.txt").write_text(f"{count} {all_texts:016x}\n" + "\n".join(rows) + "\n")


def make_gpt2():
    tokenizer = train(pre_tokenizers.ByteLevel(add_prefix_space=False), 1500)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    document = json.loads(tokenizer.to_str())
    document["model"]["merges"] = [" ".join(merge) for merge in document["model"]["merges"]]
    return document


def make_llama3():
    tokenizer = train(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 1500)
    document = json.loads(tokenizer.to_str())
    # Words that no merges lead to.
    vocab = document["model"]["vocab"]
    for word in ("Ġwonderful", "wonderful", "ĊĊĊ", "Ġ+="):
        vocab.setdefault(word, len(vocab))
    document["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)])])
    return json.loads(tokenizer.to_str())


def make_flags(gpt2):
    tokenizer = Tokenizer.from_str(json.dumps(gpt2 | {"added_tokens": []}))
    tokenizer.add_tokens([
        AddedToken("<mask>", lstrip=True, special=True), AddedToken("<pad>", rstrip=True),
        AddedToken("hello", single_word=True), AddedToken("hell", normalized=False, single_word=True),
        AddedToken("@@", lstrip=True, rstrip=True), AddedToken("@", normalized=False), AddedToken("[é]", normalized=True),
        AddedToken("<|end", normalized=False), AddedToken("<|endoftext|>", special=True, normalized=False),
        AddedToken("x y"), AddedToken("\u3000", rstrip=True), AddedToken(" \t", normalized=False)])
    document = json.loads(tokenizer.to_str())
    return {"added_tokens": document["added_tokens"],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}


def main() -> None:
    gpt2, llama3 = make_gpt2(), make_llama3()
    flags = make_flags(gpt2)
    for name, document in (("gpt2", gpt2), ("llama3", llama3), ("flags", flags)):
        write(name, document)
    vectors("gpt2", gpt2, 10000)
    vectors("llama3", llama3, 10000)
    vectors("flags", gpt2 | flags, 2000)


if __name__ == "__main__":
    main()
