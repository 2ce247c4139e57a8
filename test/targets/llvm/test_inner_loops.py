"""Inner loops of code for processors that the host need not be: no spills, few instructions for each product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from inner_loops import InnerLoop, inner_loops
from onnx import TensorProto, helper, numpy_helper

from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.tools.samples import names, path

CPUS = {
    "znver3": "llvm{cpu=znver3}",
    "alderlake": "llvm{cpu=alderlake}",
    "neoverse-n1": "llvm{triple=aarch64-linux-gnu cpu=neoverse-n1}",
}
LIMITS = {"znver3": (2.7, 0, 0), "alderlake": (2.7, 0, 0), "neoverse-n1": (2.6, 4, 3)}
"""Most instructions for a product, moves between registers and spills of a loop; depthwise tiles have the latter."""
OTHERS = ("winograd_", "attention", "layer_norm", "gelu")
"""Kernels with products that are no k-steps: transforms, exponentials, variances, polynomials."""
MIN_PRODUCTS = 12
"""Smaller loops are those of edges."""


def loops_of(model: Path, cpu: str, least: int = MIN_PRODUCTS) -> dict[str, InnerLoop]:
    """Return the k-steps of a model's convolutions and matrix products, by kernel and label."""
    request = CompileRequest(str(model), target=CPUS[cpu], cache=False).with_fixed_dims()
    kernels = {listing.symbol: listing.content.decode() for listing in kernel_listings(request, "asm", None)}
    return {
        f"{symbol} {loop.label}": loop
        for symbol, text in kernels.items()
        if not any(other in symbol for other in OTHERS)
        for loop in inner_loops(text)
        if loop.products >= least
    }


def require(loops: dict[str, InnerLoop], cpu: str, most: float | None = None) -> None:
    instructions, moves, spills = LIMITS[cpu]
    assert loops
    for name, loop in loops.items():
        assert len(loop.lines) <= (most or instructions) * loop.products, name
        assert len(loop.moves) <= moves and len(loop.spills) <= spills, name


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("sample", names())
def test_samples(sample: str, cpu: str) -> None:
    require(loops_of(path(sample), cpu), cpu)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(196, 512, 72), (49, 2048, 120), (784, 256, 96), (50, 64, 512)])
def test_products_of_int8(rows: int, depth: int, columns: int, cpu: str, tmp_path: Path) -> None:
    """Without VNNI, products are in a register of their own before they are added."""
    constants = {"w": np.ones((depth, columns), np.int8), "u": np.uint8(0), "i": np.int8(0)}
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "u", "i"], ["y"])], "int8",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [rows, columns])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    require(loops_of(tmp_path / "m.onnx", cpu, least=8), cpu, most=3.5)


def test_loops_are_found() -> None:
    """A tile that moves and spills, which the limits refuse."""
    text = """
.LBB0_1:
	xorl	%eax, %eax
.LBB0_2:
	vmovups	32(%rsp), %ymm1
	vfmadd231ps	(%rdi,%rax,4), %ymm1, %ymm9
	vmovaps	%ymm1, %ymm2
	incq	%rax
	jne	.LBB0_2
	incq	%rcx
	jne	.LBB0_1
"""
    (loop,) = inner_loops(text)
    assert (loop.label, loop.products, len(loop.lines)) == (".LBB0_2", 1, 5)
    assert loop.spills == ["vmovups\t32(%rsp), %ymm1"] and loop.moves == ["vmovaps\t%ymm1, %ymm2"]
    with pytest.raises(AssertionError):
        require({"kernel": loop}, "znver3")
