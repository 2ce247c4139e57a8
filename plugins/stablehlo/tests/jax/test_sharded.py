"""Sharded programs of JAX on ranks, compared with JAX on as many devices: results, and each rank's part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from mirlo_ranks.testing import TARGET, run_threads

jax = pytest.importorskip("jax", reason="needs jax: make test-stablehlo")

import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import mirlo  # noqa: E402

if len(jax.devices()) < 4:
    pytest.skip("JAX was started with fewer than four devices", allow_module_level=True)

MESHES = {
    "4": Mesh(np.array(jax.devices()[:4]), ("x",)),
    "2": Mesh(np.array(jax.devices()[:2]), ("x",)),
    "2x2": Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y")),
}
SHARD_MAP: Any = getattr(jax, "shard_map", None)
Function = Callable[..., Any]
RANDOM = np.random.default_rng(11)


@contextmanager
def _partitioner(name: str) -> Iterator[None]:
    """Select the partitioner of JAX, Shardy or XLA's."""
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", name == "shardy")
    try:
        yield
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


def _array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (RANDOM.integers(-8, 9, shape) / (1 if np.dtype(dtype).kind in "iu" else 4)).astype(dtype)


def _part(whole: np.ndarray, sharding: Any, mesh: Mesh, rank: int) -> np.ndarray:
    """Return the part of a value on a device."""
    own = whole
    if sharding is not None:
        own = np.ascontiguousarray(whole[sharding.devices_indices_map(whole.shape)[mesh.devices.reshape(-1)[rank]]])
    return np.stack([own.real, own.imag], -1) if own.dtype.kind == "c" else own


def _compare(function: Function, mesh: Mesh, *args: Any, tolerance: float = 1e-5) -> Any:
    """Compile a function of `jax.jit` for the devices of a mesh; compare the parts of all results."""
    expected = [np.asarray(each) for each in jax.tree_util.tree_leaves(function(*args))]
    specs = jax.tree_util.tree_map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), args)
    exported = export.export(function, platforms=["cpu"])(*specs)
    model = mirlo.compile(exported, TARGET, ranks=mesh.size, opt_level=0, cache=False)
    leaves = [np.asarray(each) for each in jax.tree_util.tree_leaves(args)]
    inputs, outputs = exported.in_shardings_jax(mesh), exported.out_shardings_jax(mesh)
    results = run_threads(
        model, lambda rank: [_part(leaves[i], inputs[i], mesh, rank) for i in exported.module_kept_var_idx]
    )
    for rank, of_rank in enumerate(results):
        for result, whole, sharding in zip(of_rank, expected, outputs, strict=True):
            wanted = _part(whole, sharding, mesh, rank)
            assert result.dtype == wanted.dtype and result.shape == wanted.shape
            scale = max(1.0, float(np.abs(wanted.astype(np.float64)).max(initial=0)))
            np.testing.assert_allclose(
                result.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=tolerance * scale
            )
    return model


def _collectives(axis: Any, size: int) -> dict[str, Function]:
    """Return collectives over an axis, by name, of an operand of 8 rows and columns."""
    ring = [(i, (i + 1) % size) for i in range(size)]
    return {
        "psum": lambda a: lax.psum(a, axis),
        "pmax": lambda a: lax.pmax(a, axis),
        "pmin": lambda a: lax.pmin(a, axis),
        "pmean": lambda a: lax.pmean(a, axis) if a.dtype.kind == "f" else a,
        "all_gather": lambda a: lax.all_gather(a, axis),
        "all_gather_1": lambda a: lax.all_gather(a, axis, axis=1),
        "all_gather_tiled": lambda a: lax.all_gather(a, axis, axis=1, tiled=True),
        "psum_scatter": lambda a: lax.psum_scatter(a, axis, scatter_dimension=0, tiled=True),
        "psum_scatter_1": lambda a: lax.psum_scatter(a, axis, scatter_dimension=1, tiled=True),
        "all_to_all": lambda a: lax.all_to_all(a, axis, 0, 1, tiled=True),
        "all_to_all_10": lambda a: lax.all_to_all(a, axis, 1, 0, tiled=True),
        "all_to_all_00": lambda a: lax.all_to_all(a, axis, 0, 0, tiled=True),
        "all_to_all_new": lambda a: lax.all_to_all(a[:size], axis, 0, 1),
        "ppermute": lambda a: lax.ppermute(a, axis, ring),
        "ppermute_one": lambda a: lax.ppermute(a, axis, [(size - 1, 0)]),
        "axis_index": lambda a: a + lax.axis_index(axis).astype(a.dtype),
    }


def _axes(mesh: Mesh) -> list[Any]:
    return [*mesh.axis_names, *([("x", "y"), ("y", "x")] if len(mesh.axis_names) > 1 else [])]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "int8", "uint32"])
@pytest.mark.parametrize("name", MESHES)
def test_collectives(name: str, dtype: str) -> None:
    """All collectives over all axes in one program; results of all devices are joined in rows."""
    mesh = MESHES[name]
    functions = [
        function
        for axis in _axes(mesh)
        for function in _collectives(axis, int(np.prod([mesh.shape[each] for each in np.atleast_1d(axis)]))).values()
    ]
    devices = P(mesh.axis_names)
    body = SHARD_MAP(
        lambda a: [function(a) for function in functions],
        mesh=mesh, in_specs=devices, out_specs=[devices] * len(functions), check_vma=False,
    )  # fmt: skip
    x = _array(8 * mesh.size, 8, dtype=jnp.dtype(dtype))
    _compare(jax.jit(body), mesh, x, tolerance=0.01 if "16" in dtype else 1e-6)


def _sharding(mesh: Mesh, *spec: Any) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


def _mlp(x: Any, up: Any, down: Any, mesh: Mesh) -> Any:
    hidden = lax.with_sharding_constraint(jax.nn.gelu(x @ up), _sharding(mesh, "x", "y"))
    return x + hidden @ down


def _attention(x: Any, *weights: Any) -> Any:
    batch, length, width = x.shape
    wq, wk, wv, wo = weights
    q, k, v = ((x @ w).reshape(batch, length, 4, width // 4).transpose(0, 2, 1, 3) for w in (wq, wk, wv))
    mask = jnp.where(jnp.tril(jnp.ones((length, length))) > 0, 0.0, -1e9)
    p = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / 2 + mask, axis=-1)
    return x + (p @ v).transpose(0, 2, 1, 3).reshape(batch, length, width) @ wo


def _loss(weights: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ weights["up"] + weights["bias"])
    return jnp.mean((hidden @ weights["down"] - y) ** 2)


def _step(weights: Any, x: Any, y: Any, reduce: Function = lambda gradient: gradient) -> Any:
    gradients = jax.grad(_loss)(weights, x, y)
    return jax.tree_util.tree_map(lambda w, g: w - 0.1 * reduce(g), weights, gradients)


def _weights() -> dict[str, np.ndarray]:
    return {"up": _array(6, 8), "bias": _array(8), "down": _array(8, 4)}


def _ring(query: Any, key: Any) -> Any:
    """Compute attention scores with the keys of all devices, passed around a ring."""
    size = lax.axis_size("x") if hasattr(lax, "axis_size") else 2
    steps = [(i, (i + 1) % size) for i in range(size)]

    def step(carried: Any, _: Any) -> Any:
        total, keys = carried
        scores = query @ keys.T
        return (total + scores, lax.ppermute(keys, "x", steps)), scores.max()

    start = jnp.zeros((query.shape[0], key.shape[0]), query.dtype)
    (total, _), largest = lax.scan(step, (start, key), None, length=size)
    return total, largest[None]


def _experts(x: Any, weights: Any) -> Any:
    """Send rows to the devices of their experts, and back."""
    rows = lax.all_to_all(x.reshape(2, -1, x.shape[1]), "x", 0, 0)
    return lax.all_to_all(jnp.tanh(rows @ weights[0]), "x", 0, 0).reshape(x.shape)


def _scanned(x: Any, w: Any, mesh: Mesh) -> Any:
    total = partial(SHARD_MAP, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)(lambda a: lax.psum(a, "x"))

    def layer(carried: Any, own: Any) -> Any:
        half = total(carried) / 2
        return jnp.concatenate([half, half]) @ own, half.sum()

    return lax.scan(layer, x, w)


def _convolutions(x: Any, weights: Any) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    hidden = jax.nn.relu(lax.conv_general_dilated(x, weights, (1, 1), "SAME", dimension_numbers=dims))
    pooled = lax.reduce_window(hidden, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jnp.pad(pooled, ((0, 0), (1, 1), (0, 0), (0, 0))), jnp.argmax(pooled.reshape(x.shape[0], -1), 1)


def _models(mesh: Mesh) -> dict[str, tuple[Function, tuple[Any, ...]]]:
    s = partial(_sharding, mesh)
    both, rows = ("x", "y"), s(("x", "y"))
    manual = partial(SHARD_MAP, mesh=mesh, check_vma=False)
    batch = (_array(16, 6), _array(16, 4))
    constant, mask = _array(16, 8), np.repeat(np.arange(8)[:, None] < 4, 4, 1)
    return {
        "mlp": (
            jax.jit(partial(_mlp, mesh=mesh), in_shardings=(s("x"), s(None, "y"), s("y")), out_shardings=s("x")),
            (_array(8, 16), _array(16, 32) / 4, _array(32, 16) / 4),
        ),
        "attention": (
            jax.jit(_attention, in_shardings=(s("x"), *[s(None, "y")] * 3, s("y")), out_shardings=s("x")),
            (_array(4, 8, 16), *[_array(16, 16) / 8 for _ in range(4)]),
        ),
        "data parallel": (
            jax.jit(_step, in_shardings=(s(), rows, rows), out_shardings=s()), (_weights(), *batch),
        ),
        "data parallel by psum": (
            jax.jit(manual(partial(_step, reduce=lambda g: lax.psum(g, both) / 4), in_specs=(P(), P(both), P(both)),
                           out_specs=P())),
            (_weights(), *batch),
        ),
        "other axes": (
            jax.jit(_step, in_shardings=(None, s("x"), s("y")), out_shardings=s()),
            (_weights(), *batch),
        ),
        "sharded weights": (
            jax.jit(lambda x, up, down: jax.nn.relu(x @ up) @ down, in_shardings=(rows,) * 3, out_shardings=rows),
            (_array(8, 16), _array(16, 32), _array(32, 16)),
        ),
        "convolutions": (
            jax.jit(_convolutions, in_shardings=(rows, s()), out_shardings=(rows, s("x"))),
            (_array(8, 6, 6, 3), _array(3, 3, 3, 4) / 4),
        ),
        "ring": (
            jax.jit(manual(_ring, in_specs=(P("x"), P("x")), out_specs=(P("x"), P("x")))), (_array(8, 4), _array(8, 4)),
        ),
        "experts": (
            jax.jit(manual(_experts, in_specs=(P("x"), P("x")), out_specs=P("x"))), (_array(8, 4), _array(2, 4, 4)),
        ),
        "scan": (
            jax.jit(partial(_scanned, mesh=mesh), in_shardings=(s("x"), s(None, "y")),
                    out_shardings=(s(None, "y"), s())),
            (_array(8, 4), _array(3, 4, 4) / 4),
        ),
        "branches": (
            jax.jit(manual(lambda x: lax.cond(lax.axis_index("x") == 0, lambda a: a + 1, lambda a: a * 2, x),
                           in_specs=P("x"), out_specs=P("x"))),
            (_array(8, 4),),
        ),
        "some axes": (
            jax.jit(SHARD_MAP(lambda x: lax.psum(x * 2, "x"), mesh=mesh, in_specs=P("x"), out_specs=P(),
                              axis_names={"x"}),
                    in_shardings=s("x", "y"), out_shardings=s(None, "y")),
            (_array(8, 4),),
        ),
        "constants": (
            jax.jit(lambda x: jax.nn.relu(x @ constant) @ constant.T, in_shardings=s(None, "y"), out_shardings=s("x")),
            (_array(8, 16),),
        ),
        "a mask with parts of one value": (
            jax.jit(lambda x, w, v: jnp.where(mask, x @ w, v) @ w.T @ w, in_shardings=(s("x", "y"), s("y"), s("x")),
                    out_shardings=s("x")),
            (_array(8, 6), _array(6, 4), _array(8, 4)),
        ),
        "complex": (
            jax.jit(lambda z: z * z + 1j * jnp.conj(z), in_shardings=s("x"), out_shardings=s("y")),
            ((_array(8, 4) + 1j * _array(8, 4)).astype(np.complex64),),
        ),
        "random": (
            jax.jit(lambda key, x: x + jax.random.normal(key, x.shape), in_shardings=(None, s("x"))),
            (jax.random.PRNGKey(0), _array(8, 4)),
        ),
    }  # fmt: skip


MODELS = _models(MESHES["2x2"])
WRITTEN = [("shardy", name) for name in MODELS] + [("xla", name) for name in MODELS if name != "some axes"]
"""The forms of shardings that JAX writes, for each model; some manual axes have no form of XLA that JAX exports."""


@pytest.mark.parametrize(("partitioner", "name"), WRITTEN)
def test_models(partitioner: str, name: str) -> None:
    with _partitioner(partitioner):
        function, args = _models(MESHES["2x2"])[name]
        _compare(function, MESHES["2x2"], *args)


def test_another_order_of_devices() -> None:
    """Ranks are numbered as the devices of the mesh, in any order."""
    mesh = Mesh(np.array(jax.devices())[[3, 1, 0, 2]].reshape(2, 2), ("a", "b"))

    def function(x: Any) -> Any:
        return lax.with_sharding_constraint(x @ x.T, _sharding(mesh, "b", "a")) * 2

    shardings = {"in_shardings": _sharding(mesh, "a", "b"), "out_shardings": _sharding(mesh, "a")}
    _compare(jax.jit(function, **shardings), mesh, _array(8, 4))


def _random_spec(random: np.random.Generator, shape: Sequence[int], mesh: Mesh) -> P:
    """Return a sharding of a shape by axes that divide its dims."""
    free = list(mesh.axis_names)
    spec: list[Any] = []
    for dim in shape:
        choice = random.integers(0, 4)
        if choice == 3 and len(free) > 1 and dim % mesh.size == 0:
            spec.append(tuple(free))
            free = []
        elif choice and free and dim % mesh.shape[free[-1]] == 0:
            spec.append(free.pop(int(random.integers(0, len(free)))) if dim % mesh.shape["x"] == 0 else None)
        else:
            spec.append(None)
    return P(*spec)


def _grown(random: np.random.Generator, values: list[Any], mesh: Mesh) -> Any:
    """Return a random operation on values whose dims are 4 and 8."""
    x = values[int(random.integers(len(values)))]
    others = [each for each in values if each.shape == x.shape]
    y = others[int(random.integers(len(others)))]
    axis = int(random.integers(x.ndim))
    operations: list[Callable[[], Any]] = [
        lambda: x + y,
        lambda: jnp.tanh(x) * y,
        lambda: jnp.where(x > y, x, 0.5),
        lambda: jnp.swapaxes(x, axis, -1),
        lambda: jnp.swapaxes(x, -1, -2) @ y / 8,
        lambda: x @ jnp.swapaxes(y, -1, -2) / 8,
        lambda: x - x.mean(axis, keepdims=True),
        lambda: x / (1 + jnp.abs(x).max(axis, keepdims=True)),
        lambda: jax.nn.softmax(x, axis),
        lambda: jnp.concatenate([x, y], axis)[tuple([slice(None)] * axis + [slice(0, x.shape[axis])])],
        lambda: jnp.flip(x, axis),
        lambda: jnp.cumsum(x, axis) / 8,
        lambda: jnp.sort(x, axis),
        lambda: jnp.roll(x, 1, axis),
        lambda: jnp.take(x, jnp.arange(x.shape[axis])[::-1], axis),
        lambda: x.reshape(-1, x.shape[-1]).sum(0) * jnp.ones_like(x),
        lambda: x.reshape((2, x.shape[0] // 2, *x.shape[1:])).sum(0).repeat(2, 0),
        lambda: lax.with_sharding_constraint(x, NamedSharding(mesh, _random_spec(random, x.shape, mesh))),
        lambda: lax.with_sharding_constraint(x, NamedSharding(mesh, _random_spec(random, x.shape, mesh))),
    ]
    return operations[int(random.integers(len(operations)))]()


@pytest.mark.sample(40)
@pytest.mark.parametrize("seed", range(120))
def test_random_programs(seed: int) -> None:
    """Programs of operators with any shardings of inputs, outputs, and values in between."""
    mesh = list(MESHES.values())[seed % 3]
    random = np.random.default_rng(seed)
    shapes = [[(8, 8), (8, 4), (4, 8, 4), (4, 4)][int(random.integers(4))] for _ in range(3)]

    def function(*inputs: Any) -> Any:
        choices = np.random.default_rng(seed)
        values = list(inputs)
        for _ in range(4 + seed % 9):
            values.append(_grown(choices, values, mesh))
        return values[-1], values[-3]

    inputs = [_array(*shape) for shape in shapes]
    shardings = tuple(NamedSharding(mesh, _random_spec(random, shape, mesh)) for shape in shapes)
    results = jax.eval_shape(function, *inputs)
    out = tuple(NamedSharding(mesh, _random_spec(random, each.shape, mesh)) for each in results)
    _compare(jax.jit(function, in_shardings=shardings, out_shardings=out), mesh, *inputs, tolerance=2e-5)


def test_arguments_of_the_function() -> None:
    """A rank's model takes whole arguments and returns its parts of the results."""
    mesh = MESHES["2"]
    function = jax.jit(
        lambda p, x: x @ p["w"], in_shardings=(None, _sharding(mesh, "x")), out_shardings=_sharding(mesh, "x")
    )
    w, x = _array(4, 3), _array(8, 4)
    exported = export.export(function)({"w": w}, x)
    compiled = mirlo.compile(exported, TARGET, ranks=2, rank=1, opt_level=0, cache=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANK", "1")
        patch.setenv("WORLD_SIZE", "2")
        np.testing.assert_allclose(np.asarray(compiled.jax({"w": w}, x)), (x @ w)[4:], rtol=1e-5)
    assert compiled.inputs[1].shape == (4, 4)


def test_without_ranks() -> None:
    mesh = MESHES["2"]
    exported = export.export(jax.jit(lambda x: x + 1, in_shardings=_sharding(mesh, "x")))(_array(4))
    with pytest.raises(mirlo.MirloError, match="compile it with ranks"):
        mirlo.compile(exported, opt_level=0, cache=False)
    with pytest.raises(mirlo.MirloError, match="ranks"):
        mirlo.compile(exported, TARGET, ranks=4, opt_level=0, cache=False)
