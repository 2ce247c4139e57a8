"""The code generator: regions become a plan of products, which the loader hands to the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.passes.byoc.codegen import Artifact, CodeGenerator, ExternalModule, option
from mirlo.passes.byoc.view import ExternalFunction, Step, Value
from mirlo.passes.figures import Figures
from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.targets.cublas.plan import Function, Product, write

FORMAT = "cublaslt"


@dataclass(frozen=True)
class CuBlas(CodeGenerator):
    """Matrix products, a bias and an activation with each."""

    name = "cublas"
    guarded = False
    # Those of the library's f32 on a recent GPU, beside those of target nvvm; neither is measured here.
    figures = Figures(gflops=40000.0, gbytes=3000.0, call_us=4.0, scales=False)
    tf32: bool = option(False, "round factors of f32 to 10 bits of fraction, for the matrix units")

    def patterns(self) -> Sequence[Any]:
        """In the order in which they are tried."""
        from mirlo.targets.cublas.patterns import patterns

        return patterns()

    def codegen(self, module: ExternalModule) -> Artifact:
        """A plan of all regions."""
        functions = [_Planner(function).plan() for function in module.functions]
        params = tuple(dict.fromkeys(name for function in functions for name in function.constants.values()))
        return Artifact(FORMAT, module.names, write(functions), params, {"device": "cuda", "tf32": self.tf32})


class _Planner:
    """Numbers the values of one region."""

    def __init__(self, function: ExternalFunction) -> None:
        self.function = function
        ends = (*function.inputs, *function.outputs)
        self.numbers: dict[Value, int] = {value: number for number, value in enumerate(ends)}
        self.next = len(ends)
        self.constants: dict[str, str] = {}
        self.sizes: dict[str, int] = {}

    def plan(self) -> Function:
        products = tuple(self._product(step) for step in self.function.steps)
        ends = len(self.function.inputs), len(self.function.outputs)
        return Function(self.function.name, *ends, self.constants, self.sizes, products)

    def _number(self, value: Value) -> int:
        if value not in self.numbers:
            self.numbers[value] = self.next
            if value.constant is not None:
                self.constants[str(self.next)] = value.constant
            else:
                count = ELEMENT_TYPES[value.type.dtype.name].bytes
                for dim in value.type.static_shape:
                    count *= dim
                self.sizes[str(self.next)] = count
            self.next += 1
        return self.numbers[value]

    def _product(self, step: Step) -> Product:
        matmul, *rest = step.nodes
        left, right = matmul["lhs"], matmul["rhs"]
        added = next((node for node in rest if node.op == "relax.add"), None)
        bias = None
        if added is not None:
            bias = next(value for value in added.inputs if value is not matmul.output)
        activation = next((n.op.removeprefix("relax.") for n in rest if n.op != "relax.add"), "")
        *batches, rows, columns = matmul.output.type.static_shape
        batch = 1
        for dim in batches:
            batch *= dim
        depth = left.type.static_shape[-2 if matmul["transpose_lhs"] else -1]
        if right.type.rank == 2 and not matmul["transpose_lhs"]:
            rows, batch = rows * batch, 1  # one matrix with more rows
        return Product(
            self._number(left), self._number(right), self._number(step.nodes[-1].output), rows, columns, depth,
            left.type.dtype.name, None if bias is None else self._number(bias), activation, batch,
            matmul["transpose_lhs"], matmul["transpose_rhs"],
        )  # fmt: skip
