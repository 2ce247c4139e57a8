"""The code generator `c`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.core.types import TensorType
from mirlo.passes.byoc.codegen import Artifact, CodeGenerator, ExternalModule, option
from mirlo.passes.byoc.operators import is_op
from mirlo.passes.byoc.pattern import PatternTuple
from mirlo.passes.figures import Figures
from mirlo.passes.legalize.legalize import operator_names
from mirlo.passes.memory.symbols import FunctionSymbols
from mirlo.passes.registry import PassError
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.native import FORMAT, NativeCode
from mirlo.runtime.records import dataclass
from mirlo.targets.c.loader import ERRORS

if TYPE_CHECKING:
    import numpy as np

FILE = "regions.c"
"""The source file in libraries."""
VIEWS = ("relax.reshape",)
"""Operators that have no rule: they compute nothing."""


@dataclass(frozen=True)
class CGenerator(CodeGenerator):
    """C source for readers, compiled with the system's compiler."""

    name = "c"
    format = FORMAT
    guarded = False
    figures = Figures(gflops=2.0, gbytes=5.0, call_us=0.2, scales=False)
    compiler: str = option("", "the compiler (default: $CC, or the first of cc, gcc, clang)")
    flags: tuple[str, ...] = option((), "further flags for the compiler")
    cpu: str = option(
        "", "the processor without an operating system that a whole model is for, of an installed package"
    )
    source_only: bool = option(False, "write the source, compile nothing")

    def patterns(self) -> Sequence[PatternTuple]:
        """Make each operator a composite of its own; merging joins them into regions."""
        names = sorted({*operator_names(), *VIEWS})
        return [(name.removeprefix("relax."), is_op(name).where(accepts, "c.accepts")) for name in names]

    def accepts_region(self, region: ir.OpView) -> bool | Decline:
        """Decline a region whose inputs leave a symbol of their dims open, such as `n` and `m` of `f32[n*m]`."""
        try:
            FunctionSymbols.of(region, region.body.blocks[0].arguments, ())
        except PassError as error:
            return decline(error.message.rpartition(": ")[0])
        return True

    def fingerprint(self) -> str:
        """Return the compiler's path."""
        from mirlo.targets.c.compiler import find_compiler

        return find_compiler(self.compiler)

    def codegen(self, module: ExternalModule) -> NativeCode:
        """Generate one source file for all regions, and compile it to a library for Python."""
        from mirlo.targets.c.native import with_host_library
        from mirlo.targets.c.parts import PartsSource

        source = PartsSource(module)
        code = NativeCode(
            functions=source.drivers, sources={FILE: source.linked_text()}, params=source.params, flags=self.flags,
            errors=ERRORS, metadata={"source": source.text(), "header": source.header()},
        )  # fmt: skip
        return code if self.source_only else with_host_library(code, module.names, self.compiler)

    def files(self, artifact: Artifact, params: Mapping[str, np.ndarray]) -> Mapping[str, bytes]:
        """Return the source, its header, and the constants in one file, which `c_bind_params` reads."""
        from mirlo.targets.c.parts import weights_blob

        blob, header = weights_blob(artifact.target, {name: params[name] for name in artifact.params})
        contents = {f"{artifact.target}.c": artifact.metadata["source"].encode()}
        contents[f"{artifact.target}.h"] = (artifact.metadata["header"] + header).encode()
        return {**contents, f"{artifact.target}_params.bin": blob} if blob else contents


def accepts(op: ir.OpView) -> bool | Decline:
    """Decline an operator that C cannot express on these operands."""
    for value in (*op.operation.operands, *op.operation.results):
        kind = TensorType.from_mlir(value.type)
        if kind is None:
            return decline("target 'c' takes tensors only", found=str(value.type))
        if any(dim is D.UNKNOWN for dim in kind.shape):
            return decline("a dim is unknown", type=str(kind))
    unknown = sorted(_symbols(op.operation.results) - _symbols(op.operation.operands))
    if unknown:
        return decline("a dynamic size of the result is not a dim of an operand", size=unknown[0])
    unknown = sorted(_attribute_symbols(op) - _symbols(op.operation.operands))
    if unknown:
        return decline("a dynamic size that an attribute names is not a dim of an operand", size=unknown[0])
    return True


def _attribute_symbols(op: ir.OpView) -> set[str]:
    """Return the symbols in the attributes of an operator: the dims that `dims_tensor` computes."""
    values = op.attribute_values().values() if isinstance(op, DialectOp) else ()
    dims = [dim for value in values if isinstance(value, tuple) for dim in value]
    return {symbol for dim in dims if isinstance(dim, D.SymbolicDim) for symbol in dim.symbols()}


def _symbols(values: ir.OpResultList | ir.OpOperandList) -> set[str]:
    """Return the symbols in the shapes of values, which C reads from the tensors it is called with."""
    shapes = [TensorType.from_mlir(value.type).shape for value in values]  # type: ignore[union-attr]
    return {symbol for shape in shapes for dim in shape for symbol in D.symbols_of(dim)}
