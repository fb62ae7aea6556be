"""Texts to tokenize, drawn from a seed: the same as those of tests/worker/tokenizer/strings.cc."""

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15

WORDS = ["the", "of", "Don", "he", "We", "I", "and", "train", "ing", "WORLD", "naïve", "über", "x1", "foo_bar", "http://a.b/c?d=e",
         "wonderful", "hello", "self.assertEqual(", "Ångström", "größer", "e\u0301te\u0301", "ﬁn", "O'Neill", "don't", "DON'T", "a.b"]
ENDINGS = ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Re", "rE", "VE", "M", "LL", "lL", "D", "ſ", "l", "r", "", "st", "x"]
SPACES = [" ", " ", " ", "\t", "\n", "\r", "\r\n", "\n\n", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u1680", "\u180e", "\u2000",
          "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff"]
EMOJI = ["👩\u200d👩\u200d👧\u200d👦", "👍🏽", "🏳️\u200d🌈", "🇩🇪", "❤️", "1️⃣", "🧑🏿\u200d🚀", "😀", "\u200d", "\ufe0f"]
DIGITS = ["0", "1", "2", "3", "7", "9", "٣", "४", "²", "½", "Ⅷ", "０", "𝟘", "𐵀", "௧", "〇", "㊿"]
RUNS = ["a", " ", "\n", "=", "0", "é", "中", "-", "\t", "😀", "'", "A", "\r", "\xa0", "\x00", "م", "."]
MARKS = ["!", "?", "...", "--", "'", "\"", "(", ")", "{", "}", "$", "€", "§", "/*", "*/", "\\", "«", "—", "、", "。", "·", "_", "+=", "<|"]
SPECIAL = ["<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|end", "of", "text|>", "<mask>", "<pad>", "hello",
           "hell", "<|endoftext|><|endoftext|>", "@@", "@", "[é]", "x y"]
# First code points and numbers of them.
BLOCKS = [(0x80, 0x180), (0x250, 0x120), (0x370, 0x190), (0x590, 0x70), (0x900, 0x80), (0xE00, 0x80), (0x1100, 0x100),
          (0x1E00, 0x200), (0x2000, 0x300), (0x3040, 0xC0), (0xA7C0, 0x40), (0xAC00, 0x2BA4), (0xFB00, 0x250), (0xFE00, 0x200),
          (0x10000, 0x1000), (0x10D40, 0x50), (0x16100, 0x3A), (0x1D400, 0x400), (0x1F000, 0xB00), (0x20000, 0x200), (0x2EBF0, 0x40),
          (0x31350, 0x40), (0xE0000, 0x200), (0x10FFF0, 0x10)]


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Draws:
    def __init__(self, seed: int, index: int):
        self.state = mix((seed * GAMMA + index) & MASK)

    def below(self, n: int) -> int:
        self.state = (self.state + GAMMA) & MASK
        return mix(self.state) % n

    def one(self, choices: list[str]) -> str:
        return choices[self.below(len(choices))]


def code_point(c: int) -> str:
    return "\ufffd" if 0xD800 <= c < 0xE000 else chr(c)


def part(draws: Draws) -> str:
    kind = draws.below(16)
    if kind == 0:
        return draws.one(WORDS)
    if kind == 1:
        return "".join(code_point(draws.below(0x110000)) for _ in range(1 + draws.below(4)))
    if kind == 2:
        one = draws.one(RUNS)
        return one * (1 + draws.below(400 if draws.below(16) == 0 else 24))
    if kind == 3:
        return "".join(draws.one(SPACES) for _ in range(1 + draws.below(5)))
    if kind == 4:
        return draws.one(EMOJI)
    if kind == 5:
        return "".join(draws.one(DIGITS) for _ in range(1 + draws.below(8)))
    if kind == 6:
        return "".join(chr(0x4E00 + draws.below(20992)) for _ in range(1 + draws.below(8)))
    if kind == 7:
        first, count = (0x5D0, 27) if draws.below(2) == 0 else (0x620, 43)
        return "".join(chr(first + draws.below(count)) for _ in range(1 + draws.below(8)))
    if kind == 8:
        return "".join(chr(draws.below(32) if draws.below(2) == 0 else 0x7F + draws.below(33)) for _ in range(1 + draws.below(3)))
    if kind == 9:
        return draws.one(SPECIAL)
    if kind == 10:
        return ("'" if draws.below(8) else "’") + draws.one(ENDINGS)
    if kind == 11:
        return "".join(draws.one(MARKS) for _ in range(1 + draws.below(3)))
    if kind == 12:
        first, count = BLOCKS[draws.below(len(BLOCKS))]
        return "".join(code_point(first + draws.below(count)) for _ in range(1 + draws.below(6)))
    if kind == 13:
        return draws.one(SPACES)
    if kind == 14:
        return code_point(draws.below(0x10000))
    return " " + draws.one(WORDS)


def string(seed: int, index: int) -> str:
    draws = Draws(seed, index)
    return "".join(part(draws) for _ in range(1 + draws.below(9)))


def fnv(hash_: int, data: bytes) -> int:
    for byte in data:
        hash_ = ((hash_ ^ byte) * 0x100000001B3) & MASK
    return hash_


FNV_START = 0xCBF29CE484222325
