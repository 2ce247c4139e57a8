"""Weights of a few bits in all their forms, against ONNX Runtime."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_models import F32, I64, make_model, node

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.importer import import_model
from mirlo.targets.llvm.options import find_machine

RANDOM = np.random.default_rng(0)
FOUR = {"u4": TensorProto.UINT4, "i4": TensorProto.INT4}


def packed(name: str, kind: str, values: np.ndarray) -> Any:
    """Return a tensor of 4 bits."""
    flat = (values.reshape(-1) & 15).astype(np.uint8)
    flat = np.concatenate([flat, np.zeros(len(flat) % 2, np.uint8)])
    data = (flat[::2] | flat[1::2] << 4).tobytes()
    return helper.make_tensor(name, FOUR[kind], values.shape, data, raw=True)


def build(nodes: list[Any], inputs: dict[str, Any], constants: dict[str, np.ndarray], tensors: list[Any]) -> Any:
    model = make_model(nodes, inputs, ["y"], constants, opset=21)
    model.opset_import.add(domain="com.microsoft", version=1)
    model.graph.initializer.extend(tensors)
    return model


def check(model: Any, tolerance: float, *arrays: np.ndarray) -> Any:
    """Compare with ONNX Runtime, whose products of QDQ models are exact here."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {value.name: array for value, array in zip(session.get_inputs(), arrays, strict=True)}
    (wanted,) = session.run(None, feeds)
    executable = mirlo.compile(model, cache=False, jobs=1)
    found = np.asarray(executable(*arrays))
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    wide = wanted.astype(np.float64)
    assert np.abs(found.astype(np.float64) - wide).max() <= tolerance * np.abs(wide).max()
    return executable


def has_panels(executable: Any) -> bool:
    return any(kernel.symbol.startswith("matmul_u4") for kernel in executable.artifact.kernels)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind, by_column, zeros", [*product(FOUR, (True, False), (True, False))])
@pytest.mark.parametrize("columns, rows", ((48, 64), (33, 128)))
def test_dequantized_weights(kind: str, by_column: bool, zeros: bool, columns: int, rows: int) -> None:
    block, axis = 32, 1 if by_column else 0
    shape = (columns, rows) if by_column else (rows, columns)
    of_scales = tuple(size // block if i == axis else size for i, size in enumerate(shape))
    low = 0 if kind == "u4" else -8
    tensors = [packed("w", kind, RANDOM.integers(low, low + 16, shape))]
    tensors += [packed("z", kind, RANDOM.integers(low, low + 16, of_scales))] if zeros else []
    scales = RANDOM.uniform(0.01, 0.02, of_scales).astype(np.float32)
    nodes = [node("DequantizeLinear", "w s z" if zeros else "w s", "r", axis=axis, block_size=block)]
    nodes += [node("Transpose", "r", "t", perm=[1, 0])] if by_column else []
    nodes += [node("MatMul", "x t" if by_column else "x r", "y")]
    model = build(nodes, {"x": (F32, ["m", rows])}, {"s": scales}, tensors)
    for count in (1, 5):
        executable = check(model, 1e-5, RANDOM.standard_normal((count, rows)).astype(np.float32))
    assert has_panels(executable)


def test_packed_tensors_are_not_expanded() -> None:
    tensors = [packed("w", "u4", RANDOM.integers(0, 16, (512, 512)))]
    nodes = [node("DequantizeLinear", "w s", "r", axis=0, block_size=32), node("MatMul", "x r", "y")]
    model = build(nodes, {"x": (F32, ["m", 512])}, {"s": np.ones((16, 512), np.float32)}, tensors)
    module, store = import_model(model)
    assert store.nbytes == 512 * 512 // 2 + 16 * 512 * 4
    assert "relax.unpack" in str(module)


GATHERED = [
    ("u4", 4, False),
    ("i4", 4, False),
    ("u4", 4, True),
    ("u8", 8, False),
    ("u8", 4, False),
    ("u8", 4, True),
    ("u8", 2, False),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind, bits, zeros", GATHERED)
@pytest.mark.parametrize("block", (16, 32))
def test_gathered_tables(kind: str, bits: int, zeros: bool, block: int) -> None:
    rows, columns = 40, 64
    blocks = columns // block
    tensors, constants = [], {"s": RANDOM.uniform(0.01, 0.02, (rows, blocks)).astype(np.float32)}
    if kind == "u8":
        constants["w"] = RANDOM.integers(0, 256, (rows, columns * bits // 8)).astype(np.uint8)
        if zeros:
            constants["z"] = RANDOM.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8)
    else:
        tensors.append(packed("w", kind, RANDOM.integers(0, 16, (rows, columns))))
        if zeros:
            tensors.append(packed("z", kind, RANDOM.integers(0, 16, (rows, blocks))))
    names = "w i s z" if zeros else "w i s"
    attributes = {"block_size": block, "bits": bits, "gather_axis": 0, "quantize_axis": 1}
    made = node("GatherBlockQuantized", names, "y", domain="com.microsoft", **attributes)
    model = build([made], {"i": (I64, ["b", "n"])}, constants, tensors)
    check(model, 1e-6, RANDOM.integers(0, rows, (2, 3)))


def test_table_shared_with_the_last_product() -> None:
    vocabulary, hidden, block = 64, 96, 32
    weights = RANDOM.integers(0, 256, (vocabulary, hidden // block, block // 2)).astype(np.uint8)
    scales = RANDOM.uniform(0.01, 0.02, (vocabulary, hidden // block)).astype(np.float32)
    nodes = [
        node("Reshape", "w shape", "table"),
        node("GatherBlockQuantized", "table i s", "x", domain="com.microsoft", block_size=block, bits=4),
        node("MatMulNBits", "x w s", "y", domain="com.microsoft", K=hidden, N=vocabulary, bits=4, block_size=block),
    ]
    constants = {"w": weights, "s": scales, "shape": np.array([vocabulary, hidden // 2])}
    check(build(nodes, {"i": (I64, ["b", "n"])}, constants, []), 1e-5, RANDOM.integers(0, vocabulary, (1, 3)))


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", (0, 1))
def test_bitsandbytes_weights_stay_packed(kind: int) -> None:
    columns, rows, block = 40, 256, 64
    constants = {
        "w": RANDOM.integers(0, 256, columns * rows // 2).astype(np.uint8),
        "s": RANDOM.uniform(0.5, 1, columns * rows // block).astype(np.float32),
    }
    made = node(
        "MatMulBnb4", "x w s", "y", domain="com.microsoft", K=rows, N=columns, block_size=block, quant_type=kind
    )
    model = build([made], {"x": (F32, ["m", rows])}, constants, [])
    for count in (1, 3, 20):
        check(model, 1e-5, RANDOM.standard_normal((count, rows)).astype(np.float32))
    if find_machine(None).avx512:  # others dequantize in memory
        stored = [spec.shape for spec in mirlo.compile(model, cache=False, jobs=1).artifact.params]
        assert stored == [(64 * rows // 2 + 64 * (rows // block) * 4,)]  # whole pairs of panels, and f32 scales


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind, rows, block", [*product((0, 1), (64, 80), (16, 64))])
def test_bitsandbytes(kind: int, rows: int, block: int) -> None:
    columns = 24
    blocks = -(-columns * rows // block)
    constants = {
        "w": RANDOM.integers(0, 256, columns * rows // 2).astype(np.uint8),
        "s": RANDOM.uniform(0.5, 1, blocks).astype(np.float32),
    }
    made = node(
        "MatMulBnb4", "x w s", "y", domain="com.microsoft", K=rows, N=columns, block_size=block, quant_type=kind
    )
    check(
        build([made], {"x": (F32, ["m", rows])}, constants, []),
        1e-5,
        RANDOM.standard_normal((3, rows)).astype(np.float32),
    )


@pytest.mark.sample(16)
@pytest.mark.parametrize("bits, block, level, zeros", [*product((2, 4, 8), (32, 128), (0, 4), (False, True))])
def test_products(bits: int, block: int, level: int, zeros: bool) -> None:
    columns, rows = 40, 256
    blocks = rows // block
    constants = {
        "w": RANDOM.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "s": RANDOM.uniform(0.01, 0.02, (columns, blocks)).astype(np.float32),
        "b": RANDOM.standard_normal(columns).astype(np.float32),
    }
    if zeros:
        constants["z"] = RANDOM.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(np.uint8)
    names = f"x w s {'z' if zeros else '_'} _ b"
    made = node(
        "MatMulNBits", names, "y", domain="com.microsoft", K=rows, N=columns, bits=bits, block_size=block,
        accuracy_level=level,
    )  # fmt: skip
    model = build([made], {"x": (F32, ["m", rows])}, constants, [])
    check(model, 2e-2 if level == 4 else 1e-5, RANDOM.standard_normal((3, rows)).astype(np.float32))


@pytest.mark.parametrize("level, activations", [(0, None), (1, None), (2, None), (3, "bf16"), (4, "i8")])
def test_levels_of_accuracy(level: int, activations: str | None) -> None:
    assert f'activations = "{activations}"' in imported_product(level) or activations is None
    assert activations or "activations" not in imported_product(level)


@pytest.mark.parametrize("level", [-1, 5])
def test_levels_that_there_are_not(level: int) -> None:
    with pytest.raises(OnnxImportError, match=f"attribute 'accuracy_level' must be 0 to 4, got {level}"):
        imported_product(level)


def imported_product(level: int) -> str:
    """Return the text of a product with 4 bits whose activations may be represented as a level says."""
    constants = {"w": np.zeros((8, 1, 16), np.uint8), "s": np.ones((8, 1), np.float32)}
    product_node = node(
        "MatMulNBits", "x w s", "y", domain="com.microsoft", K=32, N=8, bits=4, block_size=32, accuracy_level=level
    )
    return str(import_model(build([product_node], {"x": (F32, [2, 32])}, constants, []))[0])
