"""Full disks, limits of file sizes, users without a home, pipes in the place of files, forks while models load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.driver.models import open_model
from mirlo.driver.place.store import PlacementStore
from mirlo.driver.source import read_source
from mirlo.driver.strategies import Measured
from mirlo.driver.tune.database import Database
from mirlo.passes.schedule.primitives.trace import Trace
from mirlo.runtime import cache as caches
from mirlo.runtime.cache import MODELS, OBJECTS, Cache, default_folder
from mirlo.runtime.errors import ArtifactError, MirloError
from mirlo.runtime.files import open_regular
from mirlo.targets.nvvm.libraries import open_library
from mirlo.tools.cli.files import read_array
from mirlo.tools.quantize.nbits import quantize_file
from mirlo.tools.quantize.options import Quantization

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names and no limits")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 64))],
        [numpy_helper.from_array(weight, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path = tmp_path_factory.mktemp("faults") / "small.onnx"
    onnx.save(made, path)
    return path


def _python(text: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, **environment}
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=given)


@pytest.mark.sample(0)
def test_a_limit_of_file_sizes_keeps_the_cache_small_and_nothing_else(model: Path, tmp_path: Path) -> None:
    done = _python(
        "import resource, sys, numpy, mirlo\n"
        "import mirlo.driver.build\n"
        "mirlo.driver.build.MIN_COMPILE_SECONDS = 0  # else a model that compiles quickly is not kept anyway\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "print(mirlo.compile(sys.argv[1])(numpy.zeros((4, 64), 'f4')).shape)",
        model,
        XDG_CACHE_HOME=str(tmp_path),
        PYTHONDONTWRITEBYTECODE="1",  # it would be cut off as well
    )
    assert done.returncode == 0 and done.stdout == "(4, 64)\n", done.stderr
    assert "nothing was kept in the cache" in done.stderr and "File too large" in done.stderr


@pytest.mark.sample(0)
def test_a_home_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    done = _python(
        "import sys, numpy, mirlo; print(mirlo.compile(sys.argv[1])(numpy.zeros((4, 64), 'f4')).shape)",
        model,
        XDG_CACHE_HOME="/proc/self/nowhere",
        TMPDIR=str(tmp_path),
    )
    assert done.returncode == 0 and done.stdout == "(4, 64)\n", done.stderr
    assert list(tmp_path.glob(f"mirlo-{os.getuid()}/compiled/*")), "the cache is where temporary files are"


def test_what_a_writer_cannot_write_is_a_problem_of_the_cache_alone(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_bytes(b"half")
        raise ArtifactError(f"{path}: cannot write the compiled model (.mirlo): No space left on device")

    cache = Cache(tmp_path)
    cache.put_file(MODELS, "ab12", 10, write)
    assert cache.problem is not None and "No space left on device" in cache.problem
    assert cache.entries() == [] and not list(tmp_path.glob("*/*/.new-*"))


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(caches.Path, "home", home)
    assert default_folder().name == "compiled" and str(os.getuid()) in str(default_folder())


def test_pipes_in_the_cache_are_no_entries(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (tmp_path / OBJECTS / "ab").mkdir(parents=True)
    os.mkfifo(tmp_path / OBJECTS / "ab" / "ab12-0000")
    os.mkfifo(tmp_path / "limit")
    assert cache.get(OBJECTS, "ab12") is None and cache.find(OBJECTS, "ab12") is None
    assert cache.entries() == [] and cache.max_bytes() == caches.DEFAULT_LIMIT
    cache.put(OBJECTS, "ab12", b"content")
    assert cache.get(OBJECTS, "ab12") == b"content"


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["pipe.onnx", "pipe.mirlo", "pipe.mlir", "pipe"])
@pytest.mark.parametrize("call", ["compile", "load"])
def test_a_pipe_is_no_model(name: str, call: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    text = "import sys, mirlo\nprint(getattr(mirlo, sys.argv[1])(sys.argv[2]))"
    done = _python(text, call, tmp_path / name)
    assert done.returncode == 1 and "Traceback" in done.stderr
    assert name in done.stderr.strip().splitlines()[-1]


def test_only_files_are_opened(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(OSError, match="it is a device, expected a regular file"):
        open_regular("/dev/zero")


READERS = {
    "--input": lambda path: read_array(str(path), "x"),
    "mirlo-opt": lambda path: read_source(str(path)),
    "--schedule": Trace.load,
    "Measured": Measured,
    "a tuning database": Database,
    "measured placements": lambda path: PlacementStore(path).find("key"),
    "mirlo quantize": lambda path: quantize_file(path, path.with_suffix(".made"), Quantization()),
    "a library of target nvvm": lambda path: open_library(str(path)),
    "scripts": lambda path: open_model(path),
}
"""What reads files that users name."""


@pytest.mark.parametrize("reader", READERS)
def test_pipes_and_devices_are_refused(reader: str, tmp_path: Path) -> None:
    """A pipe without a writer would block, and a device may never end."""
    path = tmp_path / "pipe.py"
    os.mkfifo(path)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(20)
    try:
        with pytest.raises((MirloError, OSError), match="it is a pipe, expected a regular file"):
            READERS[reader](path)
        path.unlink()
        path.symlink_to("/dev/zero")
        with pytest.raises((MirloError, OSError), match="it is a device, expected a regular file"):
            READERS[reader](path)
    finally:
        signal.alarm(0)


@pytest.mark.sample(0)
def test_children_of_forks_load_models_while_the_parent_does(model: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "small.mirlo"
    mirlo.compile(str(model), threads=2).save(compiled)
    done = _python(
        """
import os, signal, sys, threading, warnings
import mirlo
warnings.simplefilter("ignore")
path, ended = sys.argv[1], threading.Event()

def load():
    while not ended.is_set():
        mirlo.load(path)

threads = [threading.Thread(target=load, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(6):
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends the child where it hangs
        mirlo.load(path).run(mirlo.load(path).random_inputs())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
ended.set()
for thread in threads:
    thread.join()
""",
        compiled,
    )
    assert done.returncode == 0, done.stderr
