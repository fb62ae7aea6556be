"""Prints tests/golden/data_order.txt: mixtures and validation splits as worker/data/mixture.h and
worker/data/validation_split.h define them, against which the C++ is tested.
"""

import math
from fractions import Fraction

G = 0x9E3779B97F4A7C15
M = 2**64 - 1


def mix(z):
    z &= M
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M
    return z ^ z >> 31


def window(sample, windows, seed):
    """As worker/data/sample_order.h."""
    half = 1
    while 4**half < windows:
        half += 1
    mask = 2**half - 1
    pass_key = mix(mix(seed + G) + sample // windows * G)
    x = sample % windows
    while True:
        left, right = x >> half, x & mask
        for r in range(6):
            left, right = right, left ^ (mix(right ^ mix(pass_key + (r + 1) * G)) & mask)
        x = left << half | right
        if x < windows:
            return x


def mixture(sources, seed, samples):
    """Source and window of each of the first samples; sources are (windows, weight)."""
    total = sum(weight for _, weight in sources)
    counts = [0] * len(sources)
    order = []
    for place in range(samples):
        # Straight from the definition, without periods: who is due, and of those the most urgent.
        due = []
        for s, (_, weight) in enumerate(sources):
            part = Fraction(weight, total)
            if math.floor(counts[s] / part) <= place:
                due.append((math.ceil((counts[s] + 1) / part), s))
        s = min(due)[1]
        own_seed = seed if s == 0 else mix(seed + s * G)
        order.append((s, window(counts[s], sources[s][0], own_seed)))
        counts[s] += 1
    return order


def split(windows, fraction, seed):
    """The windows of training and of validation."""
    f = Fraction(round(fraction * 2**32), 2**32)
    held_out = set()
    stratum = 0
    while math.ceil(stratum / f) < windows:
        start, end = math.ceil(stratum / f), math.ceil((stratum + 1) / f)
        held_out.add(start + (mix(mix(seed + G) + stratum * G) * (end - start) >> 64))
        stratum += 1
    return ([w for w in range(windows) if w not in held_out], [w for w in range(windows) if w in held_out])


def main():
    print("# tests/golden/data_order.py: mixture SEED WINDOWS:WEIGHT,… SAMPLE SOURCE WINDOW and")
    print("# split WINDOWS FRACTION SEED INDEX TRAINING VALIDATION (-1: there is none)")
    for seed, sources in ((1, [(10, 7), (20, 2), (3, 1)]), (2**64 - 1, [(1000, 1), (5, 3)]),
                          (42, [(64, 5), (65, 5), (66, 6), (67, 11)])):
        spelt = ",".join(f"{windows}:{weight}" for windows, weight in sources)
        for sample, (source, place) in enumerate(mixture(sources, seed, 60)):
            print("mixture", seed, spelt, sample, source, place)
    for windows, fraction, seed in ((100, 0.1, 1), (1001, 0.03, 2**64 - 1), (77, 0.5, 3), (64, 0.3, 4)):
        training, validation = split(windows, fraction, seed)
        for index in list(range(0, len(training), 7)) + [len(training) - 1]:
            print("split", windows, fraction, seed, index, training[index],
                  validation[index] if index < len(validation) else -1)


if __name__ == "__main__":
    main()
