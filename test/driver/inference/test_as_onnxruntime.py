"""`mirlo.as_onnxruntime`: programs that import `onnxruntime` get Mirlo's sessions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

import mirlo

PROVIDERS = ["CPUExecutionProvider"]
PROGRAM = """
import sys
import numpy as np
import onnxruntime as ort
import onnxruntime.capi.onnxruntime_pybind11_state
from onnxruntime import InferenceSession, SessionOptions, get_available_providers
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile, RuntimeException
from onnxruntime.capi.onnxruntime_inference_collection import OrtValue, Session
from importlib.util import find_spec

assert find_spec("onnxruntime") and int(ort.__version__.split(".")[1]) >= 18
session = ort.InferenceSession(sys.argv[1], providers=ort.get_available_providers())
assert isinstance(session, Session)
print(type(session).__module__, session.run(None, {"x": np.arange(3, dtype="f")})[0].tolist(), sys.argv[2:], __name__)
try:
    session.run(None, {"x": np.arange(3)})
except C.InvalidArgument as error:
    print(type(error).__name__)
try:
    import onnxruntime.no_such_module
except ImportError as error:
    print(error)
"""
EXPECTED = """mirlo.driver.inference.session [0.0, 2.0, 4.0] ['-v', 'two'] __main__
InvalidArgument
No module named 'onnxruntime.no_such_module'
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from onnx import TensorProto, helper, save

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", values[:1], values[1:])
    path = tmp_path_factory.mktemp("program")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path / "m.onnx")
    (path / "program.py").write_text(PROGRAM)
    return path


def _python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.sample(0)
def test_a_program_is_run_unchanged(folder: Path) -> None:
    for how in (["program.py"], ["-m", "program"]):
        done = _python("-m", "mirlo.as_onnxruntime", *how, "m.onnx", "-v", "two", folder=folder)
        assert (done.stdout, done.stderr) == (EXPECTED, "")


def test_a_program_says_it_itself(folder: Path) -> None:
    lines = (
        "import mirlo, mirlo.as_onnxruntime",
        "assert mirlo.as_onnxruntime() is mirlo.as_onnxruntime()",
        "import onnxruntime",
        "print(onnxruntime.InferenceSession is mirlo.InferenceSession)",
        "onnxruntime.no_such_name",
    )
    done = _python("-c", "\n".join(lines), folder=folder)
    assert done.stdout == "True\n"
    assert "AttributeError: mirlo.as_onnxruntime: module 'onnxruntime' has no 'no_such_name'" in done.stderr


@pytest.mark.sample(0)
def test_it_comes_before_the_import(folder: Path) -> None:
    done = _python("-c", "import onnxruntime, mirlo; mirlo.as_onnxruntime()", folder=folder)
    assert "the package 'onnxruntime' is imported already" in done.stderr
    done = _python("-m", "mirlo.as_onnxruntime", "no-such.py", folder=folder)
    assert done.returncode == 2 and "there is no program 'no-such.py'" in done.stderr


SUBPACKAGES = """
import sys
import mirlo
mirlo.as_onnxruntime()
import onnxruntime.datasets, onnxruntime.tools, onnxruntime.transformers
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic
quantize_dynamic("m.onnx", "small.onnx", weight_type=QuantType.QInt8)
session = onnxruntime.InferenceSession("small.onnx")
print(session.run(None, {"x": [1, 2, 3]})[0].tolist(), [name for name in sys.modules if name.endswith("state")
      and hasattr(sys.modules[name], "__file__") and "onnxruntime" in name])
"""


def test_subpackages_of_an_installed_package_use_the_sessions(folder: Path) -> None:
    done = _python("-c", SUBPACKAGES, folder=folder)
    assert done.stdout.endswith("[2.0, 4.0, 6.0] []\n"), done.stderr


def test_without_the_package_its_subpackages_are_missing(folder: Path) -> None:
    lines = (
        "import mirlo",
        "from importlib.machinery import PathFinder",
        "find = PathFinder.find_spec",
        "PathFinder.find_spec = lambda name, *more: None if name.startswith('onnxruntime') else find(name, *more)",
        "mirlo.as_onnxruntime()",
        "import onnxruntime.quantization",
    )
    done = _python("-c", "\n".join(lines), folder=folder)
    assert "No module named 'onnxruntime.quantization'" in done.stderr


def test_attributes_that_packages_read(folder: Path) -> None:
    """They hold what those of ONNX Runtime hold: for a path, and for bytes."""
    for model in (folder / "m.onnx", str(folder / "m.onnx"), (folder / "m.onnx").read_bytes()):
        ours, theirs = mirlo.InferenceSession(model), onnxruntime.InferenceSession(model, providers=PROVIDERS)
        assert getattr(theirs, "_model_path", None) == ours._model_path
        assert getattr(theirs, "_model_bytes", None) == ours._model_bytes
        assert ours._providers == ours.get_providers()
        assert ours._sess_options is ours.get_session_options()
        for name in ("_inputs_meta", "_outputs_meta", "_overridable_initializers"):
            assert [port.name for port in getattr(ours, name)] == [port.name for port in getattr(theirs, name)]
        assert ours._model_meta.graph_name == theirs._model_meta.graph_name
        assert [port.name for port in ours._sess.get_inputs()] == ["x"]


UNSUPPORTED = (
    r"AdapterFormat|LoraAdapter|SparseTensor|OrtSparseFormat|SessionIOBinding|ModelCompiler|ModelPackage\w*|copy_tensors|"
    r"Ort(?!Value$|Device$)\w+|capi|\w*onnxruntime_validation|import_capi_exception|contextlib|cuda_version|version|"
    r"package_name|create_and_register_allocator_v2|unregister_execution_provider_library"
)
"""Names of ONNX Runtime that belong to its own formats, allocators, plug-ins and adapters."""


def test_all_names_of_the_package_but_a_few_are_there(folder: Path) -> None:
    listed = _python("-c", "import mirlo; print(*dir(mirlo.as_onnxruntime()))", folder=folder).stdout.split()
    missing = [name for name in dir(onnxruntime) if not name.startswith("_") and name not in listed]
    assert not [name for name in missing if not re.fullmatch(UNSUPPORTED, name)]
