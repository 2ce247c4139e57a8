"""Attention with caches that have room, and with beams, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.runtime.errors import InputError
from mirlo.testing.oracle import needs_new

HEADS, SIZE, BATCH, BEAMS, ROOM = 4, 8, 2, 3, 16
MASKED = ["query", "key", "value", "mask", "scores", "past_key", "past_value", "length", "width", "beams", "bias"]
MULTI = ["query", "key", "value", "bias", "mask", "scores", "past_key", "past_value", "length", "beams"]
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def step(past: int, new: int = 1) -> dict[str, np.ndarray]:
    rows = BATCH * BEAMS
    given = {name: floats(rows, new, HEADS * SIZE) for name in ("query", "key", "value")}
    given |= {name: floats(rows, HEADS, ROOM, SIZE) for name in ("past_key", "past_value")}
    return given | {"length": np.array([past], np.int32)}


def beams() -> np.ndarray:
    return RANDOM.integers(0, BEAMS, (BATCH, BEAMS, ROOM)).astype(np.int32)


def make(operator: str, given: dict[str, np.ndarray], **attributes: Any) -> Any:
    names = MASKED if operator.startswith("Decoder") else MULTI
    listed = [name if name in given else "" for name in names]
    while not listed[-1]:
        listed.pop()
    outputs = ["y", "present_key", "present_value"][: 3 if "past_key" in given else 1]
    node = helper.make_node(operator, listed, outputs, domain="com.microsoft", num_heads=HEADS, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    made = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", inputs, made), opset_imports=imports, ir_version=8)


def check(model: Any, *calls: dict[str, np.ndarray]) -> None:
    session, executable = onnxruntime.InferenceSession(model.SerializeToString()), mirlo.compile(model, cache=False)
    for given in calls:
        found = executable.run(given)
        wanted = session.run(None, {name: array.copy() for name, array in given.items()})
        for output, expected in zip(session.get_outputs(), wanted, strict=True):
            np.testing.assert_allclose(found[output.name], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.sample(0)
@needs_new
def test_caches_with_room() -> None:
    """One executable for any length of the past."""
    shared = {"past_present_share_buffer": 1}
    check(make("DecoderMaskedMultiHeadAttention", step(0), **shared), *(step(past) for past in (0, 5, ROOM - 1)))
    calls = [step(past, 3) for past in (0, 4, ROOM - 3)]
    check(make("MultiHeadAttention", calls[0]), *calls)


@pytest.mark.sample(0)
@needs_new
def test_beams() -> None:
    calls = [step(past) | {"beams": beams(), "width": np.array([BEAMS], np.int32)} for past in (0, 1, 7, ROOM - 1)]
    model = make("DecoderMaskedMultiHeadAttention", calls[0], past_present_share_buffer=1)
    check(model, *calls)
    multi = [{name: array for name, array in call.items() if name != "width"} for call in calls]
    check(make("MultiHeadAttention", multi[0]), *multi)


@pytest.mark.sample(0)
def test_masks_and_biases() -> None:
    for past in (3, 8):
        given = step(past) | {"bias": floats(3 * HEADS * SIZE), "beams": beams(), "width": np.array([BEAMS], np.int32)}
        given["mask"] = RANDOM.integers(0, 2, (BATCH * BEAMS, past + 1)).astype(np.int32)
        given["mask"][:, -1] = 1
        model = make("DecoderMaskedMultiHeadAttention", given, past_present_share_buffer=1)
        check(model, given)
        with pytest.raises(InputError, match=f"which must fit the {past + 1} columns of the mask"):
            mirlo.compile(model, cache=False).run(given | {"length": np.array([past + 1], np.int32)})


def test_keys_of_another_sequence() -> None:
    given = step(0)
    cross = {"query": given["query"], "key": given["past_key"], "value": given["past_value"]}
    check(make("DecoderMaskedMultiHeadAttention", cross), cross)


@pytest.mark.sample(0)
def test_packed_queries() -> None:
    """ONNX Runtime's CPU kernel has separate ones only."""
    given = step(4)
    packed = {name: array for name, array in given.items() if name not in ("key", "value")}
    packed["query"] = np.concatenate([given[name] for name in ("query", "key", "value")], 2)
    found, wanted = (
        mirlo.compile(make("DecoderMaskedMultiHeadAttention", each, past_present_share_buffer=1), cache=False).run(each)
        for each in (packed, given)
    )
    for name, expected in wanted.items():
        np.testing.assert_array_equal(found[name], expected)


def test_caches_stay_in_place() -> None:
    executable = mirlo.compile(make("MultiHeadAttention", step(0)), cache=False)
    assert executable.aliases == {"present_key": "past_key", "present_value": "past_value"}


def test_numbers_that_lie() -> None:
    """Beams and lengths outside of their ranges read and write nothing outside of the caches."""
    given = step(3) | {"beams": beams()}
    executable = mirlo.compile(make("MultiHeadAttention", given), cache=False)
    for wrong in (-1, BEAMS, 2**31 - 1, -(2**31)):
        given["beams"][:] = wrong
        assert np.isfinite(executable.run(given)["y"]).all()
    for wrong in (-1, ROOM + 1, 2**31 - 1):
        with pytest.raises(InputError, match="the rows of the past"):
            executable.run(given | {"length": np.array([wrong], np.int32)})


@pytest.mark.parametrize(
    ("change", "attributes", "message"),
    (
        ({}, {"past_present_share_buffer": 0}, "need each other"),
        ({}, {"past_present_share_buffer": 1, "output_qk": 1}, "'output_qk' must be 0"),
        ({"past_key": None, "past_value": None}, {"past_present_share_buffer": 1}, "needs caches of keys and values"),
        ({"beams": np.zeros((2, 3), np.int32)}, {"past_present_share_buffer": 1}, "must be .batch, beams, rows."),
    ),
)
def test_errors(change: dict[str, Any], attributes: dict[str, int], message: str) -> None:
    given = {name: array for name, array in (step(2) | change).items() if array is not None}
    with pytest.raises(OnnxImportError, match=message):
        mirlo.compile(make("DecoderMaskedMultiHeadAttention", given, **attributes), cache=False)
