"""Kernels that differ in scalars only, such as the scales of quantized layers, become one that takes them as arguments.

Such kernels are found before `schedule` lowers them, when their text is short. Scalars become arguments where they are
operands of arithmetic that costs the same with constants: not in limits and addresses.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import attributes_of, enclosing, replace_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.value import create
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.memory.names import FORK
from mirlo.runtime.records import dataclass

MAX_SCALARS = 16
"""The most arguments that a kernel gets: further ones would each cost a store and a load of a call."""
ARITHMETIC = frozenset(
    ("arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.addi", "arith.subi", "math.fma", "vector.fma")
)
"""Operations that cost the same with constants and with other values, but for divisors with exact inverses."""
_VALUES = re.compile(r"%c[\w-]*|arith\.constant \S+ : (?:bf16|f\d+|i\d+)$", re.MULTILINE)
"""Constants that are scalars, and the names that the printer gives the results of constants."""


def similar_kernels(module: ir.OpView) -> dict[str, int]:
    """Return the kernels whose text before `schedule` differs from that of others in scalars only: groups by name."""
    named: defaultdict[str, list[str]] = defaultdict(list)
    for function in module.regions[0].blocks[0].operations:
        if is_prim_func(function) and len(function.operation.regions[0].blocks):
            name = symbol_name(function)
            text = function.operation.get_asm(assume_verified=True, use_local_scope=True)
            named[_VALUES.sub("", text.replace(f"@{name}(", "@(", 1))].append(name)
    groups = (names for names in named.values() if len(names) > 1)
    return {name: i for i, names in enumerate(groups) for name in names}


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

    def values(self) -> list[ir.Attribute]:
        return [op.attributes["value"] for op in self.constants]


def merge_kernels(
    kernels: Iterable[tuple[int, str, Mapping[str, ir.Operation]]],
) -> dict[str, tuple[ir.Attribute, ...]]:
    """Make arguments of the scalars in which kernels of one group differ; return those of each changed kernel.

    Each kernel comes with its group, and as a name among the functions of its module.
    """
    groups: defaultdict[tuple[int, tuple[str, ...]], list[_Kernel]] = defaultdict(list)
    for group, name, symbols in kernels:
        kernel = _scan(symbols[name], symbols)
        groups[group, tuple(kernel.operations)].append(kernel)
    scalars: dict[str, tuple[ir.Attribute, ...]] = {}
    for candidates in groups.values():
        for same in _with_equal_constants(candidates):
            scalars |= _merge(same)
    return scalars


def pass_scalars(function: ir.Operation, scalars: Mapping[str, tuple[ir.Attribute, ...]]) -> None:
    """Pass to kernels, in the calls of a function, the scalars that became arguments."""
    calls: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.call" and _callee(op) in scalars:
            calls.append(op)
        return ir.WalkResult.ADVANCE

    walk(function, visit)
    for call in calls:
        with ir.InsertionPoint(call), call.location:
            added = [create("arith.constant", v.type, value=v) for v in scalars[_callee(call)]]
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
        return ir.WalkResult.ADVANCE

    waiting = [function]
    while waiting:
        known = len(kernel.calls)
        kernel.functions.append(waiting.pop())
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
    """Divide kernels with the same operations into those that differ in scalars that can be arguments only."""
    if len(kernels) < 2:
        return []
    rows = [kernel.values() for kernel in kernels]
    columns = list(zip(*rows, strict=True))
    varied = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    fixed = [i for i in varied if not all(_can_be_argument(kernel.constants[i]) for kernel in kernels)]
    groups: defaultdict[tuple[ir.Attribute, ...], list[_Kernel]] = defaultdict(list)
    for kernel, values in zip(kernels, rows, strict=True):
        groups[tuple(values[i] for i in fixed)].append(kernel)
    return [group for group in groups.values() if len(group) > 1]


def _can_be_argument(constant: ir.Operation) -> bool:
    """Return whether a constant is a scalar that only arithmetic uses, as it is or in all lanes of a vector."""
    kind = constant.results[0].type
    if not isinstance(kind, (ir.FloatType, ir.IntegerType)):
        return False
    users = [use.owner.operation.name for use in _uses_in_lanes(constant.results[0])]
    is_divisor = "arith.divf" in users
    return ARITHMETIC.issuperset(users) and not (is_divisor and _has_exact_inverse(constant.attributes["value"]))


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
    if not 0 < len(arguments) <= MAX_SCALARS:
        return {}
    positions = {i: arguments[column] for i, column in varied.items()}
    for kernel in kernels:
        _add_arguments(kernel, [column[0].type for column in arguments], positions)
    values = zip(*arguments, strict=True)
    return {kernel.name: own for kernel, own in zip(kernels, values, strict=True)}


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
