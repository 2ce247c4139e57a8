"""Complex numbers, compiled as pairs of real ones without ONNX, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

import numpy as np  # noqa: E402
from mirlo_torch.declared_names import load_converters  # noqa: E402
from mirlo_torch.decompose import decomposed  # noqa: E402
from mirlo_torch.importer import import_exported  # noqa: E402
from mirlo_torch.registry import COMPLEX, CONVERTERS  # noqa: E402
from module_cases import DYNAMIC, Calls, F, compiled, require_close  # noqa: E402

from mirlo.extend.frontend import FrontendError  # noqa: E402

NORMS = (None, "ortho", "forward")
WINDOW = torch.hann_window(16)


def _names(*prefixes: str) -> list[str]:
    found = [name for name in dir(torch.fft) if "fft" in name and "shift" not in name and "freq" not in name]
    return [name for name in found if name.startswith(prefixes)]


def _transforms(names: list[str]) -> Callable[[Any], list[Any]]:
    return lambda x: [getattr(torch.fft, name)(x, norm=norm) for name in names for norm in NORMS]


def _lengths(x: Any, z: Any) -> list[Any]:
    fft = torch.fft
    return [
        fft.fft(x), fft.fft(z, n=5), fft.fft(z, n=11, dim=0), fft.irfft(z, n=9), fft.ifft(x, dim=0), fft.fft2(x),
        fft.rfft(x, dim=0), fft.fft(x.repeat(1, 40) / 40),
    ]  # fmt: skip


def _spectrograms(x: Any, z: Any) -> list[Any]:
    made = torch.stft(x, 16, window=WINDOW, return_complex=True)
    other = torch.stft(x, 16, hop_length=4, center=False, normalized=True, return_complex=True)
    return [
        made,
        torch.view_as_real(other),
        torch.stft(z, 16, return_complex=True),
        torch.istft(made, 16, window=WINDOW),
    ]


def _arithmetic(x: Any, z: Any) -> list[Any]:
    return [
        z * 2j + 1, z - x, 2 - z, z.sub(x, alpha=2), z / z.flip(0), 1 / z, z * x, z**2, z**0.5, z ** (1 + 2j), -z,
        z.exp(), z.log(), z.log10(), z.sqrt(), z.rsqrt(), z.sin(), z.cos(), z.tan(), z.sinh(), z.cosh(), z.tanh(),
        z.sigmoid(), z.reciprocal(), z.sgn(), z.square(), torch.expm1(z), torch.log1p(z),
    ]  # fmt: skip


def _parts(x: Any, z: Any) -> list[Any]:
    return [
        z.real, z.imag, z.conj().imag, z.abs(), z.angle(), x.angle(), torch.view_as_real(z), z.to(torch.complex128),
        torch.view_as_complex(torch.view_as_real(z)), torch.complex(x, -x), torch.polar(x, x), x.to(torch.complex64),
        z == z.flip(0), z != z, z.isnan(), z.bool(), z.any(0), z.conj().resolve_conj(), torch.linalg.norm(z),
    ]  # fmt: skip


def _moves(x: Any, z: Any) -> list[Any]:
    padded, places = F.pad(z, (1, 2), value=3.0), torch.tensor([1, 0, 2])
    return [
        z.T, z.mH, z.reshape(8, -1), z[1:, ::2], z[0], z.chunk(2, 1), torch.cat([z, x]), torch.stack([z, z]), z.flip(1),
        padded, z[:, places], z.index_add(1, places, z[:, :3]), z.sum(0), z.mean(), z.cumsum(0), z.roll(1, 0),
        torch.where(x > 0, z, 1j), z.masked_fill(x > 0, 0.5), torch.full((2,), 1 + 2j), torch.ones_like(z), z.tril(),
        torch.zeros_like(z).index_put((places,), z[:3]), z.diagonal(), z.repeat(1, 2), z.unbind(0),
    ]  # fmt: skip


def _products(x: Any, z: Any) -> list[Any]:
    return [
        z @ z.mH, z.conj() @ z.T, torch.einsum("ij,kj->ik", z, z), torch.vdot(z[0], z[1]), torch.linalg.vecdot(z, z),
        F.linear(z, z, z[:, 0]), torch.addmm(z @ z.mT, z, z.mT, beta=2, alpha=1j), torch.outer(z[0], x[0]),
        F.conv1d(z[None], z[:2, None, :3].expand(2, 4, 3), z[0, :2]),
    ]  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("function", [_lengths, _spectrograms, _arithmetic, _parts, _moves, _products],
                         ids=lambda function: function.__name__)  # fmt: skip
def test_complex_functions(function: Any) -> None:
    torch.manual_seed(0)
    size = (2, 64) if function is _spectrograms else (4, 8)
    x, z = torch.randn(size), torch.randn(size, dtype=torch.complex64)
    require_close(compiled(Calls(function), x, z).torch(x, z), function(x, z))


@pytest.mark.parametrize(("prefixes", "kind"), [(("r", "ih"), "float64"), (("fft", "if", "ir", "hf"), "complex64")])
def test_transforms_of_all_kinds_and_norms(prefixes: tuple[str, ...], kind: str) -> None:
    torch.manual_seed(0)
    function, x = _transforms(_names(*prefixes)), torch.randn(2, 3, 6, dtype=getattr(torch, kind))
    require_close(compiled(Calls(function), x).torch(x), function(x))


def test_arrays_hold_the_parts_in_a_last_dim() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    made = compiled(Calls(lambda z: z * 2j), z)
    found = made(np.ascontiguousarray(z.numpy()).view(np.float32).reshape(3, 4, 2))
    np.testing.assert_allclose(found.view(np.complex64)[..., 0], z.numpy() * 2j, rtol=1e-6)


def test_weights_and_sizes() -> None:
    class Filter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(5, 9, dtype=torch.complex64))
            self.register_buffer("conjugate", self.weight.detach().conj())

        def forward(self, x: Any) -> Any:
            return torch.fft.irfft(torch.fft.rfft(x) * self.weight[0] * self.conjugate[1]), torch.fft.fft(x)

    model = Filter().eval()
    made = compiled(model, torch.randn(2, 16), dynamic_shapes={"x": {0: DYNAMIC}})
    for rows in (2, 5):
        x = torch.randn(rows, 16)
        with torch.no_grad():
            require_close(made.torch(x), model(x))


def test_backend_takes_and_returns_complex_tensors() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    fast = torch.compile(lambda z: (z * z.conj(), z.abs()), backend="mirlo", options={"strict": True})
    with torch.no_grad():
        require_close(fast(z), (z * z.conj(), z.abs()))
    torch._dynamo.reset()


@pytest.mark.sample(5)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", [*_names("fft", "ifft", "rfft", "ihfft"), "stft", "expand"])
def test_backend_returns_the_strides_of_pytorch(name: str, dim: int) -> None:
    """PyTorch transforms a dim by moving it to the end, and its results keep that order in memory."""

    def function(x: Any) -> Any:
        if name == "stft":
            return torch.stft(x, 4, return_complex=True).movedim(0, dim)
        if name == "expand":
            return torch.fft.fft(x).unsqueeze(dim).expand(*[3 if axis == dim else -1 for axis in range(3)]).clone()
        along = {"dim": dim} if name[-1] == "t" else {"dim": (dim, 1 - dim)} if name[-1] == "2" else {}
        return getattr(torch.fft, name)(x, **along)

    torch._dynamo.reset()
    x = torch.randn(3, 8)
    with torch.no_grad():
        found, expected = (call(x) for call in (torch.compile(function, backend="mirlo"), function))
    require_close(found, expected)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize(
    "function", [torch.acos, lambda z: z.prod(0), lambda z: z.cumprod(0)], ids=("acos", "prod", "cumprod")
)
def test_what_is_not_computed_is_refused_by_name(function: Any) -> None:
    program = torch.export.export(Calls(function), (torch.randn(2, 3, dtype=torch.complex64),))
    with pytest.raises(FrontendError, match="is not supported for complex numbers"):
        import_exported(decomposed(program))


def test_operators_on_real_tensors_have_a_converter_of_these() -> None:
    load_converters()
    only = ("_fft_", "aten.complex.", "aten.imag.", "aten.polar.", "aten.view_as_")
    assert [name for name in COMPLEX if name not in CONVERTERS and not any(part in name for part in only)] == []


def test_operators_that_are_computed_by_parts_have_converters() -> None:
    from mirlo_torch.declared_names import load_converters
    from mirlo_torch.registry import CONVERTERS

    load_converters()
    from mirlo_torch.ops.complex_parts import DATA

    converters = set(CONVERTERS.values())
    assert [f"{function.__module__}.{function.__name__}" for function in DATA if function not in converters] == []
