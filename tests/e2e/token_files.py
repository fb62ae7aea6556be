"""Files of tokens as other programs write them."""

import struct


def llmc(ids, magic=20240520, version=1, code="H"):
    """A file as llm.c reads it."""
    header = struct.pack("<3i", magic, version, len(ids)).ljust(1024, b"\0")
    return header + struct.pack(f"<{len(ids)}{code}", *ids)


def megatron_index(lengths, code, width):
    """The index of a file of Megatron's whose documents are single sequences, one after another."""
    starts = [sum(lengths[:i]) * width for i in range(len(lengths))]
    limits = range(len(lengths) + 1)
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1) +
            struct.pack(f"<{len(lengths)}i{len(lengths)}q{len(limits)}q", *lengths, *starts, *limits))
