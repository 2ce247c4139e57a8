"""SparseAttention against ONNX Runtime, whose caches before and after a step must be one buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError

HEADS, KV_HEADS, SIZE, BLOCK, BLOCKS = 4, 2, 16, 16, 3
ROOM = BLOCK * BLOCKS
RANDOM = np.random.default_rng(0)
SEEN = np.array([[[1, 0, 0], [1, 1, 0], [0, 1, 1]], [[1, 0, 0], [0, 1, 0], [1, 0, 1]]], bool)
NAMES = ["query", "key", "value", "past_key", "past_value", "rows", "columns", "total", "lengths", "cos", "sin"]
OUTPUTS = ["y", "present_key", "present_value"]


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def csr(seen: np.ndarray) -> dict[str, np.ndarray]:
    """Return where the blocks of each row begin, and the blocks, padded with -1."""
    columns = [np.nonzero(layout)[1] for layout in seen]
    width = max(map(len, columns))
    padded = np.stack([np.pad(found, (0, width - len(found)), constant_values=-1) for found in columns])
    starts = np.pad(np.cumsum(seen.sum(2), 1), ((0, 0), (1, 0)))
    return {"rows": starts.astype(np.int32), "columns": padded.astype(np.int32)}


def inputs(length: int, lengths: list[int]) -> dict[str, np.ndarray]:
    batch = len(lengths)
    given = {"query": floats(batch, length, HEADS * SIZE), "key": floats(batch, length, KV_HEADS * SIZE)}
    given |= {"value": floats(batch, length, KV_HEADS * SIZE)}
    given |= {name: floats(batch, KV_HEADS, ROOM, SIZE) for name in ("past_key", "past_value")}
    return given | {"total": np.array([max(lengths)], np.int32), "lengths": np.array(lengths, np.int32)}


def make(given: dict[str, np.ndarray], constants: dict[str, np.ndarray], **attributes: Any) -> Any:
    listed = [name if name in given or name in constants else "" for name in NAMES]
    while not listed[-1]:
        listed.pop()
    heads = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "sparse_block_size": BLOCK}
    node = helper.make_node("SparseAttention", listed, OUTPUTS, domain="com.microsoft", **heads, **attributes)
    made = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    kept = [helper.make_tensor_value_info(name, 1, given["past_key"].shape) for name in OUTPUTS[1:]]
    outputs = [helper.make_tensor_value_info("y", 1, given["query"].shape), *kept]
    tensors = [
        helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.reshape(-1).tolist())
        for name, array in constants.items()
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph([node], "g", made, outputs, tensors), opset_imports=imports, ir_version=8
    )


def reference(model: Any, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    binding = session.io_binding()
    kept = {name: array.copy() for name, array in given.items()}  # the values below do not own their memory
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in kept.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    for name in ("key", "value"):
        binding.bind_ortvalue_output(f"present_{name}", values[f"past_{name}"])
    session.run_with_iobinding(binding)
    return dict(zip(OUTPUTS, [output.numpy().copy() for output in binding.get_outputs()], strict=True))


@pytest.mark.sample(2)
@pytest.mark.parametrize("layouts, rotary", ((1, 0), (2, 1)))
@pytest.mark.parametrize("length, lengths", ((20, [20]), (1, [40]), (40, [40])))
def test_against_onnxruntime(layouts: int, length: int, lengths: list[int], rotary: int) -> None:
    given, constants = inputs(length, lengths), csr(SEEN[:layouts])
    if rotary:
        angles = np.arange(ROOM)[:, None] / 10 ** np.linspace(0, 2, SIZE // 2)[None]
        constants |= {"cos": np.float32(np.cos(angles)), "sin": np.float32(np.sin(angles))}
    model = make(given, constants, do_rotary=rotary)
    wanted = reference(model, given)
    found = mirlo.compile(model, cache=False, jobs=1).run(given)
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=2e-4, atol=2e-5)
    for name in OUTPUTS[1:]:
        for row, count in enumerate(lengths):
            np.testing.assert_allclose(found[name][row, :, :count], wanted[name][row, :, :count], rtol=1e-4, atol=1e-5)


@pytest.mark.sample(0)
def test_sequences_of_other_lengths() -> None:
    """Against f64: for several sequences, ONNX Runtime's results are beyond the largest values."""
    lengths = [17, 33, 48]
    given = inputs(1, lengths)
    found = mirlo.compile(make(given, csr(SEEN)), cache=False, jobs=1).run(given)
    for row, count in enumerate(lengths):
        cached = {}
        for name in ("key", "value"):
            past = given[f"past_{name}"][row, :, : count - 1].astype(np.float64)
            cached[name] = np.concatenate([past, given[name][row].reshape(KV_HEADS, 1, SIZE)], 1)
        for head in range(HEADS):
            key, value = (cached[name][head * KV_HEADS // HEADS] for name in ("key", "value"))
            scores = key @ given["query"][row, 0, head * SIZE :][:SIZE] / np.sqrt(SIZE)
            seen = SEEN[head % len(SEEN), (count - 1) // BLOCK].repeat(BLOCK)[:count]
            weights = np.exp(scores) * seen
            wanted = weights @ value / weights.sum()
            np.testing.assert_allclose(found["y"][row, 0, head * SIZE :][:SIZE], wanted, rtol=2e-4, atol=2e-5)


def test_errors() -> None:
    constants = csr(SEEN)
    constants["columns"][0, 0] = 3
    with pytest.raises(OnnxImportError, match="row 0 of layout 0 has blocks outside of the 3 that there are"):
        mirlo.compile(make(inputs(1, [5]), constants), cache=False)
    constants = csr(np.concatenate([SEEN, SEEN[:1]]))
    with pytest.raises(OnnxImportError, match="4 heads do not share 3 layouts of blocks evenly"):
        mirlo.compile(make(inputs(1, [5]), constants), cache=False)
