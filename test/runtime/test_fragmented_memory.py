"""Models load into processes whose address space has only small holes near each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import mirlo

LOAD = """
import ctypes, os, sys
import numpy as np
import mirlo

path, x = sys.argv[1], np.ones((8, 33), np.float32)
wanted = mirlo.load(path)(x)
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_uint64, [ctypes.c_uint64] * 2 + [ctypes.c_int] * 3 + [ctypes.c_int64]
libc.munmap.argtypes = [ctypes.c_uint64] * 2
PRIVATE_ANONYMOUS_NORESERVE = 0x4022

def take(size):
    return libc.mmap(0, size, 0, PRIVATE_ANONYMOUS_NORESERVE, -1, 0)

def load(pages):
    block, wall, size = take(1 << 20), take(8 << 30), 1 << 36
    if block < wall:
        return 2
    while size >= 4096:  # all that is free above the 8 GiB
        at = take(size)
        if at < wall:
            libc.munmap(at, size)
            size >>= 1
    libc.munmap(block + 65536, pages * 4096)
    return int(not np.array_equal(mirlo.load(path)(x), wanted))

tried = 0
for pages in range(1, 33):
    child = os.fork()
    if not child:
        os._exit(load(pages))
    ended = os.waitpid(child, 0)[1]
    assert ended in (0, 512), f"with {pages} free pages: {ended}"
    tried += not ended
print(tried)
"""
"""Loads a model where a few pages are free, and others are 8 GiB away."""


@pytest.mark.skipif(sys.platform != "linux", reason="maps memory as Linux does")
def test_code_and_data_are_not_apart(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((33, 20)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Softmax", ["b"], ["y"]),
    ]  # fmt: skip
    x, y = (helper.make_tensor_value_info(name, 1, ["n", count]) for name, count in (("x", 33), ("y", 20)))
    graph = helper.make_graph(nodes, "g", [x], [y], [onnx.numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = tmp_path / "model.mirlo"
    mirlo.compile(model, threads=1).save(path)
    done = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]
    assert int(done.stdout) > 16
