"""Models with PagedAttention: what their inputs may be, pages that run out, folders that do not fit."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from folders import (
    VOCABULARY,
    OnDemand,
    contiguous,
    example,
    load,
    lora_tensors,
    write_adapter,
    write_genai,
    write_lora,
)
from mirlo_llm import generate
from mirlo_llm.generate import GenerationError, LanguageModel, ModelFolderError
from mirlo_llm.generate.paged import PagedDecoder
from onnx import TensorProto, helper, numpy_helper
from test_config import edited

from mirlo.extend.runtime import OutOfPagesError

SEARCH: dict[str, Any] = {"min_length": 1000}
ROWS = 16


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("models")
    write_genai(folder / "f32"), write_genai(folder / "paged", paged=True)
    return OnDemand(lambda kind: load(folder / kind, prefix_bytes=0))


def with_limit(models: dict[str, LanguageModel], pages: int | None, prefix_bytes: int | None = None) -> LanguageModel:
    return LanguageModel(models["paged"].config, models["paged"].executable, None, prefix_bytes, pages)


def pool_of(model: LanguageModel) -> Any:
    assert isinstance(model._decoder, PagedDecoder)
    return model._decoder.pool


def tokens_of(seed: int, length: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(2, VOCABULARY, length)]


def alone(models: dict[str, LanguageModel], prompt: list[int], count: int) -> list[int]:
    found: list[int] = contiguous(models, "paged").generator(max_new_tokens=count, **SEARCH).generate(prompt)
    return found


def builder_model() -> Any:
    """Return the model with all inputs that the newest builder of onnxruntime-genai may write; pages of any size."""
    proto = example().TinyModel(VOCABULARY, 0, 0, True).build()
    graph, info = proto.graph, helper.make_tensor_value_info
    for node in graph.node:
        if node.op_type == "PagedAttention":
            node.input.extend([""] * (16 - len(node.input)) + ["attention_metadata"])
        if node.output[0] == "norm.out":
            node.output[0] = "norm.all"
            picked = helper.make_node("Gather", ["norm.all", "logits_indices"], ["norm.out"], axis=0)
    graph.node.insert([node.output[0] for node in graph.node].index("norm.all") + 1, picked)
    graph.input.extend([
        info("attention_metadata", TensorProto.INT32, [3]), info("logits_indices", TensorProto.INT32, ["selected"]),
        info("position_ids", TensorProto.INT64, [3, "tokens"]),
    ])  # fmt: skip
    for value in (*graph.input, *graph.output):
        if value.name.startswith(("past_key", "present")):
            value.type.tensor_type.shape.dim[1].dim_param = "block_size"
    graph.output[0].type.tensor_type.shape.dim[0].dim_param = "selected"
    return proto


def exported_model() -> Any:
    """Return the model with names of its own, tables of i64, and logits of the last token of each sequence."""
    proto = example().TinyModel(VOCABULARY, 0, 0, True).build()
    graph, names = proto.graph, {"cumulative_sequence_lengths": "ends", "past_sequence_lengths": "past"}
    names |= {"block_table": "table"}
    casts = [helper.make_node("Cast", [new], [old], to=TensorProto.INT32) for old, new in names.items()]
    one = numpy_helper.from_array(np.array([1], np.int64), "one")
    far = numpy_helper.from_array(np.array([1 << 30], np.int64), "far")
    graph.initializer.extend([one, far])
    head = next(i for i, node in enumerate(graph.node) if node.output[0] == "norm.out")
    graph.node[head].output[0] = "norm.all"
    rows = [helper.make_node("Slice", ["ends", "one", "far"], ["ends.after"]),
            helper.make_node("Sub", ["ends.after", "one"], ["rows"]),
            helper.make_node("Gather", ["norm.all", "rows"], ["norm.out"], axis=0)]  # fmt: skip
    nodes = [*casts, *graph.node[: head + 1], *rows, *graph.node[head + 1 :]]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in graph.input:
        if value.name in names:
            value.name, value.type.tensor_type.elem_type = names[value.name], TensorProto.INT64
    graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    return proto


@pytest.mark.sample(0)
def test_inputs_of_the_builder(models: dict[str, LanguageModel], tmp_path: Path) -> None:
    edited(write_genai(tmp_path, paged=True), "genai_config.json", "engine.dynamic_batching", {"block_size": 24})
    onnx.save(builder_model(), tmp_path / "model.onnx")
    model, prompt = generate.load(tmp_path), tokens_of(0, 30)
    assert pool_of(model).page_rows == 24
    assert {spec.shape[1] for spec in model.executable.inputs if spec.name.startswith("past_key")} == {24}
    assert model.generator(max_new_tokens=9, **SEARCH).generate(prompt) == alone(models, prompt, 9)
    assert model.generator(max_new_tokens=9, lookup=3, **SEARCH).generate(prompt) == alone(models, prompt, 9)
    engine = model.engine(slots=2)
    requests = [engine.add(tokens_of(seed, 5 + 20 * seed), max_new_tokens=5, **SEARCH) for seed in range(3)]
    assert [each.result() for each in requests] == [alone(models, list(each.prompt), 5) for each in requests]


@pytest.mark.sample(0)
def test_inputs_are_found_by_what_reads_them(models: dict[str, LanguageModel], tmp_path: Path) -> None:
    onnx.save(exported_model(), tmp_path / "model.onnx")
    edited(tmp_path, "config.json", "eos_token_id", 1)
    model, prompts = generate.load(tmp_path), [tokens_of(seed, 4 + 9 * seed) for seed in range(3)]
    assert pool_of(model).table_names == ("ends", "past", "table")
    batch = model.generator(batch=3, max_new_tokens=6, **SEARCH)
    assert batch.generate(*prompts) == [alone(models, prompt, 6) for prompt in prompts]
    with pytest.raises(GenerationError, match="1 rows of logits for .[0-9]+,. new tokens .* use lookup=0"):
        model.generator(max_new_tokens=6, lookup=2).generate([2, 3, 4] * 4)


@pytest.mark.sample(0)
def test_common_beginnings_are_in_memory_once(models: dict[str, LanguageModel]) -> None:
    model, begin = with_limit(models, None), tokens_of(0, 5 * ROWS)
    engine, pool = model.engine(slots=8), pool_of(model)
    requests = [engine.add([*begin, *tokens_of(seed, 3)], max_new_tokens=9, **SEARCH) for seed in range(8)]
    for _ in range(4):
        engine.step()
    sequences = engine._slots.pool._sequences  # type: ignore[attr-defined]
    assert len({sequence.pages[:5] for sequence in sequences}) == 1
    assert pool.used <= 5 + 8 and engine.counts.reused_tokens == 7 * len(begin)
    assert [each.result() for each in requests] == [alone(models, list(each.prompt), 9) for each in requests]
    generators = [model.generator(batch=2, max_new_tokens=4, **SEARCH), model.generator(num_beams=3, max_new_tokens=4)]
    generators[0].generate(begin, [*begin, 5]), generators[1].generate(begin)
    assert generators[0].timing.reused_tokens == 2 * len(begin) - 1
    del generators, engine, sequences, requests
    model.prefixes.clear()
    gc.collect()
    assert pool.used == 0


@pytest.mark.sample(0)
@pytest.mark.parametrize("prefix_bytes", (None, 0))
def test_engines_do_not_run_out_of_pages(models: dict[str, LanguageModel], prefix_bytes: int | None) -> None:
    """Sequences wait for pages, or give theirs to older ones; each gets the tokens that it would get alone."""
    model = with_limit(models, 6, prefix_bytes)
    engine, pool = model.engine(slots=4, chunk_size=24), pool_of(model)
    requests = [engine.add(tokens_of(seed, 10 + 7 * seed), max_new_tokens=30, **SEARCH) for seed in range(7)]
    while not engine.is_idle:
        engine.step()
        assert pool.used <= pool.counts.total <= 6
    assert engine.counts.preempted > 0
    for request in requests:
        assert request.tokens == alone(models, list(request.prompt), 30) and request.reason == "length"


def test_a_pool_bounds_the_length_of_a_sequence(models: dict[str, LanguageModel]) -> None:
    model, prompt = with_limit(models, 3), tokens_of(0, 40)
    with pytest.raises(GenerationError, match="the prompt is too long: 49 tokens are more than the 48 of a sequence"):
        model.engine().add(tokens_of(0, 49))
    found = model.generator(**SEARCH).generate(prompt)
    assert found == alone(models, prompt, 8)
    request = model.engine().add(prompt, **SEARCH)
    found = request.result()
    assert found == alone(models, prompt, 8) and request.reason == "length"


def test_pages_that_others_have(models: dict[str, LanguageModel]) -> None:
    """A generator that finds no page says so, and goes on when there is one; a request ends with an error."""
    model, prompt = with_limit(models, 4), tokens_of(0, 40)
    first, second = (model.generator(max_new_tokens=8, **SEARCH) for _ in range(2))
    first.append(prompt), second.append(tokens_of(1, 15))
    first.next(), second.next(), second.next()
    with pytest.raises(OutOfPagesError, match="pages: 6 pages of 16 tokens are needed, there may be 4: free or rewind"):
        second.generate(tokens_of(2, 16))
    request = model.engine().add(tokens_of(3, 20), max_new_tokens=3, **SEARCH)
    with pytest.raises(GenerationError, match="there are no pages for the next token: generators and forks"):
        request.result()
    found = first.generate()
    assert found == alone(models, prompt, 8)
    del first
    assert second.generate() == alone(models, second.tokens[:33], 8)  # type: ignore[arg-type]


@pytest.mark.sample(0)
@pytest.mark.parametrize("dtype", ("bf16", "f16", "i8"))
def test_pages_in_less_memory(models: dict[str, LanguageModel], dtype: str) -> None:
    """Rows are rounded once, when they are written, as those of contiguous caches are."""
    folders = [models[kind].config.folder for kind in ("f32", "paged")]
    oracle, model = (generate.load(folder, kv_cache_dtype=dtype) for folder in folders)
    prompt = tokens_of(0, 40)
    first, second = (each.generator(max_new_tokens=12, **SEARCH) for each in (oracle, model))
    first.append(prompt), second.append(prompt)
    np.testing.assert_allclose(second.logits(), first.logits(), rtol=2e-3, atol=2e-3)
    size = 16
    share = (size + 4) / (4 * size) if dtype == "i8" else 0.5  # a scale for each row of a head
    assert pool_of(model).page_bytes == share * pool_of(models["paged"]).page_bytes
    answer = second.generate()
    assert answer == first.generate()
    assert model.generator(chunk_size=7, max_new_tokens=12, **SEARCH).generate(prompt) == answer
    engine = model.engine(slots=3)
    requests = [engine.add([*prompt, *more], max_new_tokens=12, **SEARCH) for more in ([], [3], [])]
    assert [each.result() for each in requests][::2] == [answer, answer] and requests[2].reused_tokens > 32
    beams = [each.generator(num_beams=3, max_new_tokens=6).generate(prompt) for each in (oracle, model)]
    assert beams[0] == beams[1]


@pytest.mark.sample(0)
def test_adapters_share_pages_with_none_but_their_own(tmp_path: Path) -> None:
    write_lora(tmp_path / "f32"), write_lora(tmp_path / "paged", paged=True)
    path = write_adapter(tmp_path / "a.onnx_adapter", lora_tensors(2, 0))
    oracle, model = (generate.load(tmp_path / kind, adapters={"a": path}) for kind in ("f32", "paged"))
    engine, prompt = model.engine(slots=4), tokens_of(0, 40)
    search = {"max_new_tokens": 6, **SEARCH}
    requests = [engine.add(prompt, adapter=adapter, **search) for adapter in (None, "a", None, "a")]
    expected = {adapter: oracle.generator(adapter=adapter, **search).generate(prompt) for adapter in (None, "a")}
    assert [each.result() for each in requests] == [expected[each.adapter] for each in requests]
    assert expected[None] != expected["a"] and [each.reused_tokens for each in requests] == [0, 0, 39, 39]
    assert model.generator(adapter="a", **search).generate(prompt) == expected["a"]


def test_generators_of_several_threads(models: dict[str, LanguageModel]) -> None:
    """They share one pool; calls wait for each other, and forgotten sequences give pages back at any time."""
    model, answers = with_limit(models, 40), dict[int, list[int]]()
    prompts = [[*tokens_of(0, 20), *tokens_of(seed, seed)] for seed in range(8)]

    def ask(i: int) -> None:
        for _ in range(3):
            answers[i] = model.generator(max_new_tokens=8, **SEARCH).generate(prompts[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[i] for i in range(len(prompts))] == [alone(models, prompt, 8) for prompt in prompts]


HOSTILE: list[tuple[str, Any, str]] = [
    ("model.decoder.inputs.block_table", "past_sequence_lengths", "inputs.block_table' is 'past_sequence_lengths'"),
    ("model.decoder.inputs.cumulative_sequence_lengths", "x\u001b", "is 'x.x1b', attention of the model reads 'cum"),
    ("model.decoder.inputs.past_sequence_lengths", 3, "expected text, found 3"),
    ("model.decoder.inputs.past_key_names", "past_key_values.%d.value", "reads and updates other caches|defined twice"),
    ("model.decoder.num_hidden_layers", 1, "reads and updates other caches than the file says"),
    ("model.decoder.num_hidden_layers", 3, "no input is named 'past_key_values.2.key'"),
    ("model.decoder.outputs.present_key_names", "present.%d.value", "reads and updates other caches"),
    ("engine.dynamic_batching.block_size", 32, "expected 1 to 65536 rows of a page as past_key_values.0.key"),
    ("engine.dynamic_batching.block_size", 0, "'engine.dynamic_batching.block_size': expected an integer from 1"),
    ("engine.dynamic_batching.block_size", 1 << 40, "'engine.dynamic_batching.block_size': expected an integer from 1"),
    ("engine.dynamic_batching.num_blocks", 0, "'engine.dynamic_batching.num_blocks': expected an integer from 1"),
    ("engine.dynamic_batching.num_blocks", "all", "'engine.dynamic_batching.num_blocks': expected an integer"),
    ("engine", [], "'engine': expected an object"),
]


@pytest.mark.sample(0)
@pytest.mark.parametrize(("key", "value", "message"), HOSTILE)
def test_hostile_configurations(tmp_path: Path, key: str, value: Any, message: str) -> None:
    edited(write_genai(tmp_path, paged=True), "genai_config.json", key, value)
    with pytest.raises(ModelFolderError, match=message) as raised:
        generate.load(tmp_path)
    assert "genai_config.json" in str(raised.value) or "model.onnx" in str(raised.value)


@pytest.mark.sample(0)
def test_what_the_folder_says_of_pages(tmp_path: Path) -> None:
    sizes = {"block_size": ROWS, "num_blocks": 5}
    folder = edited(write_genai(tmp_path, paged=True), "genai_config.json", "engine.dynamic_batching", sizes)
    model = generate.load(folder)
    assert pool_of(model).limit == 5 and model.config.context == 5 * ROWS
    assert pool_of(generate.load(folder, pages=7)).limit == 7


def _with_input(graph: Any) -> None:
    graph.input.append(helper.make_tensor_value_info("block_table_windowed", TensorProto.INT32, ["batch", "blocks"]))


def _with_state(graph: Any) -> None:
    names = "past_key_values.1.conv_state", "present.1.conv_state"
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8, 3]) for name in names]
    graph.input.append(infos[0])
    graph.output.append(infos[1])
    graph.node.append(helper.make_node("Identity", [names[0]], [names[1]]))


def _with_second_table(graph: Any) -> None:
    _with_input(graph)
    last = [node for node in graph.node if node.op_type == "PagedAttention"][-1]
    last.input[7] = "block_table_windowed"


def _without_present(graph: Any) -> None:
    graph.output.pop()


def _with_other_pages(graph: Any) -> None:
    for value, pages in ((graph.input[-1], 3), (graph.output[-1], 3), (graph.input[-2], 4), (graph.output[-2], 4)):
        value.type.tensor_type.shape.dim[0].dim_value = pages


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("change", "message"),
    (
        (_with_input, "input block_table_windowed: .* is not known"),
        (
            _with_state,
            "past_key_values.1.conv_state.*: states of a fixed size beside caches in pages are not supported",
        ),
        (_with_second_table, "one input of PagedAttention as 'table', found block_table, block_table_windowed"),
        (_without_present, "no output is named 'present.1.value'"),
        (_with_other_pages, "expected caches of as many pages each, 1 or more"),
    ),
)
def test_models_that_do_not_fit(tmp_path: Path, change: Callable[[Any], None], message: str) -> None:
    proto = onnx.load(write_genai(tmp_path, paged=True) / "model.onnx")
    change(proto.graph)
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(ModelFolderError, match=message):
        generate.load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    (
        ({"pages": 0}, "pages: expected a number of pages, found 0"),
        ({"pages": 2.5}, "pages: expected a number of pages, found 2.5"),
        ({"prefix_bytes": -1}, "prefix_bytes: expected a number of bytes, found -1"),
    ),
)
def test_wrong_options(models: dict[str, LanguageModel], options: dict[str, Any], message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        LanguageModel(models["paged"].config, models["paged"].executable, **options)


def test_pages_are_for_models_with_pages(models: dict[str, LanguageModel]) -> None:
    with pytest.raises(GenerationError, match="pages: the caches of .*model.onnx are not in pages: only PagedAtt"):
        LanguageModel(models["f32"].config, models["f32"].executable, pages=4)
