"""Inner loops of code for processors that the host need not be: no spills, few instructions for each product."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from inner_loops import InnerLoop, inner_loops
from onnx import TensorProto, helper, numpy_helper
from packed_products import Weights
from weightless import weightless_model

from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.tools.samples import names

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


def require(loops: dict[str, InnerLoop], cpu: str, most: float | None = None, beside: int = 0) -> None:
    """Require at most this many instructions for a product, and beside them, and few moves and spills."""
    instructions, moves, spills = LIMITS[cpu]
    assert loops
    for name, loop in loops.items():
        assert len(loop.lines) <= (most or instructions) * loop.products + beside, name
        assert len(loop.moves) <= moves and len(loop.spills) <= spills, name


@pytest.mark.sample(5)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("sample", names())
def test_samples(sample: str, cpu: str, tmp_path: Path) -> None:
    loops = loops_of(weightless_model(sample, tmp_path), cpu)
    if (sample, cpu) == ("mobilenetv2", "alderlake"):
        (spilling,) = (name for name, loop in loops.items() if loop.spills)
        assert spilling.startswith("kernel.fused_conv_33_clip_34 ")  # depthwise, of stride 2: a vector and its use
        assert len(loops.pop(spilling).spills) <= 2
    require(loops, cpu)


def int8_products(model: Any) -> Any:
    """Return the different convolutions and matrix products with constants of a model, each alone and in int8."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {value.name: dims_of(value) for value in (*inferred.input, *inferred.value_info, *inferred.output)}
    weights = {tensor.name: tuple(tensor.dims) for tensor in inferred.initializer}
    nodes, values, constants = (
        [],
        [],
        [numpy_helper.from_array(np.uint8(0), "u"), numpy_helper.from_array(np.int8(0), "i")],
    )
    seen = set()
    for node in inferred.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        shape = weights.get(node.input[1]) if node.op_type in ("Conv", "Gemm", "MatMul") else None
        key = (node.op_type, shapes.get(node.input[0]), shape, str(attributes))
        if shape is None or len(shape) < 2 or not key[1] or key in seen:
            continue
        seen.add(key)
        x, w, y = (f"{letter}{len(seen)}" for letter in "xwy")
        shape = shape[::-1] if attributes.pop("transB", 0) else shape
        shape = shape if node.op_type == "Conv" else (shape[0], min(shape[1], MAX_COLUMNS))
        given = attributes if node.op_type == "Conv" else {}
        nodes.append(helper.make_node(INTEGER.get(node.op_type, "MatMulInteger"), [x, w, "u", "i"], [y], **given))
        constants.append(numpy_helper.from_array(np.full(shape, 127, np.int8), w))
        values.append((helper.make_tensor_value_info(x, TensorProto.UINT8, key[1]), y))
    outputs = [helper.make_tensor_value_info(y, TensorProto.INT32, None) for _, y in values]
    graph = helper.make_graph(nodes, "int8", [x for x, _ in values], outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made)


def dims_of(value: Any) -> tuple[int, ...]:
    """Return the dims of a value, 1 for dynamic ones."""
    return tuple(dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim)


MAX_COLUMNS = 4096
"""Columns of a vocabulary that are as good as all."""
INTEGER = {"Conv": "ConvInteger"}


@pytest.mark.sample(15)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("sample", names())
def test_samples_in_int8(sample: str, cpu: str, tmp_path: Path) -> None:
    """Some loops of four rows also prefetch, by four instructions.

    The first convolutions have three channels. In a group of four, each row takes five instructions: three bytes are
    loaded, two of them inserted, one moved and all spread; with 14 rows of one vector that is 6.4 for a product. In
    groups of two, the columns of every other one have a mask: 4.5 for a product in the tile of the last two rows.
    """
    graph = onnx.load(weightless_model(sample, tmp_path), load_external_data=False)
    onnx.save(int8_products(graph), tmp_path / "m.onnx")
    loops = loops_of(tmp_path / "m.onnx", cpu, least=8)
    first = {name: loop for name, loop in loops.items() if name.startswith("kernel.conv ")}
    if first:
        require(first, cpu, most=6.5)
    require({name: loop for name, loop in loops.items() if name not in first}, cpu, most=3.9)


@pytest.mark.sample(8)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("weight", [1, 127])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(196, 512, 72), (49, 2048, 120), (784, 256, 96), (50, 64, 512)])
def test_products_of_int8(rows: int, depth: int, columns: int, weight: int, cpu: str, tmp_path: Path) -> None:
    """Without VNNI, products are in a register of their own before they are added: of small weights in pairs."""
    constants = {"w": np.full((depth, columns), weight, np.int8), "u": np.uint8(0), "i": np.int8(0)}
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "u", "i"], ["y"])], "int8",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [rows, columns])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    # Three for a product, and once a load, a prefetch, two counters, a comparison and a branch.
    require(loops_of(tmp_path / "m.onnx", cpu, least=8), cpu, most=3, beside=6)


def product_loops(rows: int, depth: int, columns: int, cpu: str, folder: Path) -> dict[str, InnerLoop]:
    """Return the loops of a product of f32 with constants."""
    weights = numpy_helper.from_array(np.full((depth, columns), 0.5, np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, d]) for n, d in (("x", depth), ("y", columns))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "f32", ends[:1], ends[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    return loops_of(folder / "m.onnx", cpu)


@pytest.mark.parametrize("cpu", ["znver3", "alderlake"])
@pytest.mark.parametrize("depth", [768, 771])
def test_products_of_sixteen_registers(depth: int, cpu: str, tmp_path: Path) -> None:
    """Whole tiles have four k-steps in an iteration, and one prefetch for a cache line; a rest has its own loop."""
    loops = product_loops(96, depth, 768, cpu, tmp_path)
    name, widest = max(loops.items(), key=lambda each: each[1].products)
    require({name: widest}, cpu, most=1.9)
    require(loops, cpu, most=1.9 if depth % 4 == 0 else 2.1)
    assert widest.products == 48
    assert sum("prefetch" in line for line in widest.lines) == 1


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


@pytest.mark.parametrize("cpu", ("znver3", "neoverse-n1"))
def test_packed_weights_of_many_rows(cpu: str, tmp_path: Path) -> None:
    """The sums of tiles stay in registers; LLVM may move a column to the stack."""
    onnx.save(Weights(64, 256, 8, 32, "").model(shape=(65,)), tmp_path / "m.onnx")
    loops = {name: loop for name, loop in loops_of(tmp_path / "m.onnx", cpu).items() if "matmul_u8_f32" in name}
    assert loops
    for name, loop in loops.items():
        assert len(loop.moves) <= 4 and len(loop.spills) <= 2, name
