"""GatedDeltaNet against numpy: ONNX Runtime has it on GPUs only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError

NAMES = ["query", "key", "value", "ends", "decay", "beta", "initial_state", "a_log", "dt_bias", "count", "active"]
RULES = {"linear": "", "gated": "g", "delta": "b", "gated_delta": "gb"}


def make(given: dict[str, np.ndarray], dims: dict[str, list[Any]] | None = None, **attributes: Any) -> Any:
    listed = [name if name in given else "" for name in NAMES]
    while not listed[-1]:
        listed.pop()
    node = helper.make_node("GatedDeltaNet", listed, ["y", "s"], domain="com.microsoft", **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), (dims or {}).get(name, list(array.shape))
        )
        for name, array in given.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(given["query"].dtype)
    outputs = [helper.make_tensor_value_info("y", kind, None), helper.make_tensor_value_info("s", 1, None)]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=imports, ir_version=10)


def step(
    seed: int, batch: int, length: int, keys: int, heads: int, size: int, width: int, rank: int = 3, each: bool = False
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    outer = (batch * length,) if rank == 3 else (batch, length)

    def floats(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    return {
        "query": floats(*outer, keys, size), "key": floats(*outer, keys, size) / size**0.5,
        "value": floats(*outer, heads, width), "decay": -np.abs(floats(*outer, heads, *([size] if each else []))),
        "beta": random.uniform(0, 1, (*outer, heads)).astype(np.float32),
        "initial_state": floats(batch, heads, width, size),
    }  # fmt: skip


def reference(
    given: dict[str, np.ndarray], batch: int, rule: str, norm: bool = False, scale: float = 0
) -> list[np.ndarray]:
    """Return results and states in f64, one token after the other."""
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    *_, keys, size = wide["query"].shape
    heads, width = wide["value"].shape[-2:]
    q, k = (wide[name].reshape(batch, -1, keys, size) for name in ("query", "key"))
    v = wide["value"].reshape(batch, -1, heads, width)
    if norm:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    length = q.shape[1]
    decay, beta = np.zeros((batch, length, heads, 1)), np.ones((batch, length, heads))
    if "g" in RULES[rule]:
        decay = wide["decay"].reshape(batch, length, heads, -1)
        if "a_log" in wide:
            decay = -np.exp(wide["a_log"])[:, None] * np.log1p(np.exp(decay + wide["dt_bias"][:, None]))
    if "b" in RULES[rule]:
        beta = wide["beta"].reshape(batch, length, heads)
    states = wide["initial_state"].swapaxes(2, 3).copy()
    y = np.zeros((batch, length, heads, width))
    for b in range(batch):
        for h in range(heads):
            state = states[b, h]
            for t in range(length):
                key, query = k[b, t, h * keys // heads], q[b, t, h * keys // heads]
                state = state * np.exp(decay[b, t, h])[:, None]
                new = beta[b, t, h] * (v[b, t, h] - (state.T @ key if "b" in RULES[rule] else 0))
                state = state + np.outer(key, new)
                y[b, t, h] = state.T @ query * (scale or size**-0.5)
            states[b, h] = state
    return [y.reshape(wide["value"].shape), states.swapaxes(2, 3)]


def agree(model: Any, given: dict[str, np.ndarray], wanted: list[np.ndarray], tolerance: float = 2e-5) -> None:
    found = mirlo.compile(model, cache=False).run(given)
    for name, expected in zip("ys", wanted, strict=True):
        assert found[name].shape == expected.shape
        bound = tolerance * max(1, np.abs(expected).max())
        np.testing.assert_allclose(found[name].astype(np.float64), expected, rtol=tolerance, atol=bound, err_msg=name)


@pytest.mark.sample(8)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("rank", "each"), ((3, False), (4, False), (3, True), (4, True)))
def test_rules(rule: str, rank: int, each: bool) -> None:
    if each and "g" not in RULES[rule]:
        pytest.skip("no decay")
    given = step(0, 2, 5, 2, 4, 8, 6, rank, each)
    agree(make(given, update_rule=rule), given, reference(given, 2, rule))


@pytest.mark.parametrize("length", (1, 7))
def test_gates_and_norms(length: int) -> None:
    given = step(1, 2, length, 2, 2, 8, 8)
    given |= {"a_log": np.array([0.1, -0.5], np.float32), "dt_bias": np.array([0.3, -0.2], np.float32)}
    attributes = {"gate_activation": "qwen", "beta_activation": "sigmoid", "qk_l2_norm": 1, "scale": 0.5}
    wanted = dict(given, beta=(1 / (1 + np.exp(-given["beta"].astype(np.float64)))))
    agree(make(given, **attributes), given, reference(wanted, 2, "gated_delta", norm=True, scale=0.5))


@pytest.mark.sample(0)
@pytest.mark.parametrize("rank", (3, 4))
def test_packed(rank: int) -> None:
    given = step(2, 2, 4, 2, 4, 8, 6, rank)
    outer = given["query"].shape[:-2]
    parts = [given[name].reshape(*outer, -1) for name in ("query", "key", "value")]
    packed = {name: array for name, array in given.items() if name not in ("key", "value")}
    packed["query"] = np.concatenate(parts, -1)
    wanted = reference(given, 2, "gated_delta")
    agree(make(packed), packed, wanted)


@pytest.mark.sample(0)
def test_lengths_of_run_time() -> None:
    dims = {
        "query": ["t", 2, 8], "key": ["t", 2, 8], "value": ["t", 4, 6], "decay": ["t", 4], "beta": ["t", 4],
        "initial_state": ["b", 4, 6, 8],
    }  # fmt: skip
    executable = mirlo.compile(make(step(3, 1, 1, 2, 4, 8, 6), dims), cache=False)
    for batch, length in ((1, 1), (2, 3), (1, 9), (3, 1)):
        given = step(4, batch, length, 2, 4, 8, 6)
        for name, expected in zip("ys", reference(given, batch, "gated_delta"), strict=True):
            np.testing.assert_allclose(executable.run(given)[name], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sample(0)
def test_half_precision() -> None:
    """The recurrence is computed in f32; only results are rounded."""
    given = step(5, 1, 6, 2, 2, 8, 8)
    given |= {name: given[name].astype(np.float16) for name in ("query", "key", "value")}
    found = mirlo.compile(make(given), cache=False).run(given)
    y, state = reference(given, 1, "gated_delta")
    assert found["y"].dtype == np.float16
    np.testing.assert_allclose(found["y"], y, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found["s"], state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "attributes", "message"),
    (
        ({"ends": np.array([0, 5, 10], np.int32)}, {}, "input 'cu_seqlens' is not supported"),
        ({}, {"state_update_capacity": 2}, "'state_update_capacity' must be 0"),
        ({}, {"update_rule": "new"}, "'update_rule' must be one of linear"),
        ({"beta": None}, {}, "input 'beta' is needed"),
        ({"initial_state": None}, {}, "input 'initial_state' is needed"),
        ({}, {"gate_activation": "qwen"}, "input 'a_log' is needed"),
        ({}, {"gate_activation": "x"}, "'gate_activation' must be none or qwen"),
        ({"value": np.zeros((10, 3, 6), np.float32)}, {}, "the 3 heads of values must be a multiple of the 2 heads"),
        ({"key": None}, {}, "inputs 'key' and 'value' must both be given"),
    ),
)
def test_errors(change: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    given = {name: array for name, array in (step(0, 2, 5, 2, 4, 8, 6) | change).items() if array is not None}
    with pytest.raises(OnnxImportError, match=message):
        mirlo.compile(make(given, **attributes), cache=False)
