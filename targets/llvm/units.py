"""Division of a planned module into units that are compiled separately: kernels with their helpers, and the rest.

A unit is text, in which the kernel is called `@KERNEL` and its helpers `@KERNEL.1`, `@KERNEL.2`...: kernels that
differ only in names are one unit, and those that differ in numbers, which become arguments. The digest of the text is
part of the symbol that the model calls; that of the text and of everything else that the code depends on is the unit's
key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import PRIM_FUNC, is_prim_func
from mirlo.passes.memory.names import FORK
from mirlo.passes.schedule.loops import ROLLED
from mirlo.runtime.names import c_identifier
from mirlo.runtime.records import dataclass
from mirlo.runtime.sources import code_version
from mirlo.targets.llvm.intrinsics.amx import MATRIX_UNIT
from mirlo.targets.llvm.machine_code import OBJECT, CodeSettings
from mirlo.targets.llvm.merge_kernels import merge_kernels, pass_numbers
from mirlo.targets.llvm.object_code import MAIN, SIZES, EntryInterface

_PLACEHOLDER = "KERNEL"
_TOKENS = re.compile(r'@"((?:[^"\\]|\\.)*)"|"(?:[^"\\]|\\.)*"|@([A-Za-z_$.][\w$.-]*)')
"""Symbol references; strings are matched too, so that nothing in them is taken for one."""
SMALL = 100_000
"""Characters of all kernels below which a model is not divided."""
BUNDLED = 4_000
"""Characters of a kernel that shares an object file: one of its own would take LLVM 1.5 times as long."""
BUNDLE = 16_000
"""Characters of the kernels that are compiled to one object file: few enough for other models to find them cached."""
WHOLE_BUNDLE = 200_000
"""The same, and the most characters of a kernel that shares an object file, where no other process compiles kernels and
none is kept in the cache: the work for an object file is then a hundredth of that for its kernels."""


@dataclass(frozen=True)
class CompilationUnit:
    """The input of one object file."""

    name: str
    """For display: the kernel that it was made from."""
    symbol: str
    key: str
    text: str
    entry: EntryInterface | None = None
    parts: tuple[str, ...] = ()
    """The operations in the text of a kernel."""
    has_helpers: bool = False
    """Whether a kernel has functions of its own, which LLVM may inline."""
    has_tiles: bool = False
    """Whether a kernel has loops with an annotation, those of register tiles."""
    uses_matrix_unit: bool = False
    """Whether a kernel uses the registers of a matrix unit."""


def split(
    module: ir.Module | ir.OpView,
    entry: EntryInterface,
    settings: CodeSettings,
    apart: bool | None = None,
    similar: Mapping[str, int] | None = None,
    shared: bool = True,
) -> list[CompilationUnit]:
    """Return the units of a module, which is changed: the one with `main` first, then each kernel once.

    Small kernels share a unit; with `apart` none do, with `apart=False` all kernels are in one. Kernels of a group
    that `similar` names are one where they differ in numbers only. Units that are not `shared` with other processes and
    models are few.
    """
    operations = _operations(module)
    for operation in operations.values():
        _drop_facts(operation)
    if similar:
        _merge_similar(operations, similar)
    texts = {name: _text(op) for name, op in operations.items()}
    uses = {name: _references(text, operations) for name, text in texts.items()}
    roots = [name for name in (MAIN, SIZES) if name in operations]
    called = dict.fromkeys(name for root in roots for name in uses[root])
    prim = (name for name in called if name not in roots and is_prim_func(operations[name]))
    kernels = [name for name in prim if _has_body(operations[name])]
    # What is not kept is compared with the other units of this module only.
    made_by = _made_by(settings) if shared else str(settings)
    readable = apart is not None or settings.form != OBJECT
    by_name = {name: _kernel_unit(name, operations, texts, uses, made_by, readable) for name in kernels}
    symbols = {name: unit.symbol for name, unit in by_name.items()}
    units: dict[str, CompilationUnit] = {}
    for unit in by_name.values():
        units.setdefault(unit.key, unit)
    rest = _closure(roots, uses, stop=set(kernels))
    is_small = not apart if apart is not None else sum(len(unit.text) for unit in units.values()) < SMALL
    if is_small:
        # Starting and ending LLVM takes as long as a small kernel: a small model is one unit.
        parts = [texts[name] for name in rest if name not in symbols]
        kernel_texts = [part for unit in units.values() for part in unit.parts]
    else:
        parts = [_declaration(operations[name]) if name in symbols else texts[name] for name in rest]
        kernel_texts = []
    # Declarations that several kernels share, and kernels with equal text, appear once.
    text = "\n".join(dict.fromkeys([*(_renamed(part, symbols) for part in parts), *kernel_texts]))
    key = _digest(f"{made_by} {entry}", text)
    uses_matrix_unit = is_small and any(unit.uses_matrix_unit for unit in units.values())
    main = CompilationUnit(MAIN, MAIN, key, text, entry, uses_matrix_unit=uses_matrix_unit)
    if apart:
        return [main, *units.values()]
    return [main] if is_small else [main, *_bundled(list(units.values()), made_by, shared)]


def _merge_similar(operations: Mapping[str, ir.Operation], similar: Mapping[str, int]) -> None:
    """Merge kernels of a group that differ in numbers only, and pass the numbers as arguments."""
    numbers = merge_kernels((similar[name], name, operations) for name in operations if name in similar)
    for operation in operations.values():
        if operation.name == "func.func" and not is_prim_func(operation):
            pass_numbers(operation, numbers, operations)


def kernel_units(modules: Mapping[str, ir.Module], settings: CodeSettings) -> list[CompilationUnit]:
    """Return the units of similar kernels, each the only one of a module, but for those that share a unit with others.

    They are the units that `split` makes of them.
    """
    functions = {name: _operations(module) for name, module in modules.items()}
    for name, operations in functions.items():
        _drop_facts(operations[name])
    if len(functions) > 1:
        merge_kernels((0, name, operations) for name, operations in functions.items())
    units: dict[str, CompilationUnit] = {}
    made_by = _made_by(settings)
    for name, operations in functions.items():
        texts = {symbol: _text(op) for symbol, op in operations.items()}
        uses = {symbol: _references(text, operations) for symbol, text in texts.items()}
        unit = _kernel_unit(name, operations, texts, uses, made_by)
        units.setdefault(unit.key, unit)
    return [unit for unit in units.values() if len(unit.text) > BUNDLED or unit.has_helpers]


def _operations(module: ir.Module | ir.OpView) -> dict[str, ir.Operation]:
    return {symbol_name(op): op.operation for op in module.body.operations}


def _made_by(settings: CodeSettings) -> str:
    return f"{code_version()} {settings}"


def _bundled(units: Sequence[CompilationUnit], settings: str, shared: bool) -> list[CompilationUnit]:
    """Join small kernels, or all that are not `shared`, that follow each other into units of limited size.

    Kernels with register tiles share none with others: LLVM has an option for all functions of an object file.
    """
    longest, size = (BUNDLED, BUNDLE) if shared else (WHOLE_BUNDLE, WHOLE_BUNDLE)
    joined: list[CompilationUnit] = []
    bundles: dict[bool, list[CompilationUnit]] = {True: [], False: []}
    sizes = dict.fromkeys(bundles, 0)
    for unit in units:
        if len(unit.text) > longest or unit.has_helpers:
            joined.append(unit)
            continue
        kind, characters = unit.has_tiles, len(unit.text)
        bundle = bundles[kind]
        if bundle and sizes[kind] + characters > size:
            joined.append(_joined(bundle, settings))
            bundle.clear()
            sizes[kind] = 0
        bundle.append(unit)
        sizes[kind] += characters
    return joined + [_joined(bundle, settings) for bundle in bundles.values() if bundle]


def _joined(units: Sequence[CompilationUnit], settings: str) -> CompilationUnit:
    if len(units) == 1:
        return units[0]
    # What several kernels declare is there once.
    parts = tuple(dict.fromkeys(part for unit in units for part in unit.parts))
    text = "\n".join(parts)
    name, uses_matrix_unit = f"{units[0].name} and {len(units) - 1} more", any(u.uses_matrix_unit for u in units)
    key = _digest(settings, text)
    return CompilationUnit(name, units[0].symbol, key, text, parts=parts, uses_matrix_unit=uses_matrix_unit)


def kernel_symbol(name: str) -> str:
    """Return the symbol of a kernel in LLVM IR and assembly."""
    return f"kernel.{c_identifier(name)}"


def _kernel_unit(
    name: str,
    operations: dict[str, ir.Operation],
    texts: dict[str, str],
    uses: dict[str, list[str]],
    settings: str,
    readable: bool = False,
) -> CompilationUnit:
    members = _closure([name], uses, stop=set())
    own = [member for member in members if _is_defined_here(operations[member])]
    names = {member: f"{_PLACEHOLDER}.{i}" if i else _PLACEHOLDER for i, member in enumerate(own)}
    parts = [_renamed(texts[member], names) for member in members]
    # The kernel is called from another object file.
    parts[0] = parts[0].replace("func.func private ", "func.func ", 1)
    # Code for readers has the kernel's name; object files that models share have that of the content.
    shown = kernel_symbol(name) if readable else ""
    text = "\n".join(parts)
    key = _digest(f"{settings} {shown}", text)
    # Without the level of optimization: code of each is made from one text.
    symbol = shown or f"mirlo_{_digest('', text)[:24]}"
    named = tuple(part.replace(f"@{_PLACEHOLDER}", f"@{symbol}") for part in parts)
    functions = [member for member in own if operations[member].name == "func.func"]
    noted = {attribute for member in functions for attribute in operations[member].attributes}
    return CompilationUnit(
        name, symbol, key, "\n".join(named), parts=named, has_helpers=len(functions) > 1, has_tiles=ROLLED in noted,
        uses_matrix_unit=MATRIX_UNIT in noted,
    )  # fmt: skip


def _closure(roots: list[str], uses: dict[str, list[str]], stop: set[str]) -> list[str]:
    """Return the roots and everything that they refer to, in order, except through those in `stop`."""
    closure: dict[str, None] = {}
    waiting = list(reversed(roots))
    while waiting:
        name = waiting.pop()
        if name in closure:
            continue
        closure[name] = None
        if name not in stop:
            waiting += reversed(uses[name])
    return list(closure)


def _references(text: str, known: dict[str, ir.Operation]) -> list[str]:
    own = _only_symbol(text)
    matches = _TOKENS.finditer(text) if own is None else filter(None, [_TOKENS.match(text, own)])
    names = (match.group(1) or match.group(2) for match in matches)
    return list(dict.fromkeys(name for name in names if name in known))


def _renamed(text: str, names: dict[str, str]) -> str:
    def rename(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        return f"@{names[name]}" if name in names else match.group(0)

    own = _only_symbol(text)
    return _TOKENS.sub(rename, text) if own is None else text[:own] + _TOKENS.sub(rename, text[own:], count=1)


def _only_symbol(text: str) -> int | None:
    """Return where the only symbol is in the text of a function, its own; None where there may be others."""
    return text.index("@") if text.startswith("func.func ") and text.count("@") == 1 else None


def _text(op: ir.Operation) -> str:
    if not len(op.regions):
        # The printer numbers the values of the operation around one that is not isolated: of a global, of the module.
        op = op.clone(ip=False)
    # Without aliases, each operation's text is self-contained; locations do not change the code.
    text: str = op.get_asm(assume_verified=True, use_local_scope=True)
    return text


def _drop_facts(op: ir.Operation) -> None:
    """Drop attributes that passes noted on a kernel, such as its schedule, which do not affect the code."""
    if op.name == "func.func" and is_prim_func(op) and _has_body(op):
        for name in list(op.attributes):
            if name.startswith("tir.") and name not in (PRIM_FUNC, FORK, ROLLED, MATRIX_UNIT):
                del op.attributes[name]


def _declaration(function: ir.Operation) -> str:
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    return f"func.func private @{symbol_name(function)}({', '.join(map(str, kind.inputs))})"


def _is_defined_here(op: ir.Operation) -> bool:
    """Return whether the module defines, or will define, a function that it declares; others are external."""
    return op.name != "func.func" or _has_body(op) or FORK in op.attributes


def _has_body(function: ir.Operation) -> bool:
    return bool(len(function.regions[0].blocks))


def _digest(settings: str, text: str) -> str:
    return hashlib.sha256(f"{settings}\n{text}".encode()).hexdigest()[:40]
