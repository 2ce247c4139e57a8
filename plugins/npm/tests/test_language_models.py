"""Language models as npm packages: states, generators and samplers, compared with Mirlo, ONNX Runtime, transformers."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from packages import BROWSERS, REQUIRES_TOOLS, compiled, in_browser, in_node, served

pytestmark = REQUIRES_TOOLS
EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny_language_model.py"
VOCABULARY = 320
PROMPT = [0, 5, 9, 17, 44]
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package of a decoder with weights of 4 bits, in a folder that `mirlo.generate` opens."""
    example, folder = SimpleNamespace(**runpy.run_path(str(EXAMPLE))), tmp_path_factory.mktemp("decoder")
    example.write_config(folder, VOCABULARY)
    made = example.TinyModel(VOCABULARY, 4, 0).build()
    return compiled(made, folder, "--activations", "exact", "--last-rows", "logits")


@pytest.fixture(scope="module")
def greedy(package: Path) -> list[int]:
    """Return the tokens after the prompt, chosen greedily."""
    from mirlo import generate

    model = generate.load(package.parent, activations="exact")
    tokens = model.generator(max_new_tokens=24).generate(PROMPT)
    assert isinstance(tokens, list) and isinstance(tokens[0], int)
    return [int(token) for token in tokens]


def logits_of(package: Path, tokens: Sequence[int]) -> np.ndarray:
    """Return ONNX Runtime's logits after these tokens."""
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(package.parent / "model.onnx"))
    feeds = {each.name: np.zeros((1, 2, 0, 16), np.float32) for each in session.get_inputs()}
    feeds |= {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
    logits: np.ndarray = session.run(["logits"], feeds)[0][0, -1]
    return logits


GENERATOR = 'import { Generator } from "PACKAGE/generate.js";\n'


def test_tokens_are_those_of_mirlo_and_of_onnx_runtime(package: Path, greedy: list[int]) -> None:
    result = in_node(package, GENERATOR + f"""
        const options = {{ max_new_tokens: 24, capacity: 4, chunk_size: 3, ends: [1] }};
        const generator = new Generator(await load(), options);
        const answer = await generator.generate({PROMPT});
        await generator.rewind(12);
        const fork = await generator.fork({{ max_new_tokens: 9 }});
        console.log(JSON.stringify([answer, await generator.generate(), await fork.generate()]));
    """)  # fmt: skip
    rest = greedy[12 - len(PROMPT) :]
    assert result[0] == greedy and result[1][: len(rest)] == rest and result[2] == rest[:2]
    for count in (0, 11, 23):
        assert int(logits_of(package, [*PROMPT, *greedy[:count]]).argmax()) == greedy[count]


STATE = """
const state = (await load()).state({ capacity: 4 });
const tensor = (data) => ({ data, dims: [1, data.length] });
const run = async (state, tokens) => {
  const mask = new BigInt64Array(state.length + tokens.length).fill(1n);
  const feeds = { input_ids: tensor(BigInt64Array.from(tokens, BigInt)), attention_mask: tensor(mask) };
  return state.run({ ...feeds, last_rows: new Int8Array(1) }, tokens.length);
};
const found = [];
const keep = async (state, tokens) => found.push(Array.from((await run(state, tokens)).logits.data));
"""


def test_a_state_is_rewound_and_forked(package: Path) -> None:
    result = in_node(package, STATE + """
        await keep(state, [3, 4, 5]);
        const fork = await state.fork();
        await keep(state, [6, 7]);
        await keep(fork, [8, 9, 10]);
        await keep(state, [11]);
        const left = await state.rewind(-4);
        await keep(state, [12]);
        const names = Object.keys(await run(state, [1]));
        await fork.close();
        const closed = await run(fork, [1]).catch((error) => error.message);
        console.log(JSON.stringify({ found, left, names, closed, length: state.length, capacity: state.capacity }));
    """)  # fmt: skip
    sequences = [[3, 4, 5], [3, 4, 5, 6, 7], [3, 4, 5, 8, 9, 10], [3, 4, 5, 6, 7, 11], [3, 4, 12]]
    for found, tokens in zip(result["found"], sequences, strict=True):
        np.testing.assert_allclose(found, logits_of(package, tokens), rtol=1e-4, atol=1e-4)
    facts = {name: result[name] for name in ("left", "names", "closed", "length", "capacity")}
    assert facts == {"left": 2, "names": ["logits"], "closed": "the state is closed", "length": 4, "capacity": 8}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("model.state({ size: 3 })", "a state has no option 'size'"),
        ("model.state({ capacity: 0 })", "capacity: expected a number from 1 on, found 0"),
        ("model.state({ pairs: { x: 'logits' } })", "'x' and 'logits' are no input and output of the model"),
        ("model.state({ pairs: { input_ids: 'logits' } })", "expected caches [batch, heads, rows, size]"),
        ("await model.state().rewind(1)", "cannot go back to 1 tokens: there are 0"),
        ("await model.state().run({}, 0)", "tokens: expected a number from 1 on, found 0"),
        ("await model.state({ limit: 3 }).run({}, 4)", "the state may have 3 tokens, 4 are needed"),
        ("await model.state({ capacity: 2 ** 30 }).run({}, 1)", "there is no memory for 1073741824 rows of 'past"),
        ("await model.state().run({}, 1)", "input 'input_ids' is missing"),
        ("await model.state().run({ 'past_key_values.0.key': 1 }, 1)", "'past_key_values.0.key' is part of the state"),
        ("await model.state({ capacity: 2 }).run(feeds, 1)", "has other sizes than 'past_key_values.0.key'"),
        ("new Generator(model, { topk: 1 })", "no option of a generator is named 'topk'"),
        ("new Generator(model, { top_p: 0 })", "top_p: expected a number above 0, at most 1, found 0"),
        (
            "new Generator(model, { names: { logits: 'y' } })",
            "there are no logits f32[batch, length, vocabulary]",
        ),
        ("new Generator(model, { names: { mask: 'y' } })", "the input 'attention_mask' is not known"),
        ("new Generator(model).append([320])", "a token must be from 0 to 319, found 320"),
        ("await new Generator(model).next()", "there are no tokens yet"),
    ],
)
def test_errors(package: Path, code: str, reason: str) -> None:
    result = in_node(package, GENERATOR + f"""
        const model = await load();
        const ones = (length) => ({{ data: new BigInt64Array(length).fill(1n), dims: [1, length] }});
        const feeds = {{ input_ids: ones(1), attention_mask: ones(5), last_rows: new Int8Array(1) }};
        let message = "";
        try {{ {code}; }} catch (error) {{ message = error instanceof ModelError ? error.message : error.stack; }}
        console.log(JSON.stringify(message));
    """)  # fmt: skip
    assert reason in result


def growing() -> onnx.ModelProto:
    """Return a model that appends rows to a cache, and adds to a state of a fixed size."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=2),
        helper.make_node("ReduceSum", ["present", "axis"], ["y"], keepdims=0),
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0), helper.make_node("Add", ["s", "sum"], ["t"]),
    ]  # fmt: skip
    info, kind = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [
        info("x", kind, ["n", 2, "new", 3]), info("past", kind, ["n", 2, "old", 3]), info("s", kind, ["n", 3]),
    ]  # fmt: skip
    weights = [
        helper.make_tensor("axis", TensorProto.INT64, [1], [2]),
        helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2]),
    ]
    graph = helper.make_graph(
        nodes, "growing", inputs, [info(name, kind, None) for name in ("present", "y", "t")], weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_caches_that_grow_and_states_of_a_fixed_size(tmp_path: Path) -> None:
    package, x = compiled(growing(), tmp_path), RNG.standard_normal((2, 2, 4, 3)).astype(np.float32)
    result = in_node(package, f"""
        const x = {x.transpose(2, 0, 1, 3).tolist()};
        const found = [];
        const call = async (state, i) => {{
          const rows = {{ data: Float32Array.from(x[i].flat(3)), dims: [2, 2, 1, 3] }};
          const {{ y, t }} = await state.run({{ x: rows }}, 1);
          found.push([Array.from(y.data), Array.from(t?.data ?? [])]);
        }};
        const model = await load();
        const both = model.state({{ pairs: {{ past: "present" }}, states: {{ s: "t" }}, batch: 2 }});
        for (const i of [0, 1]) await call(both, i);
        const left = await both.rewind(1);
        for (const i of [2, 3]) await call(both, i);
        await call(await both.fork(), 0);
        await call(both, 1);
        const lengths = [left, both.length];
        console.log(JSON.stringify({{ found, lengths }}));
    """)  # fmt: skip
    sequences = [[0], [0, 1], [2], [2, 3], [2, 3, 0], [2, 3, 1]]
    for (y, t), tokens in zip(result["found"], sequences, strict=True):
        assert t == []  # a state, as the cache is
        np.testing.assert_allclose(y, x[:, :, tokens].sum(2).reshape(-1), rtol=1e-5, atol=1e-5)
    assert result["lengths"] == [0, 3]


OPTIONS = [
    {"temperature": 0.7}, {"top_k": 7}, {"top_p": 0.6}, {"min_p": 0.05},
    {"temperature": 1.6, "top_k": 60, "top_p": 0.9, "min_p": 0.01},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_probabilities_are_those_of_transformers(package: Path, options: dict[str, Any]) -> None:
    torch, process = pytest.importorskip("torch"), pytest.importorskip("transformers.generation.logits_process")
    logits = (RNG.standard_normal(VOCABULARY) * 3).astype(np.float32)
    kinds = {
        "temperature": process.TemperatureLogitsWarper, "top_k": process.TopKLogitsWarper,
        "top_p": process.TopPLogitsWarper, "min_p": process.MinPLogitsWarper,
    }  # fmt: skip
    scores = torch.tensor(logits)[None]
    for name, value in options.items():
        scores = kinds[name](value)(None, scores)
    expected = torch.softmax(scores, -1)[0].numpy()
    found = in_node(package, 'import { Sampler } from "PACKAGE/sample.js";\n' + f"""
        const sampler = new Sampler({{ do_sample: true, ...{json.dumps(options)} }});
        console.log(JSON.stringify(sampler.candidates(Float32Array.from({logits.tolist()}))));
    """)  # fmt: skip
    tokens, weights = zip(*found, strict=True)
    probabilities = np.zeros(VOCABULARY)
    probabilities[list(tokens)] = np.array(weights) / sum(weights)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-4, atol=1e-7)


def test_penalties_are_those_of_transformers(package: Path) -> None:
    torch, process = pytest.importorskip("torch"), pytest.importorskip("transformers.generation.logits_process")
    logits, tokens = (RNG.standard_normal(12) * 3).astype(np.float32), [1, 2, 3, 5, 1, 2, 4, 1, 2]
    options = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_length": 20, "ends": [7]}
    processors = [
        process.RepetitionPenaltyLogitsProcessor(1.3), process.NoRepeatNGramLogitsProcessor(3),
        process.MinLengthLogitsProcessor(20, 7),
    ]  # fmt: skip
    expected = torch.tensor(logits)[None]
    for each in processors:
        expected = each(torch.tensor([tokens]), expected)
    found = in_node(package, 'import { Sampler } from "PACKAGE/sample.js";\n' + f"""
        const values = new Sampler({json.dumps(options)}).penalized(Float32Array.from({logits.tolist()}), {tokens}, 2);
        console.log(JSON.stringify(Array.from(values, (value) => (Number.isFinite(value) ? value : null))));
    """)  # fmt: skip
    values = [-np.inf if value is None else value for value in found]
    assert np.flatnonzero(np.isinf(values)).tolist() == [3, 4, 7]
    np.testing.assert_allclose(values, expected[0], rtol=1e-5)


def test_drawn_tokens_are_repeatable_and_as_frequent_as_probable(package: Path) -> None:
    result = in_node(package, GENERATOR + 'import { Sampler } from "PACKAGE/sample.js";\n' + f"""
        const model = await load();
        const options = {{ max_new_tokens: 12, do_sample: true, top_k: 40 }};
        const draw = (seed) => new Generator(model, {{ ...options, seed }}).generate({PROMPT});
        const sampler = new Sampler({{ do_sample: true, seed: 3 }});
        const counts = [0, 0, 0];
        const logits = Float32Array.from([0.1, 0.2, 0.7], Math.log);
        for (let i = 0; i < 20000; ++i) ++counts[sampler.choose(logits, [], 0)];
        console.log(JSON.stringify({{ same: [await draw(1), await draw(1)], other: await draw(2), counts }}));
    """)  # fmt: skip
    first, second = result["same"]
    assert first == second != result["other"]
    np.testing.assert_allclose(np.array(result["counts"]) / 20000, [0.1, 0.2, 0.7], atol=0.015)


@pytest.fixture
def address(package: Path) -> Iterator[str]:
    with served(package) as address:
        yield address


@pytest.mark.parametrize("browser", BROWSERS)
def test_a_browser_generates_in_a_page_and_in_a_worker(
    package: Path, address: str, browser: str, greedy: list[int]
) -> None:
    page = f"""<script type="module">
        import {{ load, loadInWorker }} from "./index.js";
        import {{ Generator }} from "./generate.js";
        const send = (value) => fetch("/result", {{ method: "POST", body: JSON.stringify(value) }});
        const answers = async (model) => {{
          const generator = new Generator(model, {{ max_new_tokens: 24, capacity: 4, chunk_size: 3 }});
          const answer = await generator.generate({PROMPT});
          await generator.rewind(12);
          const fork = await generator.fork({{ max_new_tokens: 9 }});
          return [answer, await generator.generate(), await fork.generate()];
        }};
        try {{
            const here = await answers(await load());
            const worker = await loadInWorker();
            const there = await answers(worker);
            const state = worker.state({{ limit: 3 }});
            const wrong = await state.run({{}}, 4).catch((error) => error.message);
            worker.close();
            await send({{ here, there, wrong }});
        }} catch (error) {{ await send({{ error: error.stack }}); }}
    </script>"""
    result = in_browser(browser, package, address, page)
    assert "error" not in result, result
    assert result["here"][0] == greedy and result["here"] == result["there"]
    assert "the state may have 3 tokens, 4 are needed" in result["wrong"]


@pytest.mark.parametrize("browser", BROWSERS)
def test_the_demo_page_generates(package: Path, address: str, browser: str, greedy: list[int]) -> None:
    click = f"""<script type="module">
        while (!document.body.dataset.ready) await new Promise((resolve) => setTimeout(resolve, 50));
        document.getElementById("prompt").value = "{" ".join(map(str, PROMPT))}";
        document.getElementById("generate").click();
        const time = document.getElementById("time");
        while (!time.textContent) await new Promise((resolve) => setTimeout(resolve, 50));
        await fetch("/result", {{ method: "POST", body: JSON.stringify(document.getElementById("tokens").value) }});
    </script>"""
    text = in_browser(browser, package, address, (package / "demo.html").read_text() + click)
    assert list(map(int, text.split()))[: len(greedy)] == greedy
