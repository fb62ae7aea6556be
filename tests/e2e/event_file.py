"""Reads TensorBoard's event files: TFRecords of Event messages, from their public descriptions alone."""

import struct

TABLE = []
for byte in range(256):
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    TABLE.append(crc)


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The messages; an assertion fails for one that is cut off or damaged."""
    at = 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert length_crc == masked_crc32c(data[at : at + 8]), f"the length at byte {at}"
        message = data[at + 12 : at + 12 + length]
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert crc == masked_crc32c(message), f"the message at byte {at}"
        yield message
        at += 16 + length


def fields(message):
    """Pairs of field number and value of a protocol buffer's wire format."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield key >> 3, message[at : at + size]
        at += size


def scalars(path):
    """(step, tag, value) of a file, in its order; the first record must say what the file is."""
    messages = list(records(path.read_bytes()))
    assert dict(fields(messages[0])).get(3) == b"brain.Event:2"
    for message in messages[1:]:
        event = dict(fields(message))
        assert struct.unpack("<d", event[1])[0] > 1.5e9, "a time"
        for number, value in fields(event[5]):
            assert number == 1
            entry = dict(fields(value))
            yield event[2], entry[1].decode(), struct.unpack("<f", entry[2])[0]
