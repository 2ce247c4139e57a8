"""The function of a product: a kernel for each number of rows, which the call selects if their number is dynamic."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import Buffer, LoopBuilder, LoopFunction
from mirlo.dialects.tir.view import OPERATOR, describe_operator
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits.code import Dots
from mirlo.targets.llvm.nbits.description import NAME, description
from mirlo.targets.llvm.nbits.float_rows import FloatKernel
from mirlo.targets.llvm.nbits.invariant_rows import InvariantFloatKernel
from mirlo.targets.llvm.nbits.product import Product
from mirlo.targets.llvm.nbits.quantized_rows import QuantizedKernel
from mirlo.targets.llvm.nbits.tiled_rows import QuantizedTiles


def product_function(product: Product, machine: Machine, loc: ir.Location) -> ir.OpView:
    """Build the kernel, in buffer form."""
    layout = product.layout
    kind = "codebook" if layout.codebook else layout.floats or f"u{layout.bits}"
    name = f"matmul_{kind}_{f'i8x{product.digits}' if product.digits else 'f32'}"
    function = LoopFunction(name, [*product.activations, product.panels], [product.result], loc)

    def body(loops: LoopBuilder, *buffers: Buffer) -> None:
        *activations, panels, out = [buffer.value for buffer in buffers]
        quantized = QuantizedTiles if Dots(machine).is_signed else QuantizedKernel
        of_floats = InvariantFloatKernel if machine.invariant else FloatKernel
        make = quantized if product.digits else of_floats
        make(product, machine, activations, panels, out, loops).emit()

    built = function.build(body)
    operands = [each.to_mlir() for each in (*product.activations, product.panels)]
    with loc:
        described = describe_operator(NAME, description(product), operands, [product.result.to_mlir()])
        built.operation.attributes[OPERATOR] = described
    return built
