"""Weights in memory, in place of those that are mapped from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.runtime.params import ParameterStore


def test_resident_weights(tmp_path: Path) -> None:
    """Weights of a file are copied next to each other, but not a table of which calls read some rows."""
    random = np.random.default_rng(0)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x0"])]
    nodes += [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(3)]
    arrays = {f"w{i}": random.standard_normal((512, 512), np.float32) / 20 for i in range(3)}
    arrays["table"] = random.standard_normal((1000, 512), np.float32)
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    result = helper.make_tensor_value_info("x3", TensorProto.FLOAT, ["n", 512])
    graph = helper.make_graph(nodes, "chain", [ids], [result], initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    mirlo.compile(proto, cache=False).save(tmp_path / "chain.mirlo")
    mapped = mirlo.load(tmp_path / "chain.mirlo")
    resident = mapped.resident()
    x = random.integers(0, 1000, 5)
    np.testing.assert_array_equal(resident(x), mapped(x))
    names = [spec.name for spec in mapped.artifact.params]
    shared = [name for name in names if np.shares_memory(resident.weight(name), mapped.weight(name))]
    assert shared == ["table"] and len(names) == 4
    copied = [resident.weight(name) for name in names if name != "table"]
    addresses = sorted(array.ctypes.data for array in copied)
    assert addresses[-1] - addresses[0] <= sum(array.nbytes + 128 for array in copied[:-1])


def test_what_is_copied_leaves_memory(tmp_path: Path) -> None:
    """The pages of a mapped file are released once copied."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the system does not say what is in memory")

    def mapped_kib() -> int:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))

    size, count = 4 << 20, 12
    np.ones(size * count, np.uint8).tofile(tmp_path / "weights")
    store = ParameterStore()
    for i in range(count):
        store.add_range(f"w{i}", tmp_path / "weights", i * size, "u8", [size])
    before = mapped_kib()
    assert all(int(store.get(name)[::4096].sum()) == size // 4096 for name in store)
    assert mapped_kib() - before > 0.9 * size * count / 1024
    store.hold(store.names(), with_mapped=True)
    assert mapped_kib() - before < 0.1 * size * count / 1024
    assert all(store.get(name).all() for name in store)
