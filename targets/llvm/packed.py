"""Bodies of calls to run-time functions: tensors on the stack, the call through a pointer, the status check.

Conditions (`REQUIRE`) are tested first, and call their function only where one does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import contiguous_strides
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.passes.memory.packed import PACKED, TYPES
from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.runtime.names import REQUIRE
from mirlo.runtime.records import dataclass
from mirlo.targets.host.runtime_calls import return_on_failure

_TENSOR = "!llvm.struct<(ptr, i32, i32, i32, i8, i8, i16, ptr, ptr, i64)>"
"""DLPack's DLTensor: data, device type and number, rank, type (code, bits, lanes), shape, strides, offset."""


@dataclass(frozen=True)
class PackedCall:
    """A declared call: the packed function, its position among the pointers, the types of the tensors."""

    symbol: str
    name: str
    position: int
    types: tuple[TensorType, ...]


def find_calls(module: ir.Module, names: Sequence[str]) -> list[PackedCall]:
    """Find the declarations that `plan-memory` made."""
    calls = []
    for op in module.body.operations:
        attributes = op.operation.attributes
        if TYPES not in attributes:
            continue
        types = [TensorType.from_mlir(ir.TypeAttr(entry).value) for entry in ir.ArrayAttr(attributes[TYPES])]
        name = ir.StringAttr(ir.ArrayAttr(attributes[PACKED])[0]).value
        symbol = symbol_name(op)
        calls.append(PackedCall(symbol, name, names.index(name), tuple(t for t in types if t is not None)))
    return calls


def define_calls(module: ir.Module, calls: Sequence[PackedCall], caller: str) -> None:
    """Define the bodies of the declarations, and make the caller return if a call fails."""
    if not calls:
        return
    symbols = {call.symbol for call in calls}
    operations = [op.operation for op in module.body.operations]
    functions = {symbol_name(op): op for op in operations}
    for symbol in symbols:
        functions[symbol].erase()
    new_module = ir.Module.parse("\n".join(map(_text, calls)))
    for op in new_module.body.operations:
        module.body.append(op.operation.clone())
    return_on_failure(functions[caller], symbols)


def _shape_text(symbol: str, position: int, tensor: TensorType) -> list[str]:
    """Return the constants that hold the shape and the strides of a tensor of static shape."""
    shape, lines = tensor.static_shape, []
    for what, numbers in (("shape", shape), ("strides", contiguous_strides(shape))):
        if numbers:
            listed = ", ".join(map(str, numbers))
            lines.append(
                f"llvm.mlir.global internal constant @{symbol}_{what}_{position}"
                f"(dense<[{listed}]> : tensor<{len(numbers)}xi64>) : !llvm.array<{len(numbers)} x i64>"
            )
    return lines


def _text(call: PackedCall) -> str:
    """Return the text of the function in the LLVM dialect; the call record follows the tensors (`PASSES_RECORD`)."""
    count = len(call.types)
    globals_: list[str] = []
    body = [
        f"%count = llvm.mlir.constant({count} : i64) : i64",
        f"%room = llvm.mlir.constant({count + 1} : i64) : i64",
        "%tensors = llvm.alloca %room x !llvm.ptr : (i64) -> !llvm.ptr",
    ]
    dims = 0
    for i, tensor in enumerate(call.types):
        if not tensor.is_static:
            body += _dims_text(i, tensor, dims)
            dims += sum(not isinstance(dim, int) for dim in tensor.shape)
            body += _tensor_text(call.symbol, i, tensor)
            continue
        globals_ += _shape_text(call.symbol, i, tensor)
        body += _tensor_text(call.symbol, i, tensor)
    arguments = "".join(f", %data{i}: !llvm.ptr" for i in range(count))
    arguments += "".join(f", %dim{i}: i64" for i in range(dims))
    if call.name == REQUIRE:
        body = [*_condition_text(call.types[0]), *body]
    new_line = "\n        "
    return f"""
      {new_line.join(globals_)}
      llvm.func internal @{call.symbol}(%functions: !llvm.ptr, %record: !llvm.ptr{arguments}) -> i1 {{
        %one = llvm.mlir.constant(1 : i64) : i64
        {new_line.join(body)}
        %last = llvm.getelementptr %tensors[{count}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
        llvm.store %record, %last : !llvm.ptr, !llvm.ptr
        %slot = llvm.getelementptr %functions[{call.position}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
        %function = llvm.load %slot : !llvm.ptr -> !llvm.ptr
        %code = llvm.call %function(%tensors, %count) : !llvm.ptr, (!llvm.ptr, i64) -> i32
        %zero = llvm.mlir.constant(0 : i32) : i32
        %failed = llvm.icmp "ne" %code, %zero : i32
        llvm.cond_br %failed, ^report, ^done
      ^report:
        %number = llvm.mlir.constant({call.position + 1} : i64) : i64
        llvm.store %number, %record : i64, !llvm.ptr
        %wide = llvm.sext %code : i32 to i64
        %second = llvm.getelementptr %record[1] : (!llvm.ptr) -> !llvm.ptr, i64
        llvm.store %wide, %second : i64, !llvm.ptr
        llvm.br ^done
      ^done:
        llvm.return %failed : i1
      }}"""


def _condition_text(holds: TensorType) -> list[str]:
    """Return the text that writes ones and returns if all of a condition holds, and goes on with the call otherwise."""
    static = math.prod(dim for dim in holds.shape if isinstance(dim, int))
    lines = ["%first = llvm.mlir.constant(0 : i64) : i64", "%false = llvm.mlir.constant(0 : i8) : i8"]
    lines += ["%true = llvm.mlir.constant(1 : i8) : i8", f"%length0 = llvm.mlir.constant({static} : i64) : i64"]
    dynamic = sum(not isinstance(dim, int) for dim in holds.shape)
    lines += [f"%length{i + 1} = llvm.mul %length{i}, %dim{i} : i64" for i in range(dynamic)]
    return [
        *lines,
        "llvm.br ^next(%first : i64)",
        "^next(%element: i64):",
        f'%is_left = llvm.icmp "ult" %element, %length{dynamic} : i64',
        "llvm.cond_br %is_left, ^test, ^holds",
        "^test:",
        "%held = llvm.getelementptr %data2[%element] : (!llvm.ptr, i64) -> !llvm.ptr, i8",
        "llvm.store %true, %held : i8, !llvm.ptr",
        "%tested = llvm.getelementptr %data0[%element] : (!llvm.ptr, i64) -> !llvm.ptr, i8",
        "%value = llvm.load %tested : !llvm.ptr -> i8",
        '%is_unmet = llvm.icmp "eq" %value, %false : i8',
        "%after = llvm.add %element, %one : i64",
        "llvm.cond_br %is_unmet, ^unmet, ^next(%after : i64)",
        "^holds:",
        "%succeeded = llvm.mlir.constant(false) : i1",
        "llvm.return %succeeded : i1",
        "^unmet:",
    ]


def _tensor_text(symbol: str, i: int, tensor: TensorType) -> list[str]:
    element = ELEMENT_TYPES[tensor.dtype.name]
    # DLPack packs types narrower than 8 bits; here each element is a byte, and is passed as one.
    code = element.dlpack_code if element.dlpack_code is not None else int(element.name.startswith("u"))
    fields: list[tuple[str, str | int]] = [
        ("ptr", f"%data{i}"), ("i32", 1), ("i32", 0), ("i32", tensor.rank), ("i8", code), ("i8", element.dlpack_bits),
        ("i16", 1), ("ptr", f"@{symbol}_shape_{i}"), ("ptr", f"@{symbol}_strides_{i}"), ("i64", 0),
    ]  # fmt: skip
    if not tensor.is_static:
        fields[7:9] = [("ptr", f"%shape{i}"), ("ptr", f"%strides{i}")]
    lines = [f"%t{i} = llvm.alloca %one x {_TENSOR} : (i64) -> !llvm.ptr"]
    for position, (kind, value) in enumerate(fields):
        type_ = "!llvm.ptr" if kind == "ptr" else kind
        name = f"%f{i}_{position}"
        if isinstance(value, int):
            lines.append(f"{name} = llvm.mlir.constant({value} : {kind}) : {kind}")
        elif value.startswith("@"):
            address = f"llvm.mlir.addressof {value}" if tensor.rank else "llvm.mlir.zero"
            lines.append(f"{name} = {address} : !llvm.ptr")
        else:
            name = value
        place = f"%p{i}_{position}"
        lines.append(f"{place} = llvm.getelementptr %t{i}[0, {position}] : (!llvm.ptr) -> !llvm.ptr, {_TENSOR}")
        lines.append(f"llvm.store {name}, {place} : {type_}, !llvm.ptr")
    lines.append(f"%a{i} = llvm.getelementptr %tensors[{i}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr")
    lines.append(f"llvm.store %t{i}, %a{i} : !llvm.ptr, !llvm.ptr")
    return lines


def _dims_text(i: int, tensor: TensorType, first: int) -> list[str]:
    """Return the shape and strides on the stack of a tensor with dynamic dims, which begin with %dim<first>."""
    rank = tensor.rank
    lines = [f"%rank{i} = llvm.mlir.constant({rank} : i64) : i64"]
    lines += [f"%{what}{i} = llvm.alloca %rank{i} x i64 : (i64) -> !llvm.ptr" for what in ("shape", "strides")]
    values = []
    for axis, dim in enumerate(tensor.shape):
        if isinstance(dim, int):
            lines.append(f"%size{i}_{axis} = llvm.mlir.constant({dim} : i64) : i64")
            values.append(f"%size{i}_{axis}")
        else:
            values.append(f"%dim{first}")
            first += 1
    lines.append(f"%step{i}_{rank} = llvm.mlir.constant(1 : i64) : i64")
    for axis in reversed(range(rank)):
        lines.append(f"%step{i}_{axis} = llvm.mul %step{i}_{axis + 1}, {values[axis]} : i64")
        for what, value in (("shape", values[axis]), ("strides", f"%step{i}_{axis + 1}")):
            place = f"%{what}{i}_{axis}"
            lines.append(f"{place} = llvm.getelementptr %{what}{i}[{axis}] : (!llvm.ptr) -> !llvm.ptr, i64")
            lines.append(f"llvm.store {value}, {place} : i64, !llvm.ptr")
    return lines
