"""Programs: threads, forks, release, errors."""

from __future__ import annotations

import gc
import os
import threading
import weakref

import numpy as np
import pytest
from mirlo_onednn.native import library
from mirlo_onednn.native.library import OneDnnError, is_available
from mirlo_onednn.native.program import MAX_CONTEXTS
from mirlo_onednn.plan import PrimitiveNode, read
from plans import RELU, Region, close, conv, conv_attributes, random

from mirlo.extend.runtime import ArtifactError

pytestmark = pytest.mark.skipif(not is_available(), reason="needs onednn-cpu-gomp")


def _network(threads: int = 1) -> tuple[Region, np.ndarray]:
    x, w = random(1, 16, 12, 12), random(16, 16, 3, 3) * 0.1
    nodes = [
        PrimitiveNode("convolution", {"x": f"a{i}", "weight": "w"}, f"a{i + 1}", conv_attributes(1), (RELU,))
        for i in range(4)
    ]
    region = Region(nodes, {"a0": x}, {f"a{i}": x.shape for i in range(1, 5)}, {"w": w}, threads=threads)
    for _ in range(4):
        x = np.maximum(conv(x, w, 1), 0)
    return region, x


@pytest.mark.parametrize("cores", [2, 6, 100])
def test_calls_from_several_threads(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one context, with three, and with the maximum."""
    monkeypatch.setattr("mirlo_onednn.native.program.available_cores", lambda: cores)
    region, expected = _network(threads=2)
    tables = region.program._compiled.tables["region"]
    assert len(tables) == min(cores // 2, MAX_CONTEXTS) and len({table.stream for table in tables}) == len(tables)
    results = [np.empty(expected.shape, np.float32) for _ in range(4)]

    def work(result: np.ndarray) -> None:
        for _ in range(20):
            result[...] = np.nan
            assert region.call([*region.inputs, result]) == 0

    threads = [threading.Thread(target=work, args=[result]) for result in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        close(result, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_child_of_a_fork_computes() -> None:
    region, expected = _network(threads=2)
    close(region(), expected)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(20)  # OpenMP's threads are gone: who waits for them waits for ever
        os._exit(0 if np.allclose(region(), expected, atol=1e-4) else 1)
    assert os.waitpid(child, 0)[1] == 0
    close(region(), expected)


def test_the_threads_of_others_stay_as_they_are() -> None:
    handle = library.load_library().handle
    before = handle.omp_get_max_threads()
    region, _ = _network(threads=before + 1)
    region()
    assert handle.omp_get_max_threads() == before


def test_wrong_number_of_tensors() -> None:
    region, _ = _network()
    assert region.call(region.inputs) == -1


def test_everything_is_released() -> None:
    region, _ = _network()
    program = weakref.ref(region.program)
    context = weakref.ref(region.program._compiled._keep[0])
    del region
    gc.collect()
    assert program() is None and context() is None


def test_a_region_that_the_library_cannot_compute_is_named() -> None:
    node = PrimitiveNode("convolution", {"x": "x", "weight": "w"}, "y", conv_attributes())
    with pytest.raises(OneDnnError, match="cannot compute 'convolution' of region 'region': .*invalid arguments"):
        Region([node], {"x": random(1, 4, 5, 5)}, {"y": (1, 8, 9, 9)}, {"w": random(8, 4, 1, 1)})


def test_a_reshape_that_does_not_fit_is_told() -> None:
    with pytest.raises(OneDnnError, match="a reshape between 2 x 4 and 3 x 4 does not keep"):
        Region([PrimitiveNode("reshape", {"x": "x"}, "y")], {"x": random(3, 4)}, {"y": (2, 4)})


def test_the_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "NAME", "libnone.so")
    library._load.cache_clear()
    try:
        with pytest.raises(OneDnnError, match=r"libnone.so\) is not installed.*pip install mirlo-onednn"):
            library.load_library()
        assert not is_available()
    finally:
        library._load.cache_clear()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "damaged"),
        (b'{"version": 9}', "version 9, this Mirlo reads 1"),
        (b'{"version": 1, "functions": [{}]}', "damaged .*tensors"),
    ],
)
def test_damaged_plans(data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read(data)
