"""The `.mirlo` file: what was saved comes back, without the compiler; a damaged one is an error, never a crash."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.runtime import artifact as artifacts
from mirlo.runtime import container
from mirlo.runtime.artifact import MODEL_FILE, Artifact, TensorSpec, seal, split_seal
from mirlo.runtime.errors import ArtifactError, MirloError, ParameterError
from mirlo.runtime.executable import Executable
from mirlo.runtime.params import ParameterStore


@pytest.fixture
def model_file(artifact: Artifact, store: ParameterStore, tmp_path: Path) -> Path:
    path = tmp_path / "model.mirlo"
    artifacts.save(path, artifact, store)
    return path


def test_round_trip(artifact, store, model_file, tmp_path):
    loaded, parameters = artifacts.load(model_file)
    assert loaded == artifact
    assert parameters.names() == ("w",) and np.array_equal(parameters.get("w"), store.get("w"))
    exe = mirlo.load(model_file)
    inputs = exe.random_inputs()
    expected = Executable(artifact, store)(**inputs)
    np.testing.assert_array_equal(exe(**inputs), expected)
    exe.save(tmp_path / "again.mirlo")
    assert (tmp_path / "again.mirlo").read_bytes() == model_file.read_bytes()
    exe.save(model_file)  # over the file that it is mapped from
    np.testing.assert_array_equal(exe(**inputs), expected)
    np.testing.assert_array_equal(mirlo.load(model_file)(**inputs), expected)


def test_parameters_are_mapped_aligned_and_stored_once(artifact, store, tmp_path):
    store.add("big", np.ones(1 << 20, np.float32))
    big = TensorSpec("big", "f32", (1 << 20,))
    path = tmp_path / "m.mirlo"
    artifacts.save(path, replace(artifact, params=(*artifact.params, big, big)), store)
    assert path.stat().st_size < (4 << 20) + 16384
    loaded, parameters = artifacts.load(path)
    assert [spec.name for spec in loaded.params] == ["w", "big", "big"]
    view = parameters.get("big")
    assert view.ctypes.data % 64 == 0 and not view.flags.owndata and not view.flags.writeable
    maps = Path("/proc/self/maps")
    if maps.exists():
        mine = [line.split("-") for line in maps.read_text().splitlines() if line.endswith(str(path))]
        assert any(int(low, 16) <= view.ctypes.data < int(high.split()[0], 16) for low, high, *_ in mine)


def test_another_process_needs_no_compiler(model_file):
    """It loads and runs the model with numpy and the loader alone, in well under a second."""
    program = f"""
import sys, time
start = time.perf_counter()
import mirlo
assert "numpy" not in sys.modules
exe = mirlo.load({str(model_file)!r})
result = exe(**exe.random_inputs())
seconds = time.perf_counter() - start
compiler = ("torch_mlir", "mlir", "onnx", "ml_dtypes", "mirlo.dialects", "mirlo.passes", "mirlo.targets")
print(result.shape, [name for name in compiler if name in sys.modules], seconds)
assert seconds < 5
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(8,) []")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the file: No such file"),
        (b"", "not a compiled model"),
        (b"\x08\x07\x12\x07pytorch" * 40, r"not a compiled model \(.mirlo\): it does not start with Mirlo's signature"),
        (b"\x93MIR", "the file is truncated: 4 bytes, at least 64 are expected"),
    ],
)
def test_not_a_model(tmp_path, content, message):
    path = tmp_path / "m.mirlo"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArtifactError, match=f"{path}: {message}"):
        mirlo.load(path)


def test_parameter_file_is_no_model(tmp_path, store):
    path = tmp_path / "w.params"
    store.save(path)
    with pytest.raises(ArtifactError, match="it is a Mirlo file of kind b'PRMS', expected b'EXEC'"):
        mirlo.load(path)


def test_newer_version(model_file):
    data = bytearray(model_file.read_bytes())
    struct.pack_into("<I", data, 12, 9)
    model_file.write_bytes(data)
    with pytest.raises(ArtifactError, match="written in format 9 by a newer Mirlo; this one reads formats up to 3"):
        mirlo.load(model_file)


def test_every_flipped_byte_of_header_and_code_is_found(model_file):
    data = model_file.read_bytes()
    header, code = struct.unpack_from("<QQ", data, 16)
    code_start = container.aligned(64 + header)
    places = [*range(56), *range(64, 64 + header), *range(code_start, code_start + code, 11)]
    for count, place in enumerate(places):
        mutated = bytearray(data)
        mutated[place] ^= 1 << count % 8
        model_file.write_bytes(mutated)
        with pytest.raises(ArtifactError, match=str(model_file)):
            artifacts.load(model_file)


def test_every_truncation_is_found(model_file):
    data = model_file.read_bytes()
    for length in [*range(0, 80), *range(80, len(data), 13), len(data) - 1]:
        model_file.write_bytes(data[:length])
        with pytest.raises(ArtifactError, match=str(model_file)):
            artifacts.load(model_file)
    model_file.write_bytes(data + b"\0")
    with pytest.raises(ArtifactError, match="the file is damaged: the sizes in its prefix do not fit"):
        artifacts.load(model_file)


def rewrite(path: Path, resealed: bool = True, **changes: object) -> None:
    """Change fields of the header and make sizes, checksum and the seal right again, as someone hostile would."""
    opened = container.read_file(path, MODEL_FILE)
    data = path.read_bytes()
    header_bytes, code_bytes = struct.unpack_from("<QQ", data, 16)
    header = json.loads(data[64 : 64 + header_bytes])
    tensors = data[container.aligned(container.aligned(64 + header_bytes) + code_bytes) :]
    header = {key: value for key, value in {**header, **changes}.items() if value is not ...}
    text = json.dumps(header).encode()
    content = opened.code
    if resealed:
        rows = ((tensor.name, tensor.dtype, tensor.shape) for tensor in opened.tensors)
        content = split_seal(content)[0] + seal(json.loads(text), rows)
    code_start = container.aligned(64 + len(text))
    data_start = container.aligned(code_start + code_bytes)
    size = data_start + len(tensors)
    prefix = container._PREFIX.pack(container._MAGIC, b"EXEC", MODEL_FILE.version, len(text), code_bytes, size)
    head = (prefix + container._digest(prefix, text, content)).ljust(64, b"\0") + text
    path.write_bytes((head.ljust(code_start, b"\0") + content).ljust(data_start, b"\0") + tensors)


SPEC = {"name": "a", "dtype": "f32", "shape": [8]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": 3}, "header field 'target': expected text, found 3"),
        ({"entry": ...}, r"header field 'entry' \(text\) is missing"),
        ({"entry": "main"}, "does not define its entry function 'main'"),
        ({"loader": "nothing"}, "whose loader 'nothing' is not installed"),
        ({"arena_bytes": -1}, "header field 'arena_bytes': expected a count"),
        ({"arena_bytes": 1.5}, "header field 'arena_bytes': expected a count"),
        ({"arena_bytes": 1 << 62}, r"the model needs \d+ bytes of scratch memory"),
        ({"threads": "2"}, "header field 'threads': expected a count"),
        ({"inputs": SPEC}, "header field 'inputs': expected a list"),
        ({"inputs": [SPEC, {**SPEC, "dtype": "float"}]}, r"header field 'inputs\[1\].dtype': expected one of f64"),
        ({"inputs": [SPEC, {**SPEC, "shape": [None]}]}, r"header field 'inputs\[1\].shape': expected a list of dims"),
        ({"inputs": [SPEC, SPEC]}, "two inputs are named 'a'"),
        ({"outputs": [{**SPEC, "shape": ["n"]}]}, "no input has the dim 'n'"),
        ({"params": ["w", 3]}, "header field 'params': expected a list of texts"),
        ({"params": ["v"]}, r"header field 'params\[0\]': expected the name of a tensor in the file, found 'v'"),
        ({"kernels": [{"symbol": "k"}]}, r"header field 'kernels\[0\].source' \(text\) is missing"),
        ({"metadata": []}, "header field 'metadata': expected an object"),
        ({"metadata": {}}, "does not say for which machine"),
        ({"metadata": {"memory": 3}}, "header field 'metadata.memory': expected an object, found 3"),
        ({"metadata": {"memory": {"bound": 1}}}, r"header field 'metadata.memory.in_place' \(a count\) is missing"),
        (
            {"metadata": {"memory": {"bound": 1, "in_place": 0, "buffers": [{"offset": -1}]}}},
            r"header field 'metadata.memory.buffers\[0\].offset': expected a count \(0 or more\), found -1",
        ),
        ({"metadata": {"sizes": [""]}}, "header field 'metadata.sizes': expected dims that are not empty"),
        ({"metadata": {"sizes": [{}]}}, "header field 'metadata.sizes': expected a list of texts"),
        ({"metadata": {"symbols": {"": None}}}, "header field 'metadata.symbols': expected a list of texts"),
        ({"metadata": {"allocates": 1}}, "header field 'metadata.allocates': expected true or false, found 1"),
        ({"metadata": {"packed": 3}}, r"header field 'metadata.packed': expected a list of texts, found 3"),
    ],
)
def test_hostile_headers(model_file, changes, message):
    rewrite(model_file, **changes)
    with pytest.raises(ArtifactError, match=message) as caught:
        exe = mirlo.load(model_file)
        exe(**exe.random_inputs())
    assert str(model_file) in str(caught.value) or "scratch" in message


ODD_VALUES = (None, True, -1, 0, 2**70, 1e300, "", "\ud800", [], {}, [[]], [{}], [None], {"": None})


def leaves(value: object, path: tuple = ()) -> list[tuple]:
    """Return the paths of a JSON value, of objects and lists too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in leaves(item, (*path, key)))]


@pytest.mark.sample(0)
def test_odd_values_everywhere(model_file):
    """Any field of the header may hold anything: the file loads, or the error is one for the user."""
    data = model_file.read_bytes()
    header = json.loads(data[64 : 64 + struct.unpack_from("<Q", data, 16)[0]])
    header["metadata"]["features"] = header["metadata"]["features"][:1]
    errors = 0
    for path in leaves(header)[1:]:
        for odd in ODD_VALUES:
            changed = json.loads(json.dumps(header))
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = odd
            model_file.write_bytes(data)
            rewrite(model_file, **changed)
            try:
                mirlo.load(model_file)
            except MirloError as error:
                assert str(model_file) in str(error)
                str(error).encode()
                errors += 1
    assert errors > 200


def test_rewritten_file_without_changes_loads(model_file):
    rewrite(model_file)
    assert mirlo.load(model_file).profile()[0].symbol == "add"


def test_metadata_must_be_json(artifact, store, tmp_path):
    with pytest.raises(ArtifactError, match="m: the header of .* cannot be written as JSON"):
        artifacts.save(tmp_path / "m", replace(artifact, metadata={"x": object()}), store)
    assert list(tmp_path.iterdir()) == []


def test_names_that_cannot_be_written(tmp_path):
    store = ParameterStore()
    store.add("\ud800", np.zeros(1, np.float32))
    with pytest.raises(ParameterError, match="cannot be written as JSON"):
        store.save(tmp_path / "p")


def test_saving_without_the_parameters(artifact, tmp_path):
    with pytest.raises(ArtifactError, match="no parameter 'w'"):
        artifacts.save(tmp_path / "m", artifact, ParameterStore())


@pytest.mark.parametrize(
    "changes",
    [
        {"arena_bytes": 0},
        {"inputs": [SPEC]},
        {"inputs": [{**SPEC, "shape": [4]}, {**SPEC, "name": "b", "shape": [4]}]},
        {"outputs": [{**SPEC, "shape": [1]}]},
        {"kernels": []},
        {"threads": 3},
    ],
)
def test_a_header_that_does_not_describe_the_code(model_file, changes):
    """Code reads and writes by the sizes that it was compiled for: with others in the header it is not called."""
    rewrite(model_file, resealed=False, **changes)
    with pytest.raises(ArtifactError, match="its header does not describe its code"):
        mirlo.load(model_file)


@pytest.mark.parametrize("threads", [0, 4097, 2**62])
def test_threads_that_no_machine_has(model_file, threads):
    rewrite(model_file, threads=threads)
    with pytest.raises(ArtifactError, match="header field 'threads': expected 1 to 4096 threads"):
        mirlo.load(model_file)


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202e", "\0"])
def test_names_that_cannot_be_shown(model_file, name):
    for changes in ({"entry": name}, {"inputs": [{**SPEC, "name": name}]}, {"outputs": [{**SPEC, "shape": [name]}]}):
        before = model_file.read_bytes()
        rewrite(model_file, **changes)
        with pytest.raises(ArtifactError, match="printable") as caught:
            mirlo.load(model_file)
        assert str(caught.value).isprintable()
        model_file.write_bytes(before)


RUN_DAMAGED = """
import sys
import numpy as np
import mirlo

path, begin, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
content, rng = open(path, "rb").read(), np.random.default_rng(0)
for number in range(20):
    damaged = np.frombuffer(content, np.uint8).copy()
    damaged[rng.integers(begin, end, 1 << number)] = rng.integers(0, 256, 1 << number)
    with open(path + "d", "wb") as file:
        file.write(damaged.tobytes())
    (y,) = mirlo.load(path + "d").run({"x": np.ones(8, np.float32)}).values()
    assert y.shape == (8,)
print("done")
"""


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_damaged_weights_give_results(tmp_path, target):
    """Also where weights are positions: they lie outside of the checksum."""
    import onnx

    at, w = np.arange(3000) % 8, np.ones((3000, 8), np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[8] x) => (float[8] y) '
        "{ chosen = Gather(x, at)  y = MatMul(chosen, w) }"
    )
    model.graph.initializer.extend([onnx.numpy_helper.from_array(at, "at"), onnx.numpy_helper.from_array(w, "w")])
    path = tmp_path / "m.mirlo"
    mirlo.compile(model, target=target).save(path)
    content = path.read_bytes()
    begin, end = content.index(at[:100].tobytes()), content.rindex(w[-1].tobytes())
    command = [sys.executable, "-c", RUN_DAMAGED, str(path), str(begin), str(end)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


RUN_CYCLES = """
import sys
import numpy as np
import mirlo
from mirlo.runtime import artifact as artifacts
from mirlo.runtime.params import ParameterStore

path = sys.argv[1]
artifact, weights = artifacts.load(path)
damaged = ParameterStore()
for name in weights.names():
    damaged.add(name, np.zeros_like(weights.get(name)))
artifacts.save(path + "d", artifact, damaged)
exe = mirlo.load(path + "d")
(y,) = exe.run(exe.random_inputs()).values()
print(y.shape)
"""


@pytest.mark.parametrize(
    ("target", "rows"),
    [("llvm", 200), ("llvm{cpu=x86-64-v2}", 200), ("llvm", 3), ("llvm", 1), ("c", 9), ("spirv", 9)],
)
def test_damaged_trees_end(tmp_path, target, rows):
    """Also where all nodes lead to the first one: the upper levels as masks, and from node to node."""
    import onnx

    depth, trees = 8, 9
    inner, count = (1 << depth) - 1, (1 << depth + 1) - 1
    node = onnx.helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=np.repeat(np.arange(trees), count), nodes_nodeids=np.tile(np.arange(count), trees),
        nodes_featureids=[at % 5 for _ in range(trees) for at in range(count)],
        nodes_modes=["BRANCH_LEQ" if at < inner else "LEAF" for _ in range(trees) for at in range(count)],
        nodes_values=[float(at % 3) for _ in range(trees) for at in range(count)],
        nodes_truenodeids=[2 * at + 1 if at < inner else 0 for _ in range(trees) for at in range(count)],
        nodes_falsenodeids=[2 * at + 2 if at < inner else 0 for _ in range(trees) for at in range(count)],
        target_treeids=np.repeat(np.arange(trees), inner + 1), target_ids=[0] * (trees * (inner + 1)),
        target_nodeids=np.tile(np.arange(inner, count), trees), target_weights=[1.0] * (trees * (inner + 1)),
    )  # fmt: skip
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [rows, k]) for n, k in (("x", 5), ("y", 1)))
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "trees", [x], [y]), opset_imports=opsets, ir_version=9
    )
    path = tmp_path / "m.mirlo"
    compiled = mirlo.compile(model, target=target)
    np.testing.assert_array_equal(compiled(np.ones((rows, 5), np.float32)), np.full((rows, 1), trees, np.float32))
    compiled.save(path)
    done = subprocess.run([sys.executable, "-c", RUN_CYCLES, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"({rows}, 1)\n"), done.stderr
