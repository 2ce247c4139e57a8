"""Hostile headers: compiled models whose header has one field changed, and a checksum that is right again.

Half of the seeds make the seal right again too, as whoever writes the code could: such a file is opened and listed,
never run. The others are loaded and run.
"""

from __future__ import annotations

import json
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mirlo.driver.compile import compile as compile_model
from mirlo.runtime import artifact as artifacts
from mirlo.runtime import container
from mirlo.runtime.artifact import MODEL_FILE, seal, split_seal
from mirlo.runtime.files import write_regular
from mirlo.runtime.load import load
from mirlo.tools.cli.info import compiled_lines
from mirlo.tools.fuzz.verdict import ACCEPTED, STATES_OF_READERS, SeedVerdict, verdict_of_error

if TYPE_CHECKING:
    import onnx

    from mirlo.runtime.fields import Json

STATES = {**STATES_OF_READERS, ACCEPTED: "the file loads: what was changed does not matter to it"}
_ODD: tuple[Json, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 4096, 2**31, 2**32 + 1, 2**62, 2**63 - 1, 2**64, -(2**63), 1e300, 0.5, "", "x",
    "\ud800", "\x1b[2J", "a\nb", "\0", "a" * 5000, "f32", "f64", "u2", "llvm", "program", "specialized", "onnxruntime",
    [], {}, [[]], [{}], [None], {"": None}, [2**62], ["n", "m"], [1] * 65, [-1],
)  # fmt: skip


@cache
def _files() -> dict[str, bytes]:
    """Return compiled models of each kind, as bytes: of fixed and dynamic dims, a program, one with parts of others."""

    def model(dim: int | str, nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
        weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [dim, 4])
        graph = helper.make_graph(nodes, "g", [x], outputs, [weight])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    dense = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    y = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    late = [*dense, helper.make_node("NonZero", ["y"], ["i"])]
    indices = [helper.make_tensor_value_info("i", TensorProto.INT64, None)]
    listed = [*dense, helper.make_node("SequenceConstruct", ["h", "y"], ["s"])]
    held = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    executables = {
        "static": compile_model(model(2, dense, y), jobs=1, cache=False),
        "dynamic": compile_model(model("n", dense, y), jobs=1, cache=False),
        "late": compile_model(model("n", late, indices), jobs=1, cache=False),
        "program": compile_model(model("n", listed, [held]), jobs=1, cache=False),
        "specialized": compile_model(model("n", dense, y), jobs=1, cache=False, specialize=[{"n": 2}]),
        "external": compile_model(model(2, dense, y), "c,llvm", jobs=1, cache=False),
    }
    with tempfile.TemporaryDirectory(prefix="mirlo-fuzz-") as folder:
        files = {}
        for name, executable in executables.items():
            path = Path(folder) / f"{name}.mirlo"
            executable.save(path)
            files[name] = path.read_bytes()
        return files


def hostile_file(seed: int) -> tuple[bytes, str, bool]:
    """Return the bytes of a seed, which field was changed to what, and whether the seal is right again."""
    rng = np.random.default_rng([seed, 3])
    kinds = list(_files())
    kind = kinds[int(rng.integers(len(kinds)))]
    data = _files()[kind]
    header_bytes, code_bytes = struct.unpack_from("<QQ", data, 16)
    header = json.loads(data[64 : 64 + header_bytes])
    paths = [path for path in _json_paths(header) if path]
    path = paths[int(rng.integers(len(paths)))]
    holder = header
    for key in path[:-1]:
        holder = holder[key]
    value = _changed(holder[path[-1]], rng)
    what = f"{kind} {'.'.join(map(str, path))} = {value!a:.60}"
    if rng.random() < 0.1:
        del holder[path[-1]]
        what = f"{kind} {'.'.join(map(str, path))} removed"
    else:
        holder[path[-1]] = value
    resealed = bool(rng.random() < 0.5)
    return _signed(data, header, header_bytes, code_bytes, resealed), what, resealed


def _changed(old: Json, rng: np.random.Generator) -> Json:
    if isinstance(old, int) and not isinstance(old, bool) and rng.random() < 0.5:
        return old + int(rng.integers(-3, 4)) if rng.random() < 0.5 else old * int(rng.integers(0, 1 << 20))
    return _ODD[int(rng.integers(len(_ODD)))]


def _json_paths(value: Json, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, item in items for p in _json_paths(item, (*path, key)))]


def _signed(data: bytes, header: object, header_bytes: int, code_bytes: int, resealed: bool) -> bytes:
    """Return the file with another header; sizes and checksum fit, and the signature if one is wanted and possible."""
    code_start = container.aligned(64 + header_bytes)
    code = data[code_start : code_start + code_bytes]
    tensors = data[container.aligned(code_start + code_bytes) :]
    text = json.dumps(header).encode()
    if resealed:
        try:
            rows = [(row["name"], row["dtype"], tuple(row["shape"])) for row in json.loads(text)["tensors"]]
            code = split_seal(code)[0] + seal(json.loads(text), rows)
        except (KeyError, TypeError):
            pass
    start = container.aligned(64 + len(text))
    data_start = container.aligned(start + len(code))
    prefix = container._PREFIX.pack(
        container._MAGIC, MODEL_FILE.tag, MODEL_FILE.version, len(text), len(code), data_start + len(tensors)
    )
    head = (prefix + container._digest(prefix, text, code)).ljust(64, b"\0") + text
    return (head.ljust(start, b"\0") + code).ljust(data_start, b"\0") + tensors


def judge(seed: int) -> SeedVerdict:
    """Open and list the file of a seed; load and run it if its seal is valid."""
    content, what, resealed = hostile_file(seed)
    kind = what.split(" ", 1)[0]
    with tempfile.TemporaryDirectory(prefix="mirlo-fuzz-") as folder:
        path = Path(folder) / "m.mirlo"
        write_regular(path, content)
        try:
            artifacts.load(path)
            list(compiled_lines(str(path)))
            if not resealed:
                executable = load(path)
                executable.run(executable.random_inputs(dims={"n": 3}))
        except Exception as error:
            return verdict_of_error(error, what, (kind,))
    return SeedVerdict(ACCEPTED, what, (kind,))


def write(seed: int, folder: Path) -> None:
    """Write the file of a seed, and a description of the change."""
    content, what, _ = hostile_file(seed)
    write_regular(folder / "model.mirlo", content)
    write_regular(folder / "change.txt", what + "\n")
