"""Kernels that differ in numbers only become one that takes them as arguments: scales of layers, sizes of buffers.

Such kernels are found before `schedule` lowers them, when their text is short. Scalars become arguments where they are
operands of arithmetic that costs the same with constants: not in limits. Sizes do in the ends of loops and around
innermost loops, where the buffers are seen in one dim, but for kernels with register tiles.

Buffers that are equal but for their sizes get the same types, of one dim. Sizes in types are in no code: a kernel gets
pointers, and what it sees in one dim has no strides.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.surgery import attributes_of, enclosing, replace_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.value import create
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import PRIM_FUNC, is_prim_func
from mirlo.passes.fuse.kinds import KIND, FusionKind
from mirlo.passes.memory.names import FORK
from mirlo.passes.schedule.loops import LOOP_ANNOTATION
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.flat_views import SCRATCH, WholeViews, flatten_arguments, flatten_scratch, whole_views

VIEWS = frozenset(
    ("memref.view", "memref.collapse_shape", "memref.expand_shape", "memref.reinterpret_cast", "memref.subview")
)
"""Operations whose results are views of buffers."""


def form_of(buffer: ir.Value) -> object:
    """Return what is left of a buffer's type without sizes that code does not depend on, for other values their type.

    These are sizes of buffers of one dim, and of those that are seen in one dim only.
    """
    kind = buffer.type
    if not isinstance(kind, ir.MemRefType) or not kind.has_static_shape:
        return hash(kind)
    if _is_flat(kind):
        return "flat", hash(kind.element_type), hash(kind.memory_space)
    views = whole_views(buffer)
    if views is None or not _is_flat(views.kind) or not _can_be_flat(buffer, views):
        return hash(kind)
    return "whole", hash(kind.element_type), hash(views.kind.element_type), hash(kind.memory_space)


def _can_be_flat(buffer: ir.Value, views: WholeViews) -> bool:
    """Return whether a buffer is an argument of a kernel, or scratch memory, that `flat_views.py` gives one dim."""
    owner = buffer.owner
    if isinstance(owner, ir.Block):
        return PRIM_FUNC in owner.owner.operation.attributes
    return isinstance(owner.opview, SCRATCH) and views.collapsed == len(views.operations)


def _is_flat(kind: Any) -> bool:
    return bool(kind.rank == 1 and kind.has_static_shape and kind.affine_map == ir.AffineMap.get_identity(1))


def equalize(kernels: Sequence[Sequence[ir.Operation]]) -> None:
    """Give the buffers of kernels of one form the same types: those of one dim have the largest size of all.

    A kernel is its functions with bodies, itself first.
    """
    columns = list(zip(*map(_buffers, kernels), strict=True))
    if all(len({value.type for value in column}) == 1 for column in columns):
        return
    for functions in kernels:
        flatten_arguments(functions[0])
        for function in functions:
            for op in [each for each in function.regions[0].blocks[0].operations if isinstance(each, SCRATCH)]:
                flatten_scratch(op.operation)
    for column in zip(*map(_buffers, kernels), strict=True):
        kinds: set[Any] = {value.type for value in column}
        if len(kinds) > 1:
            largest = max(kinds, key=lambda kind: kind.shape[0])
            for value in column:
                value.set_type(largest)
    for functions in kernels:
        for function in functions:
            set_inputs(function, [argument.type for argument in function.regions[0].blocks[0].arguments])


def _buffers(functions: Sequence[ir.Operation]) -> list[ir.Value]:
    """Return the buffers that the functions of a kernel take, and the views of buffers."""
    buffers: list[ir.Value] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in VIEWS:
            buffers.append(op.results[0])
        return ir.WalkResult.ADVANCE

    for function in functions:
        buffers += [each for each in function.regions[0].blocks[0].arguments if isinstance(each.type, ir.MemRefType)]
        walk(function, visit)
    return buffers


def set_inputs(function: ir.Operation, kinds: Sequence[ir.Type]) -> None:
    """Change the types of a function's arguments in its own type."""
    results = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(list(kinds), list(results)))


def cast_operands(call: ir.Operation, function: ir.Operation) -> None:
    """Pass to a function buffers of the types that it takes."""
    kinds = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs
    for i, (operand, kind) in enumerate(zip(list(call.operands), kinds, strict=False)):
        if operand.type != kind:
            with ir.InsertionPoint(call), call.location:
                call.operands[i] = _cast(operand, kind)


def _cast(buffer: ir.Value, kind: Any) -> ir.Value:
    """Return a buffer as one of another type: a view of the same bytes, where it is one, or of the same elements."""
    owner = buffer.owner
    result: ir.OpView
    if isinstance(owner, memref.ViewOp) and len(owner.operation.operands) == 2:
        result = memref.ViewOp(kind, *owner.operation.operands, [])
    elif buffer.type.element_type != kind.element_type:
        result = memref.ViewOp(kind, buffer, create("arith.constant", ir.IndexType.get(), value=_index(0)), [])
    else:
        result = memref.ReinterpretCastOp(kind, buffer, [], [], [], [0], list(kind.shape), [1] * kind.rank)
    value: ir.Value = result.operation.results[0]
    return value


def _index(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IndexType.get(), number)


MAX_SCALARS = 16
"""The most arguments that a kernel gets: further ones would each cost a store and a load of a call."""
ARITHMETIC = frozenset(
    ("arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.addi", "arith.subi", "math.fma", "vector.fma")
)
"""Operations that cost the same with constants and with other values, but for divisors with exact inverses."""
MAX_OFFSETS = 8
"""The most sizes in the addresses of innermost loops that become arguments: as constants they are parts of
instructions, as arguments they are in registers."""
_OF_ADDRESSES = ("arith.addi", "arith.muli")
_PRODUCTS = frozenset(("arith.mulf", "arith.divf", "math.fma", "vector.fma"))
"""Operations of which LLVM makes products: quotients by constants with exact inverses, too."""
_VALUES = re.compile(r"%c[\w-]*|arith\.constant \S+ : (?:bf16|f\d+|i\d+)$", re.MULTILINE)
"""Constants that are scalars, and the names that the printer gives the results of constants."""
_NUMBERS = re.compile(r"\d+")


def similar_kernels(module: ir.OpView) -> dict[str, int]:
    """Return the kernels whose text before `schedule` differs from that of others in numbers only: groups by name.

    The sizes of contractions decide their register tiles: those of a group differ in scalars only.
    """
    named: defaultdict[str, list[str]] = defaultdict(list)
    for function in module.regions[0].blocks[0].operations:
        if is_prim_func(function) and len(function.operation.regions[0].blocks):
            name = symbol_name(function)
            text = function.operation.get_asm(assume_verified=True, use_local_scope=True)
            text = _VALUES.sub("", text.replace(f"@{name}(", "@(", 1))
            named[text if _is_contraction(function) else _NUMBERS.sub("", text)].append(name)
    groups = (names for names in named.values() if len(names) > 1)
    return {name: i for i, names in enumerate(groups) for name in names}


def _is_contraction(function: ir.OpView) -> bool:
    kind = function.operation.attributes.get(KIND)
    return kind is None or ir.StringAttr(kind).value == FusionKind.CONTRACTION.label


@dataclass
class _Kernel:
    """A lowered kernel with the functions that run its parallel regions."""

    name: str
    functions: list[ir.Operation] = field(default_factory=list)
    """Those with bodies, the kernel first."""
    forks: list[ir.Operation] = field(default_factory=list)
    """Declarations of the functions that run regions on several threads."""
    calls: list[ir.Operation] = field(default_factory=list)
    """The calls of the forks and regions."""
    constants: list[ir.Operation] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    """The names of all operations, in order."""
    types: list[int] = field(default_factory=list)
    """The addresses of the types of all results that are no buffers, in order."""
    buffers: list[ir.Value] = field(default_factory=list)
    """The arguments of functions, and the results that are views of buffers."""
    has_tiles: bool = False
    """Whether a loop is over the accumulators of a register tile."""

    def values(self) -> list[ir.Attribute]:
        return [op.attributes["value"] for op in self.constants]

    def form(self) -> tuple[object, ...]:
        """Return what kernels that become one have in common."""
        return (*self.operations, *self.types, *map(form_of, self.buffers))


def merge_kernels(
    kernels: Iterable[tuple[int, str, Mapping[str, ir.Operation]]],
) -> dict[str, tuple[ir.Attribute, ...]]:
    """Make arguments of the numbers in which kernels of one group differ; return those of each changed kernel.

    Each kernel comes with its group, and as a name among the functions of its module.
    """
    groups: defaultdict[tuple[int, tuple[object, ...]], list[_Kernel]] = defaultdict(list)
    for group, name, symbols in kernels:
        kernel = _scan(symbols[name], symbols)
        groups[group, kernel.form()].append(kernel)
    numbers: dict[str, tuple[ir.Attribute, ...]] = {}
    for candidates in groups.values():
        for same in _with_equal_constants(candidates):
            numbers |= _merge(same)
    return numbers


def pass_numbers(
    function: ir.Operation, numbers: Mapping[str, tuple[ir.Attribute, ...]], symbols: Mapping[str, ir.Operation]
) -> None:
    """Pass to kernels, in the calls of a function, the numbers that became arguments, and buffers of their types."""
    calls: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.call" and is_prim_func(symbols[_callee(op)]):
            calls.append(op)
        return ir.WalkResult.ADVANCE

    walk(function, visit)
    for call in calls:
        cast_operands(call, symbols[_callee(call)])
        own = numbers.get(_callee(call))
        if own is not None:
            with ir.InsertionPoint(call), call.location:
                added = [create("arith.constant", v.type, value=v) for v in own]
            _call_with(call, added)


def _scan(function: ir.Operation, symbols: Mapping[str, ir.Operation]) -> _Kernel:
    kernel = _Kernel(symbol_name(function))
    others: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        kernel.operations.append(name)
        if name == "arith.constant":
            kernel.constants.append(op)
        elif name == "func.call":
            (kernel.calls if FORK in symbols[_callee(op)].attributes else others).append(op)
        elif name == "scf.for":
            kernel.has_tiles |= LOOP_ANNOTATION in op.attributes and len(op.results) > 0
        if name in VIEWS:
            kernel.buffers.append(op.results[0])
        else:
            kernel.types.extend(hash(result.type) for result in op.results)
        return ir.WalkResult.ADVANCE

    waiting = [function]
    while waiting:
        known = len(kernel.calls)
        kernel.functions.append(waiting.pop())
        kernel.buffers += kernel.functions[-1].regions[0].blocks[0].arguments
        walk(kernel.functions[-1], visit, ir.WalkOrder.PRE_ORDER)
        for call in kernel.calls[known:]:
            fork = symbols[_callee(call)]
            kernel.forks.append(fork)
            region = ir.DictAttr(fork.attributes[FORK])["region"]
            waiting.append(symbols[ir.FlatSymbolRefAttr(region).value])
    own = {symbol_name(each) for each in kernel.functions}
    kernel.calls += [call for call in others if _callee(call) in own]  # of a region, where one thread has all of it
    return kernel


def _with_equal_constants(kernels: Sequence[_Kernel]) -> list[list[_Kernel]]:
    """Divide kernels with the same operations into those that differ in numbers that can be arguments only."""
    if len(kernels) < 2:
        return []
    rows = [kernel.values() for kernel in kernels]
    columns = list(zip(*rows, strict=True))
    varied = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    uses, first = _Uses(kernels[0]), kernels[0].constants
    fixed = [
        i for i in varied
        if not uses.is_cheap_size(first[i]) and not all(uses.is_cheap_scalar(each.constants[i]) for each in kernels)
    ]  # fmt: skip
    offsets: defaultdict[ir.Operation, set[tuple[ir.Attribute, ...]]] = defaultdict(set)
    for i in varied:
        for loop in () if i in fixed else uses.loops_with_offset(first[i]):
            offsets[loop].add(columns[i])
    if max(map(len, offsets.values()), default=0) > MAX_OFFSETS:
        fixed = [i for i in varied if isinstance(first[i].results[0].type, ir.IndexType)]
    groups: defaultdict[tuple[ir.Attribute, ...], list[_Kernel]] = defaultdict(list)
    for kernel, values in zip(kernels, rows, strict=True):
        groups[tuple(values[i] for i in fixed)].append(kernel)
    return [group for group in groups.values() if len(group) > 1]


class _Uses:
    """What the constants of a kernel are used for."""

    def __init__(self, kernel: _Kernel) -> None:
        self.allows_sizes = not kernel.has_tiles and not _may_fuse_over_iterations(kernel)
        self._innermost: dict[ir.Operation, bool] = {}

    def is_cheap_size(self, constant: ir.Operation) -> bool:
        """Return whether a constant is a size in the ends of loops and in addresses."""
        if not self.allows_sizes or not isinstance(constant.results[0].type, ir.IndexType):
            return False
        return all(map(self._is_cheap, constant.results[0].uses))

    def is_cheap_scalar(self, constant: ir.Operation) -> bool:
        """Return whether a constant is a scalar that only arithmetic uses, as it is or in all lanes of a vector."""
        if not isinstance(constant.results[0].type, (ir.FloatType, ir.IntegerType)):
            return False
        users = [use.owner.operation.name for use in _uses_in_lanes(constant.results[0])]
        is_divisor = "arith.divf" in users
        return ARITHMETIC.issuperset(users) and not (is_divisor and _has_exact_inverse(constant.attributes["value"]))

    def _is_cheap(self, use: ir.OpOperand) -> bool:
        name, number = use.owner.operation.name, use.operand_number
        return name in ("func.call", *_OF_ADDRESSES) or (name, number) in (("scf.for", 1), ("memref.view", 1))

    def loops_with_offset(self, constant: ir.Operation) -> list[ir.Operation]:
        """Return the innermost loops in which a constant is a part of addresses."""
        if not isinstance(constant.results[0].type, ir.IndexType):
            return []
        users = (use.owner.operation for use in constant.results[0].uses)
        loops = (self.innermost(user) for user in users if user.name in _OF_ADDRESSES)
        return [loop for loop in loops if loop is not None]

    def innermost(self, op: ir.Operation) -> ir.Operation | None:
        """Return the loop around an operation if it has none below it."""
        around = None if op.parent is None else op.parent.operation
        if around is None or around.name == "func.func":
            return None
        if around not in self._innermost:
            self._innermost[around] = not any(_has_loop(each) for each in around.regions[0].blocks[0].operations)
        return around if self._innermost[around] else None


def _may_fuse_over_iterations(kernel: _Kernel) -> bool:
    """Return whether sums have terms of other iterations, and products that LLVM fuses with sums.

    It chooses what it fuses by what is in one block, and unrolls a loop that has few iterations: results of the same
    loop with any number of iterations may differ in their last bits.
    """
    if _PRODUCTS.isdisjoint(kernel.operations):
        return False
    sums: list[ir.Operation] = []
    stored: set[ir.Value] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in ("arith.addf", "arith.subf"):
            sums.append(op)
        elif op.name in ("memref.store", "vector.store", "vector.maskedstore"):
            stored.update(_viewed(operand) for operand in op.operands if isinstance(operand.type, ir.MemRefType))
        return ir.WalkResult.ADVANCE

    for function in kernel.functions:
        walk(function, visit)
    return any(_is_of_other_block(operand, op, stored) for op in sums for operand in op.operands)


def _viewed(value: ir.Value) -> ir.Value:
    """Return the buffer that a value is a view of, or the value itself."""
    while not isinstance(value.owner, ir.Block) and value.owner.name in VIEWS:
        value = value.owner.operands[0]
    return value


def _is_of_other_block(value: ir.Value, user: ir.Operation, stored: Collection[ir.Value]) -> bool:
    """Return whether a term comes from another block than its sum, or from memory that the kernel writes."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return True
    if len(owner.regions) or any(_viewed(operand) in stored for operand in owner.operands):
        return True
    return owner.name in _PRODUCTS and owner.operation.block != user.block


def _has_loop(op: ir.OpView | ir.Operation) -> bool:
    operation = op.operation
    inner = (each for region in operation.regions for block in region.blocks for each in block.operations)
    return operation.name in ("scf.for", "scf.while") or any(map(_has_loop, inner))


def _uses_in_lanes(value: ir.Value) -> Iterator[ir.OpOperand]:
    """Yield the uses of a scalar, as it is or in all lanes of a vector."""
    for use in value.uses:
        if use.owner.operation.name == "vector.broadcast":
            yield from _uses_in_lanes(use.owner.operation.results[0])
        else:
            yield use


def _has_exact_inverse(value: ir.Attribute) -> bool:
    """Return whether LLVM may multiply by the inverse of a float in place of a division."""
    number = ir.FloatAttr(value).value
    return number == 0 or not math.isfinite(number) or abs(math.frexp(number)[0]) == 0.5


def _merge(kernels: Sequence[_Kernel]) -> dict[str, tuple[ir.Attribute, ...]]:
    """Make arguments of the constants in which kernels differ, equal ones once; return the values of each kernel."""
    columns = list(zip(*(kernel.values() for kernel in kernels), strict=True))
    varied = {i: column for i, column in enumerate(columns) if len(set(column)) > 1}
    arguments = {column: position for position, column in enumerate(dict.fromkeys(varied.values()))}
    if len(arguments) > MAX_SCALARS:
        return {}
    equalize([kernel.functions for kernel in kernels])
    for kernel in kernels:
        _declare_forks(kernel)
    if not arguments:
        return {}
    positions = {i: arguments[column] for i, column in varied.items()}
    for kernel in kernels:
        _add_arguments(kernel, [column[0].type for column in arguments], positions)
    values = zip(*arguments, strict=True)
    return {kernel.name: own for kernel, own in zip(kernels, values, strict=True)}


def _declare_forks(kernel: _Kernel) -> None:
    """Give the declarations of forks the types of what they are called with."""
    forks = {symbol_name(fork): fork for fork in kernel.forks}
    for call in kernel.calls:
        if _callee(call) in forks:
            set_inputs(forks[_callee(call)], [operand.type for operand in call.operands])


def _add_arguments(kernel: _Kernel, types: Sequence[ir.Type], positions: Mapping[int, int]) -> None:
    """Add arguments to the functions of a kernel, and replace the constants at these positions by them."""
    added: dict[str, list[ir.Value]] = {}
    for function in kernel.functions:
        block = function.regions[0].blocks[0]
        added[symbol_name(function)] = [block.add_argument(kind, function.location) for kind in types]
    for function in (*kernel.functions, *kernel.forks):
        kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        function.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get([*kind.inputs, *types], list(kind.results))
        )
        if "arg_attrs" in function.attributes:
            entries = [*ir.ArrayAttr(function.attributes["arg_attrs"]), *[ir.DictAttr.get({})] * len(types)]
            function.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)
    for call in kernel.calls:
        _call_with(call, added[_function_of(call)])
    for i, position in positions.items():
        constant = kernel.constants[i]
        replace_op(constant, [added[_function_of(constant)][position]])


def _function_of(op: ir.Operation) -> str:
    return symbol_name(enclosing(op, "func.func"))


def _call_with(call: ir.Operation, added: Sequence[ir.Value]) -> None:
    """Add operands to a call."""
    types = [result.type for result in call.results]
    with ir.InsertionPoint(call), call.location:
        new = ir.Operation.create(call.name, types, [*call.operands, *added], attributes_of(call))
    replace_op(call, list(new.results))


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value
