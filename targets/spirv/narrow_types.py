"""Types that a consumer of kernels lacks: arithmetic of 8 and 16 bits becomes that of 32, f64 is refused.

Conversion to SPIR-V loads and stores narrow integers as parts of words, and computes with what it loaded as if it had
32 bits; it refuses operations whose result depends on the upper ones. These are widened here, by the sign that they
need.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.lower.calls import find_all
from mirlo.passes.registry import PassError
from mirlo.targets.spirv.environment import SpirvEnvironment

_SIGNED = frozenset(
    f"arith.{name}" for name in ("divsi", "remsi", "shrsi", "maxsi", "minsi", "sitofp", "index_cast", "floordivsi")
)
_UNSIGNED = frozenset(
    f"arith.{name}"
    for name in (
        *("addi", "subi", "muli", "andi", "ori", "xori", "shli", "shrui", "divui", "remui", "maxui", "minui"),
        *("uitofp", "index_castui"),
    )
) | {"math.ctpop"}
_TO_SIGNED, _TO_UNSIGNED = frozenset({"arith.fptosi"}), frozenset({"arith.fptoui"})
_COMPARISON = "arith.cmpi"


def check_floats(root: ir.Module | ir.OpView, environment: SpirvEnvironment) -> None:
    """Refuse f64 where the environment lacks it: f32 has too few digits for it."""
    if not environment.lacks("Float64"):
        return
    lacking: list[ir.Location] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        arguments = [argument for region in op.regions for block in region.blocks for argument in block.arguments]
        for value in (*op.results, *arguments):
            if str(_element(value.type)) == "f64":
                lacking.append(op.location)
                return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    walk(root, visit)
    for location in lacking:
        raise PassError(f"{environment.api} has no f64: convert the model to f32", location)


def widen_arithmetic(root: ir.Module | ir.OpView) -> None:
    """Widen operations whose result depends on the upper bits of 8- and 16-bit integers to 32 bits."""
    _widen_private(root)
    narrow: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if any(_is_narrow(value) for value in (*op.operands, *op.results)):
            narrow.append(op)
        return ir.WalkResult.ADVANCE

    walk(root, visit)
    for op in narrow:
        _widen(op)


def _widen_private(root: ir.Module | ir.OpView) -> None:
    """Give memory of threads and of their blocks elements of 32 bits, which nothing else reads."""
    for operations in find_all(root, "memref.alloca", "memref.alloc").values():
        for op in operations:
            (memory,) = op.results
            kind = memory.type
            if not _is_narrow_type(kind.element_type):
                continue
            word = _wide(kind.element_type)
            memory.set_type(ir.MemRefType.get(kind.shape, word, layout=kind.layout, memory_space=kind.memory_space))
            for use in list(memory.uses):
                _access_widened(use.owner.operation, kind.element_type)


def _access_widened(op: ir.Operation, narrow: ir.Type) -> None:
    word = _wide(narrow)
    if op.name == "memref.store":
        with ir.InsertionPoint(op), op.location:
            op.operands[0] = create("arith.extui", word, op.operands[0])
    elif op.name == "memref.load":
        loaded = op.results[0]
        loaded.set_type(word)
        uses = [(use.owner.operation, use.operand_number) for use in loaded.uses]
        with ir.InsertionPoint.after(op), op.location:
            value = create("arith.trunci", narrow, loaded)
        for user, number in uses:
            user.operands[number] = value
    else:
        raise PassError(f"'{op.name}' of memory of {narrow} has no form on 32 bits", op.location)


def _element(kind: ir.Type) -> ir.Type:
    return kind.element_type if isinstance(kind, ir.VectorType | ir.MemRefType) else kind


def _is_narrow(value: ir.Value) -> bool:
    return _is_narrow_type(_scalar(value.type))


def _is_narrow_type(kind: ir.Type) -> bool:
    return isinstance(kind, ir.IntegerType) and kind.width in (8, 16)


def _scalar(kind: ir.Type) -> ir.Type:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


def _wide(kind: ir.Type) -> ir.Type:
    word = ir.IntegerType.get_signless(32)
    return ir.VectorType.get(kind.shape, word) if isinstance(kind, ir.VectorType) else word


def _extension(op: ir.Operation) -> str | None:
    """Return the operation that widens the operands of another one; None if its own conversion is right."""
    if op.name == _COMPARISON:
        # Predicates: eq, ne; slt, sle, sgt, sge; ult, ...
        return "arith.extsi" if 2 <= ir.IntegerAttr(op.attributes["predicate"]).value <= 5 else "arith.extui"
    if op.name in _SIGNED or op.name in _TO_SIGNED:
        return "arith.extsi"
    return "arith.extui" if op.name in _UNSIGNED or op.name in _TO_UNSIGNED else None


def _widen(op: ir.Operation) -> None:
    extension = _extension(op)
    if extension is None:
        return
    (result,) = op.results
    with ir.InsertionPoint(op), op.location:
        operands = [create(extension, _wide(v.type), v) if _is_narrow(v) else v for v in op.operands]
        kind = _wide(result.type) if _is_narrow(result) else result.type
        attributes = {name: op.attributes[name] for name in op.attributes if name != "overflowFlags"}
        value: ir.Value = ir.Operation.create(op.name, [kind], operands, attributes).results[0]
        if _is_narrow(result):
            value = create("arith.trunci", result.type, value)
    result.replace_all_uses_with(value)
    op.erase()
