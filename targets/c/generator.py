"""The code generator `c`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType
from mirlo.passes.byoc.codegen import Artifact, CodeGenerator, ExternalModule, option
from mirlo.passes.byoc.operators import is_op
from mirlo.passes.figures import Figures
from mirlo.passes.rules import Decline, decline
from mirlo.targets.c.emit import CHECKS, load_emitters
from mirlo.targets.c.emit.derived import derive, elementwise_operators, forget
from mirlo.targets.c.emit.movement import VIEWS
from mirlo.targets.c.source import CSource
from mirlo.targets.c.types import C_TYPES

if TYPE_CHECKING:
    import numpy as np

ONLY_FLOATS = frozenset(("relax.power",))
"""Operators that are implemented for floats only."""


@dataclass(frozen=True)
class CGenerator(CodeGenerator):
    """C source for readers, compiled with the system's compiler."""

    name = "c"
    guarded = False
    figures = Figures(gflops=2.0, gbytes=5.0, call_us=0.2, scales=False)
    compiler: str = option("", "the compiler (default: $CC, or the first of cc, gcc, clang)")
    flags: tuple[str, ...] = option((), "further flags for the compiler")
    source_only: bool = option(False, "write the source, compile nothing")

    def patterns(self) -> Sequence[Any]:
        """Make each supported operator a composite of its own; merging joins them into regions."""
        forget()
        names = sorted({*load_emitters(), *VIEWS, *elementwise_operators()})
        return [(name.removeprefix("relax."), is_op(name).where(accepts, "c.accepts")) for name in names]

    def fingerprint(self) -> str:
        """Return the compiler's path."""
        from mirlo.targets.c.compiler import find_compiler

        return find_compiler(self.compiler)

    def codegen(self, module: ExternalModule) -> Artifact:
        """Generate one source file for all regions and compile it to a library."""
        from mirlo.runtime.loaders import llvm_host
        from mirlo.targets.c.compiler import SUFFIX, compile_shared, find_compiler

        source = CSource(module)
        text = source.text()
        metadata: dict[str, Any] = {"source": text, "header": source.header(), "symbols": source.symbols}
        if self.source_only:
            return Artifact("c", module.names, b"", source.params, metadata)
        data = compile_shared(text, find_compiler(self.compiler), self.flags)
        metadata |= {"triple": llvm_host()["triple"], "suffix": SUFFIX}
        return Artifact("c", module.names, data, source.params, metadata)

    def files(self, artifact: Artifact, params: Mapping[str, np.ndarray]) -> Mapping[str, bytes]:
        """Return the source, its header, and the constants in one file, which `c_bind_params` reads."""
        from mirlo.targets.c.source import weights_blob

        blob, header = weights_blob(artifact.target, {name: params[name] for name in artifact.params})
        found = {f"{artifact.target}.c": artifact.metadata["source"].encode()}
        found[f"{artifact.target}.h"] = (artifact.metadata["header"] + header).encode()
        return {**found, f"{artifact.target}_params.bin": blob} if blob else found


def accepts(op: ir.OpView) -> bool | Decline:
    """Decline an operator that C cannot express on these operands."""
    for value in (*op.operation.operands, *op.operation.results):
        kind = TensorType.from_mlir(value.type)
        if kind is None:
            return decline("C works on tensors", found=str(value.type))
        if kind.dtype.name not in C_TYPES:
            return decline("C has no type for these elements", dtype=kind.dtype.name)
        if any(dim is D.UNKNOWN for dim in kind.shape):
            return decline("a dim that nothing is known about", type=str(kind))
    unknown = sorted(_symbols(op.operation.results) - _symbols(op.operation.operands))
    if unknown:
        return decline("a size of the result is in no shape of an operand", size=unknown[0])
    name = op.operation.name
    if name in ONLY_FLOATS and not TensorType.from_mlir(op.operation.operands[0].type).dtype.is_float:  # type: ignore[union-attr]
        return decline("it is written for floats only")
    if name not in load_emitters() and name not in VIEWS:
        derived = derive(op.operation)
        return decline("its legalization has no C code", why=derived) if isinstance(derived, str) else True
    check = CHECKS.get(name)
    return True if check is None else check(op)


def _symbols(values: ir.OpResultList | ir.OpOperandList) -> set[str]:
    """Return the symbols in the shapes of values, which C reads from the tensors it is called with."""
    shapes = [TensorType.from_mlir(value.type).shape for value in values]  # type: ignore[union-attr]
    return {symbol for shape in shapes for dim in shape for symbol in D.symbols_of(dim)}
