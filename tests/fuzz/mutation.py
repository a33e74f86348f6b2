"""Messages that are almost right: bytes turned over, fields set to what nobody would send."""

from __future__ import annotations

import random

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

DEEPEST = 4
MOST_REPEATS = 300
INTEGERS = (0, 1, -1, 2, 7, 255, 8_000, 16_000, 48_000, 2**31 - 1, -(2**31))
LONG_INTEGERS = (*INTEGERS, 2**53, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, 0.5, -1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
NATURALS = tuple(number for number in INTEGERS if number >= 0)
NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: INTEGERS,
    FieldDescriptor.CPPTYPE_INT64: LONG_INTEGERS,
    FieldDescriptor.CPPTYPE_UINT32: NATURALS,
    FieldDescriptor.CPPTYPE_UINT64: NATURALS,
    FieldDescriptor.CPPTYPE_DOUBLE: FLOATS,
    FieldDescriptor.CPPTYPE_FLOAT: FLOATS,
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
}
TEXTS = ("", "de", "en", "xx", "\0", "../../etc/passwd", "%s%n", "ü" * 999, "a" * 100_000)


def spoil(message: bytes, draw: random.Random) -> bytes:
    """Return the bytes with some of them changed, left out, repeated or put in."""
    spoiled = bytearray(message)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(spoiled) + 1)
        end = min(len(spoiled), at + draw.randint(1, 8))
        match draw.randrange(5):
            case 0:
                spoiled[at:end] = draw.randbytes(end - at)
            case 1:
                del spoiled[at:end]
            case 2:
                spoiled[at:at] = spoiled[at:end] * draw.randint(1, 50)
            case 3:
                spoiled[at:at] = draw.randbytes(draw.randint(1, 40))
            case 4:
                del spoiled[at:]
    return bytes(spoiled)


def fill(message: Message, draw: random.Random, share: float, depth: int = 0) -> None:
    """Set a share of a message's fields, and of the messages in it, to odd values."""
    for field in message.DESCRIPTOR.fields:
        if draw.random() < share:
            _fill_field(message, field, draw, share, depth)


def _fill_field(
    message: Message, field: FieldDescriptor, draw: random.Random, share: float, depth: int
) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return
    if field.is_repeated:
        values = getattr(message, field.name)
        for _ in range(draw.choice((1, 2, draw.randint(1, MOST_REPEATS)))):
            if field.message_type is None:
                values.append(_value(field, draw))
            elif depth < DEEPEST:
                fill(values.add(), draw, share, depth + 1)
    elif field.message_type is None:
        setattr(message, field.name, _value(field, draw))
    elif depth < DEEPEST:
        getattr(message, field.name).SetInParent()
        fill(getattr(message, field.name), draw, share, depth + 1)


def _value(field: FieldDescriptor, draw: random.Random) -> object:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = draw.choice(TEXTS)
        return text if field.type == field.TYPE_STRING else draw.randbytes(len(text))
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return draw.choice((*(value.number for value in field.enum_type.values), 99, -1))
    return draw.choice(NUMBERS[field.cpp_type])
