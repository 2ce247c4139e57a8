"""Samples of PyTorch's operator database, compiled without ONNX and compared with PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")
pytest.importorskip("expecttest", reason="the database needs expecttest: make test-torch")
pytest.importorskip("mirlo.benchmarks", reason="needs a clone of the repository")

from mirlo_torch.backend.strides import memory_order  # noqa: E402

from mirlo.benchmarks import aten  # noqa: E402
from mirlo.benchmarks.aten_samples import samples_of  # noqa: E402

TYPES = ("f32", "f16", "bf16", "i64")
STEP = 23
"""The stride of the sample of operators, and the number of samples of each."""


def is_whole(config: pytest.Config) -> bool:
    """Return whether all cases run: an option of the repository's tests, which the package has not by itself."""
    return bool(config.getoption("--whole", False))


def pytest_generate_tests(metafunc: Any) -> None:
    whole = is_whole(metafunc.config)
    is_backend = metafunc.function is test_samples_by_the_backend
    found = aten.entries(())[:: 1 if whole else 3 * STEP if is_backend else STEP]
    metafunc.parametrize("entry", found, ids=[aten.name_of(entry) for entry in found])


@pytest.mark.sample(10)
def test_samples_are_right_or_refused_by_name(entry: Any, request: pytest.FixtureRequest) -> None:
    for kind, outcome in aten.run(entry, TYPES, 1000 if is_whole(request.config) else 3).items():
        assert not outcome.wrong, (kind, outcome.wrong)
        assert not outcome.failed, (kind, outcome.failed)


def test_samples_by_the_backend(entry: Any) -> None:
    """Results of `torch.compile` are those of PyTorch, in its order in memory, whatever is left to PyTorch."""
    for sample, _ in samples_of(entry, torch.float32, 2):
        torch._dynamo.reset()

        def function(*tensors: Any, sample: Any = sample) -> Any:
            return tuple(sample.call(list(tensors)))

        run = torch.compile(function, backend="mirlo", options={"cache": False})
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, expected = (call(*[each.clone() for each in sample.tensors]) for call in (run, function))
        exact = any(each.dtype.is_floating_point and each.dtype.itemsize == 1 for each in expected)
        tolerance = 0.0 if exact else 1e-3  # PyTorch compares floats of 8 bits by their bits only
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        for one, other in zip(found, expected, strict=True):
            assert memory_order(one) == memory_order(other)
