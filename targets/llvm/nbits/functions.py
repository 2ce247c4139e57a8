"""The function of a product: a kernel for each number of rows, which the call selects if their number is dynamic."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.tir.compute import Buffer, LoopBuilder, LoopFunction
from mirlo.dialects.tir.view import OPERATOR, describe_operator
from mirlo.passes.schedule.buffers import SCHEDULE, ScheduleFacts, schedule_attribute
from mirlo.passes.schedule.primitives.vector_memory import FunctionConstants
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits.code import Dots
from mirlo.targets.llvm.nbits.description import NAME, description
from mirlo.targets.llvm.nbits.float_rows import FloatKernel
from mirlo.targets.llvm.nbits.invariant_rows import InvariantFloatKernel
from mirlo.targets.llvm.nbits.kernels import ProductBuffers
from mirlo.targets.llvm.nbits.product import Product
from mirlo.targets.llvm.nbits.quantized_rows import QuantizedKernel
from mirlo.targets.llvm.nbits.tiled_rows import QuantizedTiles


def product_function(product: Product, machine: Machine, loc: ir.Location) -> ir.OpView:
    """Build the kernel, in buffer form."""
    layout = product.layout
    kind = "codebook" if layout.codebook else layout.floats or f"u{layout.bits}"
    name = f"matmul_{kind}_{f'i8x{product.digits}' if product.digits else 'f32'}"
    function = LoopFunction(name, [*product.activations, product.panels], [product.result], loc)

    schedules: list[ScheduleFacts] = []

    def scratch(shape: Sequence[int], element: ir.Type) -> ir.Value:
        kind = dtype_of_mlir(element)
        assert kind is not None
        return function.alloca(tuple(shape), kind, "local").value

    def body(_: LoopBuilder, *buffers: Buffer) -> None:
        *activations, panels, out = [buffer.value for buffer in buffers]
        constants = FunctionConstants(function.entry, loc, scratch)
        quantized = QuantizedTiles if Dots(machine).is_signed else QuantizedKernel
        of_floats = InvariantFloatKernel if machine.invariant else FloatKernel
        make = quantized if product.digits else of_floats
        kernel = make(product, machine, ProductBuffers(activations, panels, out), constants)
        kernel.emit()
        schedules.append(kernel.schedule())

    built = function.build(body)
    operands = [each.to_mlir() for each in (*product.activations, product.panels)]
    with loc:
        described = describe_operator(NAME, description(product), operands, [product.result.to_mlir()])
        built.operation.attributes[OPERATOR] = described
        built.operation.attributes[SCHEDULE] = schedule_attribute(schedules[0])
    return built
