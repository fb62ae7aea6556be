#!/usr/bin/env python3
"""Writes worker/tokenizer/code_point_runs.cc: what each Unicode code point is to tokenizers.

The classes are asked of the reference implementation itself (PyPI `tokenizers`, whose regular
expression engines bring their own Unicode tables), so that they are right by its measure. Run it
only to follow a newer release of it; then make the vectors of tests/golden/ anew as well.
"""

import pathlib

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parent.parent / "worker/tokenizer/code_point_runs.cc"
LETTER, NUMBER, SPACE, WORD = 1, 2, 4, 8
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def of_class(regex: str) -> set[int]:
    """What one of the engine's classes matches."""
    text = "".join(map(chr, CODE_POINTS))
    split = pre_tokenizers.Split(Regex(f"[^{regex}]+"), "removed")
    return {c for _, (begin, end) in split.pre_tokenize_str(text) for c in CODE_POINTS[begin:end]}


def words() -> set[int]:
    """What keeps an added token that must be a single word from being found."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_tokens([AddedToken("+", single_word=True)])
    found = tokenizer.encode_batch(["+" + chr(c) for c in CODE_POINTS])
    return {c for c, encoding in zip(CODE_POINTS, found) if not encoding.ids}


def stripped() -> set[int]:
    """What an added token takes with it on its right."""
    tokenizer = Tokenizer(models.BPE({"x": 0, "y": 1}, [], unk_token="y"))
    tokenizer.add_tokens([AddedToken("+", rstrip=True)])
    found = tokenizer.encode_batch(["+" + chr(c) + "x" for c in CODE_POINTS])
    return {c for c, encoding in zip(CODE_POINTS, found) if encoding.ids == [2, 0]} - {ord("+"), ord("x")}


def main() -> None:
    letters, numbers, spaces = of_class(r"\p{L}"), of_class(r"\p{N}"), of_class(r"\s")
    assert not letters & numbers and not letters & spaces and not numbers & spaces
    assert stripped() == spaces
    word = words()
    runs, last = [], None
    for c in range(0x110000):
        bits = LETTER * (c in letters) | NUMBER * (c in numbers) | SPACE * (c in spaces) | WORD * (c in word)
        if bits != last:
            runs.append(c << 4 | bits)
            last = bits
    rows = [", ".join(f"0x{run:07X}" for run in runs[i : i + 8]) for i in range(0, len(runs), 8)]
    OUT.write_text(
        f"// Written by scripts/code_point_classes.py from tokenizers {tokenizers.__version__}.\n"
        '#include "worker/tokenizer/code_point_runs.h"\n\nnamespace sherd {\n\n'
        "// clang-format off\n"
        f"const std::array<uint32_t, {len(runs)}> kCodePointRuns = {{\n    " + ",\n    ".join(rows) + "};\n"
        "// clang-format on\n\n}  // namespace sherd\n")
    print(f"{OUT}: {len(runs)} runs")


if __name__ == "__main__":
    main()
