"""In-place access to the weights of an ONNX file: large tensors are found in the protobuf bytes and cut out.

Most of an ONNX file is the data of a few tensors, which parsing would copy. `slim` reads the wire format only where
tensors can be (model, graphs, nodes, attributes, functions), records the byte range of each large tensor, and returns
the message with a short ticket in place of those bytes. Everything else is passed unchanged to the protobuf library.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import field

from mirlo.frontends.onnx.errors import DamagedModelError
from mirlo.runtime.records import dataclass

LARGE = 1024
"""Smallest data, in bytes, that stays in the file."""

DEPTH = 64
"""Deepest nesting of messages that tools write (protobuf itself stops at 100)."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TICKET_BYTES = 24

# message: {field number: nested message}. TensorProto's own fields are handled below.
_NESTED: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 25: "FunctionProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "FunctionProto": {7: "NodeProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {5: "TensorProto", 6: "GraphProto", 10: "TensorProto", 11: "GraphProto", 22: "SparseTensorProto"},
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
}
_SCALARS = {"AttributeProto": (7, 8, 9)}
"""Repeated numbers and texts of a message that has no tensors if it has these: trees are attributes of millions."""
_RAW_DATA = 9
_PACKED_AS_RAW = {4: "float_data", 10: "double_data"}
"""Repeated fields whose packed form equals `raw_data`."""


@dataclass
class SlimModel:
    """A model's message without the bytes of its large tensors, and where those bytes are."""

    message: bytes
    data: dict[bytes, memoryview] = field(default_factory=dict)
    """Ticket (the `raw_data` of a tensor in `message`) to the bytes it stands for."""


def slim(buffer: memoryview, what: str) -> SlimModel:
    """Cut the large tensors out of a serialized ModelProto; `what` names it in errors."""
    scanner = _Scanner(buffer, what)
    pieces = scanner.message("ModelProto", 0, len(buffer), 0)
    return SlimModel(b"".join(pieces), scanner.data)


@dataclass(frozen=True)
class WireField:
    """A field of a message: its number, and its integer or bytes."""

    number: int
    value: int
    payload: memoryview


def wire_fields(buffer: memoryview, what: str) -> Iterator[WireField]:
    """Yield the fields of one message that are integers or bytes; `what` names the message in errors."""
    scanner = _Scanner(buffer, what)
    at, end = 0, len(buffer)
    while at < end:
        number, wire, begin, at = scanner.field(at, end, "message")
        if wire == _VARINT:
            yield WireField(number, scanner.varint(begin, end, "message")[0], buffer[:0])
        elif wire == _BYTES:
            yield WireField(number, 0, buffer[begin:at])


class _Scanner:
    def __init__(self, buffer: memoryview, what: str) -> None:
        self.buffer = buffer
        self.what = what
        self.data: dict[bytes, memoryview] = {}
        # Random, so that no bytes of a file can be mistaken for a ticket.
        self.secret = os.urandom(_TICKET_BYTES - 8)

    def message(self, kind: str, start: int, end: int, depth: int) -> list[bytes | memoryview]:
        """Return the bytes of one message, with its large tensors cut out."""
        if depth > DEPTH:
            raise DamagedModelError(f"{self.what}: not an ONNX model: messages are nested more than {DEPTH} deep")
        nested, scalars = _NESTED[kind], _SCALARS.get(kind, ())
        pieces: list[bytes | memoryview] = []
        kept = start
        at = start
        while at < end:
            field_start = at
            number, wire, begin, at = self.field(at, end, kind)
            if number in scalars:
                break
            inner = nested.get(number)
            if wire != _BYTES or inner is None or at - begin < LARGE:
                continue
            slimmed = self.tensor(begin, at) if inner == "TensorProto" else self.message(inner, begin, at, depth + 1)
            size = sum(map(len, slimmed))
            if size == at - begin:
                continue
            pieces += (self.buffer[kept:field_start], _tag(number), _varint(size), *slimmed)
            kept = at
        pieces.append(self.buffer[kept:end])
        return pieces

    def tensor(self, start: int, end: int) -> list[bytes | memoryview]:
        """Return the bytes of a TensorProto with its data replaced by a ticket."""
        fields = []
        at = start
        while at < end:
            field_start = at
            number, wire, begin, at = self.field(at, end, "TensorProto")
            if wire == _BYTES and (number == _RAW_DATA or number in _PACKED_AS_RAW):
                fields.append((field_start, begin, at))
        # Several such fields in one tensor are legal parts of one array: rare, and left to the protobuf library.
        if len(fields) != 1 or fields[0][2] - fields[0][1] < LARGE:
            return [self.buffer[start:end]]
        field_start, begin, stop = fields[0]
        ticket = self.secret + len(self.data).to_bytes(8, "little")
        self.data[ticket] = self.buffer[begin:stop]
        return [self.buffer[start:field_start], _tag(_RAW_DATA), _varint(len(ticket)), ticket, self.buffer[stop:end]]

    def field(self, at: int, end: int, kind: str) -> tuple[int, int, int, int]:
        """Return the field at this offset: number, wire type, start and end of its payload."""
        key, payload = self.varint(at, end, kind)
        number, wire = key >> 3, key & 7
        if wire == _BYTES:
            size, payload = self.varint(payload, end, kind)
        elif wire == _VARINT:
            _, stop = self.varint(payload, end, kind)
            return number, wire, payload, stop
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise DamagedModelError(
                f"{self.what}: not an ONNX model: byte {at} is not a field of a {kind} (wire type {wire})"
            )
        if number == 0:
            raise DamagedModelError(
                f"{self.what}: not an ONNX model: byte {at} is not a field of a {kind} (field number 0)"
            )
        if payload + size > end:
            raise self.cut_off(at, f"a field of {size} bytes", end - payload, kind)
        return number, wire, payload, payload + size

    def varint(self, at: int, end: int, kind: str) -> tuple[int, int]:
        value = shift = 0
        for position in range(at, min(at + 10, end)):
            byte = self.buffer[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position + 1
            shift += 7
        if at + 10 <= end:
            raise DamagedModelError(
                f"{self.what}: not an ONNX model: byte {at} starts a number of more than 10 bytes in a {kind}"
            )
        raise self.cut_off(at, "a number", end - at, kind)

    def cut_off(self, at: int, wanted: str, left: int, kind: str) -> DamagedModelError:
        if at == 0 or len(self.buffer) < 16:
            return DamagedModelError(
                f"{self.what}: not an ONNX model ({len(self.buffer)} bytes that are no protobuf message)"
            )
        return DamagedModelError(
            f"{self.what}: the model is truncated or damaged: in a {kind}, byte {at} starts {wanted} of which only "
            f"{left} are there (the file has {len(self.buffer)} bytes); download or export it again"
        )


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _BYTES)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
