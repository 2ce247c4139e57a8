"""Mixtures of experts against ONNX Runtime, or numpy where its CPU kernels lack a form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.testing import oracle
from mirlo.testing.oracle import exact_session

EXPERTS, HIDDEN, INNER = 3, 64, 32
RANDOM = np.random.default_rng(0)


def make(operator: str, x: Any, constants: dict[str, np.ndarray], names: str, **attributes: Any) -> Any:
    inputs = {"x": (F32, x), "r": (F32, [x[0] if len(x) == 2 else "t", EXPERTS])}
    made = node(operator, names, "y", domain="com.microsoft", **attributes)
    model = make_model([made], inputs, ["y"], constants, opset=21)
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


def check(model: Any, tolerance: float, *calls: tuple[np.ndarray, np.ndarray]) -> None:
    session = exact_session(model)
    agree(model, [session.run(None, dict(zip(("x", "r"), call, strict=True)))[0] for call in calls], tolerance, *calls)


def agree(model: Any, wanted: list[np.ndarray], tolerance: float, *calls: tuple[np.ndarray, np.ndarray]) -> None:
    executable = mirlo.compile(model, cache=False, jobs=1)
    for call, expected in zip(calls, wanted, strict=True):
        found = np.asarray(executable(*call))
        assert found.dtype == expected.dtype and found.shape == expected.shape
        wide = expected.astype(np.float64)
        assert np.abs(found.astype(np.float64) - wide).max() <= tolerance * np.abs(wide).max()


def floats(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def logits(tokens: int) -> np.ndarray:
    return (RANDOM.standard_normal((tokens, EXPERTS)) * 2).astype(np.float32)


def layers(columns: int, has_bias: bool = True) -> dict[str, np.ndarray]:
    made = {"w1": floats(EXPERTS, columns, HIDDEN), "w2": floats(EXPERTS, HIDDEN, INNER)}
    return made | ({"b1": floats(EXPERTS, columns), "b2": floats(EXPERTS, HIDDEN)} if has_bias else {})


GATE = {"activation_alpha": 1.702, "activation_beta": 1.0}
CASES = [("relu", 0, 1), ("gelu", 1, 2), ("silu", 0, 2), ("identity", 1, 2), ("swiglu", 1, 2), ("swiglu", 0, 3)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("activation, normalize, count", CASES)
def test_moe(activation: str, normalize: int, count: int) -> None:
    gated = activation == "swiglu"
    options = {"swiglu_fusion": 1} if gated else {}
    if count == 2:
        options |= GATE | {"swiglu_limit": 0.5} if gated else {}
    names = layers(INNER * 2 if gated else INNER)
    attributes = {"k": count, "activation_type": activation, "normalize_routing_weights": normalize}
    model = make("MoE", ["t", HIDDEN], names, "x r w1 b1 w2 b2", **attributes, **options)
    feeds = [(floats(tokens, HIDDEN) * 8, logits(tokens)) for tokens in (1, 7)]
    check(model, 1e-5, *feeds)


@pytest.mark.sample(0)
def test_moe_of_three_dims_without_bias() -> None:
    model = make("MoE", [2, 3, HIDDEN], layers(INNER, has_bias=False), "x r w1 _ w2", k=2)
    check(model, 1e-5, (floats(2, 3, HIDDEN), logits(6)))


def swiglu(gate: np.ndarray, linear: np.ndarray) -> np.ndarray:
    return gate / (1 + np.exp(-1.702 * gate)) * (linear + 1)


def routed(x: np.ndarray, r: np.ndarray, k: int, expert: Any) -> np.ndarray:
    """Return the sum over the k likeliest experts of each token, weighted by the softmax of their logits."""
    result = np.zeros(x.shape)
    for token in range(len(x)):
        chosen = np.argsort(-r[token], kind="stable")[:k]
        weights = np.exp(r[token][chosen].astype(np.float64) - r[token].max())
        for number, weight in zip(chosen, weights / weights.sum(), strict=True):
            result[token] += weight * expert(number, x[token].astype(np.float64))
    return result


@pytest.mark.sample(0)
@pytest.mark.parametrize("fusion", (0, 2))
def test_forms_of_swiglu(fusion: int) -> None:
    """Gates and values in halves, and of a third layer, which ONNX Runtime's CPU kernel does not have."""
    gate, linear, last = floats(EXPERTS, INNER, HIDDEN), floats(EXPERTS, INNER, HIDDEN), floats(EXPERTS, HIDDEN, INNER)
    weights = {"w1": gate, "w2": last, "w3": linear} if fusion == 0 else {"w1": np.hstack([gate, linear]), "w2": last}
    names = "x r w1 _ w2 _ w3" if fusion == 0 else "x r w1 _ w2"
    attributes = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": fusion, "normalize_routing_weights": 1}
    model = make("MoE", ["t", HIDDEN], weights, names, **attributes, **GATE)
    x, r = floats(5, HIDDEN), logits(5)
    wanted = routed(x, r, 2, lambda e, row: last[e] @ swiglu(gate[e] @ row, linear[e] @ row))
    agree(model, [wanted.astype(np.float32)], 1e-5, (x, r))


def quantized(bits: int, block: int, has_zeros: bool, columns: int, rows: int, number: int) -> dict[str, np.ndarray]:
    """Return packed weights, scales and zero points of a layer; block 0: a scale for each column."""
    values = RANDOM.integers(0, 256, (EXPERTS, columns, rows * bits // 8)).astype(np.uint8)
    shape = (EXPERTS, columns, rows // block) if block else (EXPERTS, columns)
    made = {f"w{number}": values, f"s{number}": RANDOM.uniform(0.5, 1, shape).astype(np.float32) / (rows * 2**bits)}
    if has_zeros:
        packed = (*shape[:-1], -(-shape[-1] * bits // 8))
        made[f"z{number}"] = RANDOM.integers(0, 256, packed).astype(np.uint8)
    return made


def dequantized(constants: dict[str, np.ndarray], number: int, bits: int) -> np.ndarray:
    """Return the weights of a layer in f64."""
    values, scales = unpacked(constants[f"w{number}"], bits), constants[f"s{number}"].astype(np.float64)
    zeros = np.full(scales.shape, 1 << (bits - 1))
    if f"z{number}" in constants:
        zeros = unpacked(constants[f"z{number}"], bits)[..., : scales.shape[-1]]
    scales, zeros = (
        np.repeat(each.reshape(*values.shape[:2], -1), values.shape[2] // (each.size // values[..., 0].size), 2)
        for each in (scales, zeros)
    )
    return (values - zeros) * scales


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    parts = packed[..., None] >> np.arange(0, 8, bits) & (1 << bits) - 1
    return parts.reshape(*packed.shape[:-1], -1).astype(np.int64)


TOLERANCES = {(2, 32): 5e-2}
"""By bits and block: where ONNX Runtime rounds activations to 8 bits."""
QUANTIZED = [(4, 16, True), (8, 0, True), (2, 32, True)]


@pytest.mark.sample(0)
@pytest.mark.parametrize("bits, block, has_zeros", QUANTIZED)
def test_quantized_moe(bits: int, block: int, has_zeros: bool) -> None:
    constants = quantized(bits, block, has_zeros, INNER * 2, HIDDEN, 1) | quantized(
        bits, block, has_zeros, HIDDEN, INNER, 2
    )
    constants |= {"b1": floats(EXPERTS, INNER * 2), "b2": floats(EXPERTS, HIDDEN)}
    names = "x r w1 s1 b1 w2 s2 b2 _ _ _" + (" z1 z2" if has_zeros else "")
    attributes = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": bits} | GATE
    attributes |= {"block_size": block} if block else {}
    model = make("QMoE", ["t", HIDDEN], constants, names, normalize_routing_weights=1, **attributes)
    calls = [(floats(count, HIDDEN) * 8, logits(count)) for count in (1, 7)]
    first, last = (dequantized(constants, number, bits) for number in (1, 2))

    def expert(number: int, row: np.ndarray) -> np.ndarray:
        inner = first[number] @ row + constants["b1"][number]
        return last[number] @ swiglu(inner[::2], inner[1::2]) + constants["b2"][number]

    agree(model, [routed(*call, 2, expert).astype(np.float32) for call in calls], 1e-5, *calls)
    check(model, TOLERANCES.get((bits, block), 1e-5), *calls)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def of_floats(kind: str, columns: int, rows: int, number: int, block: int = 0) -> tuple[dict[str, Any], np.ndarray]:
    """Return weights in floats of 4 or 8 bits with their scales, and their values in f64."""
    whole = RANDOM.uniform(0.5, 2, EXPERTS).astype(np.float32)
    if kind == "fp8":
        weights = floats(EXPERTS, columns, rows).astype(ml_dtypes.float8_e4m3fn)
        if not block:
            return {f"w{number}": weights, f"g{number}": whole}, weights.astype(np.float64) * whole[:, None, None]
        scales = RANDOM.uniform(0.5, 2, (EXPERTS, -(-columns // block), -(-rows // block))).astype(np.float32)
        each = scales.repeat(block, 1)[:, :columns].repeat(block, 2)[:, :, :rows]
        return {f"w{number}": weights, f"s{number}": scales}, weights.astype(np.float64) * each
    size = 32 if kind == "fp4" else 16
    packed = RANDOM.integers(0, 256, (EXPERTS, columns, rows // 2)).astype(np.uint8)
    shape = (EXPERTS, columns, rows // size)
    if kind == "fp4":
        scales = np.exp2(RANDOM.integers(-6, -2, shape)).astype(ml_dtypes.float8_e8m0fnu)
    else:
        scales = RANDOM.uniform(0.01, 0.2, shape).astype(ml_dtypes.float8_e4m3fn)
    values = E2M1[unpacked(packed, 4)] * scales.astype(np.float64).repeat(size, 2) * whole[:, None, None]
    return {f"w{number}": packed, f"s{number}": scales, f"g{number}": whole}, values


@oracle.needs_onnx(1, 19)
@pytest.mark.sample(0)
@pytest.mark.parametrize("kind, block", (("fp4", 0), ("nvfp4", 0), ("fp8", 0), ("fp8", 24)))
@pytest.mark.parametrize("normalize", (0, 1))
def test_experts_of_floats(kind: str, block: int, normalize: int) -> None:
    """ONNX Runtime has these on GPUs only; values are exact in f32, so numpy is the reference."""
    constants, first = of_floats(kind, INNER * 2, HIDDEN, 1, block)
    others, last = of_floats(kind, HIDDEN, INNER, 2, block)
    constants |= others | {"b1": floats(EXPERTS, INNER * 2), "b2": floats(EXPERTS, HIDDEN)}
    scales = ("s1", "s2") if "s1" in constants else ("_", "_")
    names = f"x r w1 {scales[0]} b1 w2 {scales[1]} b2" + (" _ _ _ _ _ _ _ g1 g2" if "g1" in constants else "")
    attributes = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": normalize}
    model = make("QMoE", ["t", HIDDEN], constants, names, quant_type=kind, block_size=block, **attributes, **GATE)

    def expert(number: int, row: np.ndarray) -> np.ndarray:
        inner = first[number] @ row + constants["b1"][number]
        return last[number] @ swiglu(inner[::2], inner[1::2]) + constants["b2"][number]

    calls = [(floats(count, HIDDEN) * 8, logits(count)) for count in (1, 7)]
    wanted = []
    for x, r in calls:
        found = routed(x, r, 2, expert)
        if not normalize:  # the share of the chosen experts in the softmax over all
            weights = np.exp(r.astype(np.float64))
            found *= (np.sort(weights, 1)[:, -2:].sum(1) / weights.sum(1))[:, None]
        wanted.append(found.astype(np.float32))
    agree(model, wanted, 1e-5, *calls)


@oracle.needs_onnx(1, 19)
def test_errors_of_floats() -> None:
    constants = of_floats("fp4", INNER, HIDDEN, 1)[0] | of_floats("fp4", HIDDEN, INNER, 2)[0]
    names = "x r w1 s1 _ w2 s2 _ _ _ _ _ _ _ _ g1 g2"
    assert "needs input 'fc1_global_scale'" in refused("QMoE", "x r w1 s1 _ w2 s2", constants, quant_type="fp4")
    assert "must be f8e4m3fn 3 x 32 x 4" in refused("QMoE", names, constants, quant_type="nvfp4")
    assert "must be f8e4m3fn 3 x 32 x 64 for 'fp8'" in refused("QMoE", names, constants, quant_type="fp8")
    third = constants | {"w3": constants["w1"], "s3": constants["s1"]}
    found = refused("QMoE", "x r w1 s1 _ w2 s2 _ w3 s3 _ _ _ _ _ g1 g2", third, quant_type="fp4")
    assert "a third layer has no scales of experts" in found
    zeros = constants | {"z": np.zeros((EXPERTS, INNER, 1), np.uint8)}
    assert "is not for weights of quant_type 'fp4'" in refused(
        "QMoE", "x r w1 s1 _ w2 s2 _ _ _ _ z _ _ _ g1 g2", zeros, quant_type="fp4"
    )


@pytest.mark.sample(0)
def test_weights_of_the_router() -> None:
    constants = quantized(4, 32, False, INNER, HIDDEN, 1) | quantized(4, 32, False, HIDDEN, INNER, 2)
    constants |= {"v": RANDOM.uniform(0, 1, (5, EXPERTS)).astype(np.float32)}
    names = "x r w1 s1 _ w2 s2 _ _ _ _ _ _ _ v"
    model = make("QMoE", [5, HIDDEN], constants, names, k=2, block_size=32, activation_type="silu")
    check(model, 1e-5, (floats(5, HIDDEN), logits(5)))


def refused(operator: str, names: str, constants: dict[str, np.ndarray], **attributes: Any) -> str:
    with pytest.raises(OnnxImportError) as found:
        mirlo.compile(make(operator, ["t", HIDDEN], constants, names, **attributes), cache=False)
    return str(found.value)


def test_errors() -> None:
    names, constants = "x r w1 b1 w2 b2", layers(INNER)
    assert "'k' must be from 1 to the number of experts, 3, got 7" in refused("MoE", names, constants, k=7)
    assert "relu, silu, identity, gelu, swiglu, got 'mish'" in refused("MoE", names, constants, activation_type="mish")
    assert "'use_sparse_mixer' must be 0" in refused("MoE", names, constants, use_sparse_mixer=1)
    assert "'swiglu_fusion' is 0" in refused("MoE", names, constants, activation_type="swiglu")
    wrong = constants | {"w1": floats(EXPERTS, INNER, HIDDEN + 1)}
    assert "must be 3 x columns x 64, got f32[3, 32, 65]" in refused("MoE", names, wrong)
    packed = quantized(4, 32, False, INNER, HIDDEN, 1) | quantized(4, 32, False, HIDDEN, INNER, 2)
    names = "x r w1 s1 _ w2 s2"
    assert "'quant_type' must be one of 'int', 'fp4'" in refused("QMoE", names, packed, quant_type="wfp4afp8")
    assert "2, 4 or 8 bits, got 3" in refused("QMoE", names, packed, block_size=32, expert_weight_bits=3)
    assert "do not fit 3 x 32 x 64 weights in blocks of 16" in refused("QMoE", names, packed, block_size=16)


def mixture(experts: int, chosen: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Return a mixture with this many experts, of which a token chooses some, and its weights."""
    weights = {"w1": floats(experts, INNER, HIDDEN), "w2": floats(experts, HIDDEN, INNER)}
    inputs = {"x": (F32, ["t", HIDDEN]), "r": (F32, ["t", experts])}
    made = node("MoE", "x r w1 _ w2", "y", domain="com.microsoft", k=chosen, activation_type="relu")
    made.input[:] = ["x", "r", "w1", "", "w2"]
    model = make_model([made], inputs, ["y"], weights, opset=21)
    model.opset_import.add(domain="com.microsoft", version=1)
    return model, weights


def mixed(x: np.ndarray, router: np.ndarray, weights: dict[str, np.ndarray], chosen: int) -> np.ndarray:
    """Return what a mixture computes, in 64-bit floats."""
    result = np.zeros(x.shape)
    factors = np.exp(router.astype(np.float64))
    factors /= factors.sum(1, keepdims=True)
    for token, row in enumerate(x.astype(np.float64)):
        for expert in np.argsort(-router[token], kind="stable")[:chosen]:
            inner = np.maximum(row @ weights["w1"][expert].T, 0)
            result[token] += factors[token, expert] * (inner @ weights["w2"][expert].T)
    return result


@pytest.mark.parametrize(("experts", "chosen"), [(1, 1), (2, 1), (5, 2), (5, 5)])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_experts_with_and_without_tokens(experts: int, chosen: int, target: str) -> None:
    """No token, one, and several, which choose different experts or all the same."""
    model, weights = mixture(experts, chosen)
    executable = mirlo.compile(model, target=target, cache=False)
    for tokens in (0, 1, 2, 9):
        x = floats(tokens, HIDDEN)
        routers = [RANDOM.standard_normal((tokens, experts)), np.tile(np.arange(experts), (tokens, 1))]
        for router in (each.astype(np.float32) for each in routers):
            found = np.asarray(executable(x, router))
            np.testing.assert_allclose(found, mixed(x, router, weights, chosen), rtol=1e-4, atol=1e-5)


def test_all_experts_have_the_same_kernels() -> None:
    """The number of kernels does not grow with that of the experts, but for the first write, which is not in place."""
    few, many = (
        mirlo.compile(mixture(count, 2)[0], target="llvm{cpu=znver3}", cache=False).artifact for count in (3, 12)
    )
    assert len({kernel.symbol for kernel in many.kernels}) == len({kernel.symbol for kernel in few.kernels})


def test_more_experts_than_one_list_of_sizes_has() -> None:
    """The begins and sizes of 129 experts are more than one operator binds."""
    model, weights = mixture(129, 2)
    x, router = floats(3, HIDDEN), RANDOM.standard_normal((3, 129)).astype(np.float32)
    found = np.asarray(mirlo.compile(model, cache=False)(x, router))
    np.testing.assert_allclose(found, mixed(x, router, weights, 2), rtol=1e-4, atol=1e-5)
