"""The host's part of a compiled model as data: which kernel runs when, on which memory.

A planned module has one function over buffers that calls prim functions, and these launch kernels. Followed from the
launch to the parameters, every buffer is a range of bytes in one of the spaces below. What is left is a list of steps
that a loader can record once and replay, without knowing the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dense import array_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.lower.calls import find
from mirlo.passes.registry import PassError

ARENA, TENSOR, PARAM, CONSTANT = "arena", "tensor", "param", "constant"
"""Spaces: the scratch memory of a call; inputs, then outputs; weights; small constants."""
ALIGNMENT = 256
"""Of what the loader places itself: enough for every device."""


@dataclass(frozen=True)
class Range:
    """Bytes of a space."""

    space: str
    index: int
    offset: int
    size: int

    def part(self, offset: int, size: int) -> Range:
        return Range(self.space, self.index, self.offset + offset, size)

    def as_json(self) -> list[Any]:
        return [self.space, self.index, self.offset, self.size]


@dataclass(frozen=True)
class TensorMap:
    """A tensor as an engine that copies boxes of it sees it; a kernel is given a description, not an address."""

    range: Range
    dims: tuple[int, ...]
    """The innermost first; so are the others."""
    strides: tuple[int, ...]
    """Bytes between neighbours along each dim but the innermost."""
    box: tuple[int, ...]
    format: str
    """Of its numbers."""

    def as_json(self) -> dict[str, Any]:
        return {
            "map": self.range.as_json(), "dims": list(self.dims), "strides": list(self.strides), "box": list(self.box),
            "format": self.format,
        }  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """A kernel on ranges of memory; `row` is the row of a profile that its time counts for."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Range | TensorMap, ...]
    writes: tuple[bool, ...]
    """For each argument whether the kernel writes it."""
    row: int

    def as_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel, "grid": list(self.grid), "block": list(self.block),
            "arguments": [argument.as_json() for argument in self.arguments],
            "writes": [i for i, written in enumerate(self.writes) if written], "row": self.row,
        }  # fmt: skip


@dataclass(frozen=True)
class Copy:
    """Bytes from one range to another."""

    source: Range
    target: Range
    row: int

    def as_json(self) -> dict[str, Any]:
        return {"copy": [self.source.as_json(), self.target.as_json()], "row": self.row}


@dataclass
class Program:
    """All steps of an inference, in order."""

    steps: list[Launch | Copy] = field(default_factory=list)
    constants: list[bytes] = field(default_factory=list)
    arena: int = 0

    def as_json(self) -> dict[str, Any]:
        """For the metadata of an artifact."""
        return {"steps": [step.as_json() for step in self.steps], "arena": self.arena}


def read_program(module: Any, main: Any) -> Program:
    """The program of a planned module whose kernels are outlined."""
    functions = {
        ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation
        for op in module.body.operations if is_prim_func(op)
    }  # fmt: skip
    return _Reader(module, functions).run(main)


class _Reader:
    def __init__(self, module: Any, functions: dict[str, Any]):
        self.module = module
        self.functions = functions
        self.program = Program()
        self.globals: dict[str, int] = {}
        self.kernels: dict[str, tuple[bool, ...]] = {}
        self.row = -1

    def run(self, main: Any) -> Program:
        env: dict[Any, Any] = {}
        tensors = params = 0
        entries = ir.ArrayAttr(main.attributes["arg_attrs"])
        for argument, entry in zip(main.regions[0].blocks[0].arguments, entries, strict=True):
            attributes = ir.DictAttr(entry)
            size = buffer_bytes(argument.type)
            if "relax.name" in attributes:
                env[argument] = Range(TENSOR, tensors, 0, size)
                tensors += 1
            elif "relax.param" in attributes:
                env[argument] = Range(PARAM, params, 0, size)
                params += 1
            elif "relax.arena" in attributes:
                env[argument] = Range(ARENA, 0, 0, size)
                self.program.arena = size
        for op in [o.operation for o in main.regions[0].blocks[0].operations]:
            self._host(op, env)
        return self.program

    def _host(self, op: Any, env: dict[Any, Any]) -> None:
        if op.name == "func.call":
            self.row += 1
            name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            callee = self.functions.get(name)
            if callee is None:
                raise PassError(
                    f"'{name}' is a function of the run time, which models on GPUs cannot call", op.location
                )
            block = callee.regions[0].blocks[0]
            inner = dict(zip(block.arguments, (env[value] for value in op.operands), strict=True))
            for nested in [o.operation for o in block.operations]:
                self._step(nested, inner)
            return
        self._step(op, env)

    def _step(self, op: Any, env: dict[Any, Any]) -> None:
        if op.name in ("arith.constant", "func.return"):
            return
        if op.name == "memref.view":
            env[op.results[0]] = env[op.operands[0]].part(_known(op.operands[1]), buffer_bytes(op.results[0].type))
        elif op.name in ("memref.collapse_shape", "memref.expand_shape", "memref.cast", "memref.reinterpret_cast"):
            env[op.results[0]] = env[op.operands[0]]
        elif op.name == "nvgpu.tma.create.descriptor":
            env[op.results[0]] = _tensor_map(op, env[op.operands[0]])
        elif op.name == "memref.get_global":
            env[op.results[0]] = self._constant(ir.FlatSymbolRefAttr(op.attributes["name"]).value, op)
        elif op.name == "memref.copy":
            source, target = env[op.operands[0]], env[op.operands[1]]
            if source != target and target.size:
                self.program.steps.append(Copy(source, target, max(self.row, 0)))
        elif op.name == "gpu.launch_func":
            self._launch(op, env)
        else:
            raise PassError(
                f"'{op.name}': models on GPUs cannot decide or compute on the host yet; compile it for target llvm",
                op.location,
            )

    def _launch(self, op: Any, env: dict[Any, Any]) -> None:
        reference = ir.SymbolRefAttr(op.attributes["kernel"]).value
        operands = list(op.operands)
        sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        first = sizes[0]
        numbers = [_known(value) for value in operands[first : first + 6]]
        count = sizes[-2]
        arguments = operands[len(operands) - sizes[-1] - count : len(operands) - sizes[-1]]
        ranges = tuple(env[value] for value in arguments)
        grid, block = (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5])
        kernel = "::".join(reference)
        self.program.steps.append(Launch(kernel, grid, block, ranges, self._writes(kernel), max(self.row, 0)))

    def _writes(self, kernel: str) -> tuple[bool, ...]:
        if not self.kernels:
            for function in find(self.module, "gpu.func"):
                own = ir.StringAttr(function.parent.attributes["sym_name"]).value
                name = f"{own}::{ir.StringAttr(function.attributes['sym_name']).value}"
                self.kernels[name] = tuple(map(_is_written, function.regions[0].blocks[0].arguments))
        return self.kernels[kernel]

    def _constant(self, name: str, op: Any) -> Range:
        if name not in self.globals:
            for other in self.module.body.operations:
                attributes = other.operation.attributes
                if other.operation.name == "memref.global" and ir.StringAttr(attributes["sym_name"]).value == name:
                    self.program.constants.append(_bytes_of(attributes["initial_value"]))
                    self.globals[name] = len(self.program.constants) - 1
        at = self.globals[name]
        return Range(CONSTANT, at, 0, len(self.program.constants[at]))


def _tensor_map(op: Any, where: Range) -> TensorMap:
    """A description of a tensor, whose shape is that of what it was made from."""
    kind = op.operands[0].owner.operands[0].type
    strides, _ = kind.get_strides_and_offset()
    box = [_known(size) for size in list(op.operands)[1:]]
    bytes_ = buffer_bytes(ir.MemRefType.get([1], kind.element_type))
    return TensorMap(
        where, tuple(reversed(kind.shape)), tuple(bytes_ * stride for stride in reversed(strides[:-1])),
        tuple(reversed(box)), ir.StringAttr(op.attributes["format"]).value,
    )  # fmt: skip


def _is_written(argument: Any) -> bool:
    """Whether a kernel does something else with a buffer than reading elements."""
    if not isinstance(argument.type, ir.MemRefType):
        return False  # a tensor map: only what is read has one
    return not all(
        use.owner.operation.name in ("memref.load", "vector.load") or _is_source(use) for use in argument.uses
    )


def _is_source(use: Any) -> bool:
    """Whether a buffer is what an asynchronous copy reads; its first operands are where it writes."""
    op = use.owner.operation
    return op.name == "nvgpu.device_async_copy" and use.operand_number >= 2


def _bytes_of(value: Any) -> bytes:
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    return array_of(value, kind).tobytes()


def _known(value: Any) -> int:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        raise PassError("a size or offset is not known when compiling, which GPUs cannot have yet")
    return ir.IntegerAttr(owner.attributes["value"]).value
