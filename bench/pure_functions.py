"""Sherd's initial values and sample order in numpy, as worker/model/init.h and
worker/data/sample_order.h define them. Run as a program it prints the lines of
tests/golden/pure_functions.txt, against which the C++ is tested.
"""

import numpy as np

G = 0x9E3779B97F4A7C15
M = 2**64 - 1


def mix(z):
    """SplitMix64's output function, on uint64 arrays."""
    z = np.asarray(z, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def mix1(z):
    return int(mix(z & M))


def name_hash(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & M
    return h


def normal_values(name, seed, begin, end, stddev):
    """Initial values of elements [begin, end) as fp32."""
    key = np.uint64(mix1(name_hash(name) ^ mix1(seed + G)))
    index = np.arange(begin, end, dtype=np.uint64)
    pair = index >> np.uint64(1)
    with np.errstate(over="ignore"):
        a = mix(key + (np.uint64(2) * pair + np.uint64(1)) * np.uint64(G))
        b = mix(key + (np.uint64(2) * pair + np.uint64(2)) * np.uint64(G))
    u = ((a >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53
    v = (b >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius, angle = np.sqrt(-2.0 * np.log(u)), 2.0 * np.pi * v
    z = radius * np.where(index & np.uint64(1), np.sin(angle), np.cos(angle))
    return (stddev * z).astype(np.float32)


def window(sample, windows, seed):
    """The window that the global sample index reads."""
    half = 1
    while 4**half < windows:
        half += 1
    mask = 2**half - 1
    pass_key = mix1(mix1(seed + G) + sample // windows * G)
    keys = [mix1(pass_key + (r + 1) * G) for r in range(6)]
    x = sample % windows
    while True:
        left, right = x >> half, x & mask
        for key in keys:
            left, right = right, left ^ (mix1(right ^ key) & mask)
        x = left << half | right
        if x < windows:
            return x


def main():
    print("# bench/pure_functions.py: normal NAME SEED BEGIN STDDEV VALUES… and")
    print("# window WINDOWS SEED SAMPLE RESULT")
    for name, seed, begin in (
        ("wte.weight", 1, 0),
        ("wte.weight", 2, 0),
        ("h.11.mlp.c_proj.weight", 1, 7),
        ("wpe.weight", 2**64 - 1, 10**12 + 1),
    ):
        values = normal_values(name, seed, begin, begin + 6, 0.02)
        print("normal", name, seed, begin, 0.02, *(repr(float(value)) for value in values))
    for windows, seed in ((1, 1), (2, 1), (7, 1), (64, 3), (65, 2**64 - 1), (1000003, 42)):
        for sample in (0, 1, 2, windows - 1, windows, 5 * windows + windows // 2):
            print("window", windows, seed, sample, window(sample, windows, seed))


if __name__ == "__main__":
    main()
