"""Weights in memory, in place of those that are mapped from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.runtime.params import ParameterStore


def test_resident_weights(tmp_path: Path) -> None:
    """Weights of a file are copied next to each other; the file may go, and results stay."""
    random = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(3)]
    arrays = [random.standard_normal((512, 512), np.float32) / 20 for _ in nodes]
    initializers = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(arrays)]
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 512]) for name in ("x0", "x3")]
    graph = helper.make_graph(nodes, "chain", kinds[:1], kinds[1:], initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    mirlo.compile(proto, cache=False).save(tmp_path / "chain.mirlo")
    mapped = mirlo.load(tmp_path / "chain.mirlo")
    resident = mapped.resident()
    x = random.standard_normal((3, 512), np.float32)
    np.testing.assert_array_equal(resident(x), mapped(x))
    names = [spec.name for spec in mapped.artifact.params]
    addresses = sorted(resident.weight(name).ctypes.data for name in names)
    assert addresses[-1] - addresses[0] <= sum(resident.weight(name).nbytes + 128 for name in names[:-1])
    assert not any(np.shares_memory(resident.weight(name), mapped.weight(name)) for name in names)


def test_what_is_copied_leaves_memory(tmp_path: Path) -> None:
    """The pages of a mapped file do not stay beside their copies."""
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
