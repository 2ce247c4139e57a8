"""PagedAttention against numpy: ONNX Runtime has it on GPUs only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.frontends.onnx.caches import find_paged_inputs
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.reading import read_model
from mirlo.runtime.errors import MirloError

HEADS, SHARED, SIZE, BLOCK = 4, 2, 16, 8
NAMES = ["query", "key", "value", "key_cache", "value_cache", "ends", "past", "table", "cos", "sin", "slots", "sink"]
NAMES += ["q_norm", "k_norm", "k_scale", "v_scale", "hints"]


def make(given: dict[str, np.ndarray], ends: str = "batch + 1", **attributes: Any) -> Any:
    """Return a model of one node whose dims are dynamic."""
    dims: dict[str, list[Any]] = {
        "query": ["t", given["query"].shape[1]], "key": ["t", SHARED * SIZE], "value": ["t", SHARED * SIZE],
        "key_cache": ["n", BLOCK, SHARED, SIZE], "value_cache": ["n", BLOCK, SHARED, SIZE], "ends": [ends],
        "past": ["batch"], "table": ["batch", "blocks"], "slots": ["t"],
    }  # fmt: skip
    listed = [name if name in given else "" for name in NAMES]
    while not listed[-1]:
        listed.pop()
    outputs = ["y", "key_cache_out", "value_cache_out"]
    attributes = {"num_heads": HEADS, "kv_num_heads": SHARED} | attributes
    node = helper.make_node("PagedAttention", listed, outputs, domain="com.microsoft", **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), dims.get(name, list(array.shape))
        )
        for name, array in given.items()
    ]
    kinds = [given[name].dtype for name in ("query", "key_cache", "value_cache")]
    made = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), None)
        for name, kind in zip(outputs, kinds, strict=True)
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", inputs, made), opset_imports=imports, ir_version=10)


def step(
    random: np.random.Generator, new: list[int], past: list[int], dtype: Any = np.float32
) -> dict[str, np.ndarray]:
    """Return the inputs for this number of new tokens of each sequence, with blocks in any order."""
    tokens, width = sum(new), max(-(-(a + b) // BLOCK) for a, b in zip(new, past, strict=True)) + 1
    blocks = len(new) * width + 3

    def floats(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(dtype)

    return {
        "query": floats(tokens, HEADS * SIZE), "key": floats(tokens, SHARED * SIZE),
        "value": floats(tokens, SHARED * SIZE), "key_cache": floats(blocks, BLOCK, SHARED, SIZE),
        "value_cache": floats(blocks, BLOCK, SHARED, SIZE), "ends": np.cumsum([0, *new]).astype(np.int32),
        "past": np.array(past, np.int32),
        "table": random.permutation(blocks)[: len(new) * width].reshape(len(new), width).astype(np.int32),
    }  # fmt: skip


def rotated(x: np.ndarray, position: int, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    half = x.shape[-1] // 2
    a, b, c, s = x[..., :half], x[..., half:], cos[position], sin[position]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def reference(
    given: dict[str, np.ndarray], window: int = -1, softcap: float = 0, causal: bool = True
) -> list[np.ndarray]:
    """Return the results and the caches, in f64, one token after the other."""
    wide = {name: array.astype(np.float64 if array.dtype.kind == "f" else np.int64) for name, array in given.items()}
    caches = [wide["key_cache"].copy(), wide["value_cache"].copy()]
    flat = [cache.reshape(-1, SHARED, SIZE) for cache in caches]
    query = wide["query"].reshape(-1, HEADS, SIZE)
    parts = [wide[name].reshape(-1, SHARED, SIZE) for name in ("key", "value")]
    if "q_norm" in given:
        query, parts[0] = (
            x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * wide[name]
            for x, name in ((query, "q_norm"), (parts[0], "k_norm"))
        )
    query = query.copy()
    result = np.zeros((len(query), HEADS, SIZE))
    ends, past, table = wide["ends"], wide["past"], wide["table"]
    for i in range(len(past)):
        for token in range(ends[i], ends[i + 1]):
            at = past[i] + token - ends[i]
            key = parts[0][token]
            if "cos" in given:
                query[token], key = (rotated(x, at, wide["cos"], wide["sin"]) for x in (query[token], key))
            slot = wide["slots"][token] if "slots" in given else table[i, at // BLOCK] * BLOCK + at % BLOCK
            if slot >= 0:
                flat[0][slot], flat[1][slot] = key, parts[1][token]
    for i in range(len(past)):
        total = past[i] + ends[i + 1] - ends[i]
        rows = [table[i, j // BLOCK] * BLOCK + j % BLOCK for j in range(total)]
        for token in range(ends[i], ends[i + 1]):
            at = past[i] + token - ends[i]
            first, last = max(0, at - window + 1) if window > 0 else 0, at + 1 if causal else total
            for head in range(HEADS):
                keys, values = (each[rows[first:last], head * SHARED // HEADS] for each in flat)
                scores = keys @ query[token, head] * SIZE**-0.5
                scores = softcap * np.tanh(scores / softcap) if softcap else scores
                weights = np.exp(scores - scores.max())
                below = weights.sum() + (np.exp(wide["sink"][head] - scores.max()) if "sink" in given else 0)
                result[token, head] = weights @ values / below
    return [result.reshape(len(query), -1), *caches]


def agree(executable: Any, given: dict[str, np.ndarray], tolerance: float = 1e-5, **options: Any) -> None:
    found = executable.run(given)
    for name, wanted in zip(("y", "key_cache_out", "value_cache_out"), reference(given, **options), strict=True):
        np.testing.assert_allclose(found[name].astype(np.float64), wanted, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.fixture(scope="module")
def plain() -> Any:
    """Return a model of one node without options."""
    return mirlo.compile(make(step(np.random.default_rng(0), [1], [0])), cache=False)


STEPS = [([1, 1, 1], [5, 0, 23]), ([9], [0]), ([1, 12, 3], [7, 0, 8]), ([0, 2], [4, 31]), ([1], [63])]


@pytest.mark.sample(0)
@pytest.mark.parametrize("dtype", (np.float32, np.float16))
def test_sequences_of_any_length(plain: Any, dtype: Any) -> None:
    """One executable for prompts and single tokens, together or apart, from the first token on."""
    random = np.random.default_rng(0)
    narrow = dtype == np.float16
    executable = mirlo.compile(make(step(random, [1], [0], dtype)), cache=False) if narrow else plain
    for new, past in STEPS:
        given = step(random, new, past, dtype)
        agree(executable, given, 1e-5 if dtype == np.float32 else 5e-3)


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("extra", "attributes", "options"),
    (
        ((), {"local_window_size": 5}, {"window": 5}),
        ((), {"softcap": 2.0}, {"softcap": 2.0}),
        ((), {"is_causal": 0}, {"causal": False}),
        (("sink",), {}, {}),
        (("cos", "sin"), {"do_rotary": 1}, {}),
        (("q_norm", "k_norm", "cos", "sin"), {"do_rotary": 1}, {}),
        (("hints",), {}, {}),
    ),
)
def test_forms(extra: tuple[str, ...], attributes: dict[str, Any], options: dict[str, Any]) -> None:
    random = np.random.default_rng(1)
    angles = np.outer(np.arange(128), 100.0 ** (-np.arange(SIZE // 2) / SIZE))
    others = {
        "sink": random.standard_normal(HEADS), "cos": np.cos(angles), "sin": np.sin(angles),
        "q_norm": random.uniform(0.5, 2, SIZE), "k_norm": random.uniform(0.5, 2, SIZE),
    }  # fmt: skip
    added = {name: array.astype(np.float32) for name, array in others.items() if name in extra}
    added |= {"hints": np.array([1, 64], np.int32)} if "hints" in extra else {}
    executable = mirlo.compile(make(step(random, [1], [0]) | added, **attributes), cache=False)
    for new, past in STEPS[:4]:
        agree(executable, step(random, new, past) | added, **options)


@pytest.mark.sample(0)
def test_steps_on_arrays_of_the_caller() -> None:
    """The memory of a step is known before it, whatever the dims are called: calls are prepared, and write in place."""
    random = np.random.default_rng(4)
    executable = mirlo.compile(make(step(random, [1], [0]), "ends"), cache=False)
    assert not executable.artifact.metadata.get("allocates")
    given = step(random, *STEPS[2])
    names = {"key_cache": "key_cache_out", "value_cache": "value_cache_out"}
    caches, wanted = {name: given[name].copy() for name in names}, reference(given)
    call = executable.updating(caches, names)
    assert call is not None
    found = call.run({name: array for name, array in given.items() if name not in names})
    for made, expected in zip((found["y"], *caches.values()), wanted, strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)
    given["past"] = np.array([7, 0, 800], np.int32)
    with pytest.raises(MirloError, match="the most new tokens of a sequence, and the most blocks"):
        call.run({name: array for name, array in given.items() if name not in names})


@pytest.mark.sample(0)
def test_packed_queries() -> None:
    random = np.random.default_rng(2)
    given = step(random, [3, 1], [0, 9])
    packed = {name: array for name, array in given.items() if name not in ("key", "value")}
    packed["query"] = np.concatenate([given[name] for name in ("query", "key", "value")], 1)
    found = mirlo.compile(make(packed), cache=False).run(packed)["y"]
    np.testing.assert_allclose(found, reference(given)[0], rtol=1e-5, atol=1e-5)


def test_slots_that_are_given() -> None:
    """A slot of -1 writes nothing."""
    random = np.random.default_rng(3)
    given = step(random, [3, 2], [4, 9])
    positions = [*range(4, 7), *range(9, 11)]
    rows = [0, 0, 0, 1, 1]
    slots = [given["table"][i, p // BLOCK] * BLOCK + p % BLOCK for i, p in zip(rows, positions, strict=True)]
    given["slots"] = np.array([slots[0], -1, *slots[2:4], -1], np.int32)
    agree(mirlo.compile(make(given), cache=False), given)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ("PER_TENSOR", "PER_CHANNEL"))
def test_int8_caches(kind: str) -> None:
    random = np.random.default_rng(4)
    given = step(random, [1, 5], [12, 3])
    shape = (1,) if kind == "PER_TENSOR" else (SHARED, 1, SIZE)
    scales = {name: random.uniform(0.02, 0.04, shape).astype(np.float32) for name in ("k_scale", "v_scale")}
    for name, part, scale in (("key_cache", "key", "k_scale"), ("value_cache", "value", "v_scale")):
        given[name] = random.integers(-128, 128, given[name].shape).astype(np.int8)
        each = scales[scale].reshape(-1, 1 if kind == "PER_TENSOR" else SIZE)
        # Multiples of the scale are stored exactly.
        codes = random.integers(-128, 128, (len(given[part]), SHARED, SIZE))
        given[part] = (codes * each).astype(np.float32).reshape(len(codes), -1)
    found = mirlo.compile(make(given | scales, k_quant_type=kind, v_quant_type=kind), cache=False).run(given | scales)
    real = dict(given)
    for name, scale in (("key_cache", "k_scale"), ("value_cache", "v_scale")):
        real[name] = (given[name] * scales[scale].reshape(-1, 1 if kind == "PER_TENSOR" else SIZE)).astype(np.float32)
    wanted = reference(real)
    np.testing.assert_allclose(found["y"], wanted[0], rtol=1e-4, atol=1e-4)
    for name, scale, expected in (("key_cache", "k_scale", wanted[1]), ("value_cache", "v_scale", wanted[2])):
        steps = expected / scales[scale].reshape(-1, 1 if kind == "PER_TENSOR" else SIZE)
        np.testing.assert_array_equal(found[f"{name}_out"], np.rint(steps))


@pytest.mark.parametrize("totals", ((4, 19), (8, 33)))
def test_rows_that_hold_nothing_are_not_read(plain: Any, totals: tuple[int, int]) -> None:
    """Neither by a prompt, nor by a token of each sequence, which reads pages where they are."""
    for new in ([1, 2], [1, 1]):
        given = step(np.random.default_rng(5), new, [total - count for total, count in zip(totals, new, strict=True)])
        expected = reference(given)[0]
        for name in ("key_cache", "value_cache"):
            used = np.zeros(given[name].shape[:2], bool)
            for i, total in enumerate(totals):
                for j in range(total):
                    used[given["table"][i, j // BLOCK], j % BLOCK] = True
            given[name][~used] = np.nan
        np.testing.assert_allclose(plain.run(given)["y"], expected, rtol=1e-5, atol=1e-5)


def test_caches_stay_in_place(plain: Any) -> None:
    random, executable = np.random.default_rng(6), plain
    assert executable.aliases == {"key_cache_out": "key_cache", "value_cache_out": "value_cache"}
    given = step(random, [2, 1], [3, 9])
    wanted = reference(given)
    out = {f"{name}_out": given[name] for name in ("key_cache", "value_cache")}
    np.testing.assert_allclose(executable.run(given, out=out)["y"], wanted[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(given["key_cache"], wanted[1], rtol=1e-6)


def require_safe(executable: Any, given: dict[str, np.ndarray]) -> None:
    try:
        found = executable.run(given)
    except MirloError as error:
        texts = ("the most new tokens of a sequence", "which is read, has no pages")
        assert any(text in str(error) for text in texts), error
    else:
        assert found["y"].shape == (len(given["query"]), HEADS * SIZE)


@pytest.mark.parametrize("new", ([2, 1, 4], [1, 1, 1]))
def test_tables_and_lengths_that_lie(plain: Any, new: list[int]) -> None:
    """Whatever the numbers are, nothing outside of the arrays is read or written."""
    random = np.random.default_rng(7)
    for _ in range(60):
        given = step(random, new, [3, 9, 0])
        for name in ("ends", "past", "table"):
            for _ in range(int(random.integers(3))):
                place = tuple(int(random.integers(size)) for size in given[name].shape)
                given[name][place] = random.choice([-1, 0, 5, 100, 2**31 - 1, -(2**31)])
        require_safe(plain, given)


@pytest.mark.parametrize("new", ([2, 1], [1, 1]))
def test_caches_without_pages(plain: Any, new: list[int]) -> None:
    """New tokens have no place, and attention has nothing to read: an error before anything is computed."""
    given = step(np.random.default_rng(8), new, [30, 2])
    given |= {name: np.zeros((0, BLOCK, SHARED, SIZE), np.float32) for name in ("key_cache", "value_cache")}
    with pytest.raises(MirloError, match="key_cache .*, which is read, has no pages"):
        plain.run(given)


@pytest.mark.parametrize(
    ("attributes", "message"),
    (
        ({"kv_cache_layout": "LATENT"}, "'kv_cache_layout' must be 'SEPARATE', got 'LATENT'"),
        ({"k_cache_dtype": "int4"}, "'k_cache_dtype' must be '', got 'int4'"),
        ({"rotary_offset": 8}, "'rotary_offset' must be 0, got 8"),
        ({"k_quant_type": "PER_TENSOR"}, "needs an i8 cache and input 'k_scale'"),
        ({"num_heads": 3}, "tokens of 3 heads are expected"),
    ),
)
def test_errors(attributes: dict[str, Any], message: str) -> None:
    given = step(np.random.default_rng(0), [1], [0])
    with pytest.raises(OnnxImportError, match=message):
        mirlo.compile(make(given, **attributes), cache=False)


@pytest.mark.parametrize("views", [(), ("Identity",), ("Cast", "Identity")])
def test_inputs_are_found_behind_views(views: tuple[str, ...]) -> None:
    nodes, name = [], "k"
    for number, view in enumerate(views):
        nodes.append(helper.make_node(view, [name], [f"v{number}"], **({"to": 1} if view == "Cast" else {})))
        name = f"v{number}"
    nodes.append(helper.make_node("PagedAttention", ["q", "q", "q", name], ["y"], domain="com.microsoft"))
    inputs = [helper.make_tensor_value_info(each, TensorProto.FLOAT, None) for each in ("q", "k")]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, []))
    assert find_paged_inputs(read_model(model, {}, "model").graph) == {"k": "cache"}
