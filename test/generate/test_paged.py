"""A model with PagedAttention beside the same model with contiguous caches, token for token.

Sequences of different lengths run in one call: chunks of prompts, single tokens of answers, in pages at any place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import VOCABULARY, example, write_genai
from onnx import TensorProto, helper

import mirlo
from mirlo import generate
from mirlo.runtime.executable import Executable

PAGE, PAGES = 8, 40
PROMPTS = (3, 17, 1, 30)
ANSWER = 9


def paged_model(seed: int = 0) -> Any:
    """Return the example's model over packed tokens, with keys and values in pages."""
    module = example()
    model, c = module.TinyModel(VOCABULARY, 0, seed), module.CONFIG
    plain = model.node

    def node(kind: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> Any:
        if kind == "GroupQueryAttention":
            caches = [name.replace("past_key_values", "cache") for name in inputs[3:5]]
            kind, outputs = "PagedAttention", [outputs[0], *(f"{name}.out" for name in caches)]
            inputs = [*inputs[:3], *caches, "ends", "past", "table", "cos", "sin"]
        return plain(kind, inputs, outputs, domain, **attributes)

    model.node = node
    proto = model.build()
    graph, info = proto.graph, helper.make_tensor_value_info
    unused = {"lengths", "last", "seqlens_k", "sizes", "longest", "total"}  # what the other operator gets from the mask
    kept = [each for each in graph.node if not unused & set(each.output)]
    names = [f"cache.{i}.{kind}" for i in range(c["layers"]) for kind in ("key", "value")]
    pages = [PAGES, PAGE, c["kv_heads"], c["size"]]
    inputs = [
        info("input_ids", TensorProto.INT64, ["tokens"]), info("ends", TensorProto.INT32, ["batch + 1"]),
        info("past", TensorProto.INT32, ["batch"]), info("table", TensorProto.INT32, ["batch", "blocks"]),
        *(info(name, TensorProto.FLOAT, pages) for name in names),
    ]  # fmt: skip
    outputs = [info("logits", TensorProto.FLOAT, ["tokens", VOCABULARY])]
    outputs += [info(f"{name}.out", TensorProto.FLOAT, pages) for name in names]
    for values, made in ((graph.node, kept), (graph.input, inputs), (graph.output, outputs)):
        del values[:]
        values.extend(made)
    return proto


@pytest.fixture(scope="module")
def executable() -> Executable:
    return mirlo.compile(paged_model(), activations="exact")


class PagedLoop:
    """A plain loop around the model: pages in a random order, greedy tokens."""

    def __init__(self, executable: Executable, seed: int) -> None:
        self.executable = executable
        random = np.random.default_rng(seed)
        self.table = random.permutation(PAGES).reshape(len(PROMPTS), -1).astype(np.int32)
        self.caches = {
            spec.name: random.standard_normal(spec.shape).astype(np.float32)  # what is in unused rows is not read
            for spec in self.executable.inputs
            if spec.name.startswith("cache")
        }
        self.past = np.zeros(len(PROMPTS), np.int32)

    def run(self, new: dict[int, list[int]]) -> dict[int, int]:
        """Return the most probable token behind the new ones of some sequences."""
        rows = list(new)
        lengths = [len(new[i]) for i in rows]
        ends = np.cumsum([0, *lengths]).astype(np.int32)
        given = {
            "input_ids": np.concatenate([new[i] for i in rows]), "ends": ends, "past": self.past[rows],
            "table": self.table[rows], **self.caches,
        }  # fmt: skip
        found = self.executable.run(given, out={f"{name}.out": array for name, array in self.caches.items()})
        self.past[rows] += np.array(lengths, np.int32)
        return {i: int(found["logits"][end - 1].argmax()) for i, end in zip(rows, ends[1:], strict=True)}


@pytest.mark.sample(2)
@pytest.mark.parametrize("chunk", (1, 5, 64))
def test_paged_is_contiguous(executable: Executable, tmp_path: Path, chunk: int) -> None:
    prompts = [np.random.default_rng(i).integers(2, VOCABULARY, length).tolist() for i, length in enumerate(PROMPTS)]
    model = generate.load(write_genai(tmp_path), activations="exact")
    expected = [model.generator(min_length=1000, max_new_tokens=ANSWER).generate(prompt) for prompt in prompts]
    loop = PagedLoop(executable, chunk)
    assert len(loop.executable.aliases) == len(loop.caches)
    answers: list[list[int]] = [[] for _ in prompts]
    ends = set(model.config.ends)
    assert not any(ends & set(answer) for answer in expected)
    while any(len(answer) < ANSWER for answer in answers):
        new = {}
        for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            rest = [*prompt, *answer][loop.past[i] :][:chunk]
            if len(answer) < ANSWER:
                new[i] = rest
        for i, token in loop.run(new).items():
            if loop.past[i] >= len(prompts[i]):
                answers[i].append(token)
    assert answers == expected


def test_shared_pages_are_contiguous(executable: Executable, tmp_path: Path) -> None:
    """Forks of a common beginning answer as the whole prompts do, and have it in memory once."""
    random = np.random.default_rng(3)
    begin, *tails = [random.integers(2, VOCABULARY, length).tolist() for length in (21, 1, 4, 9)]
    model = generate.load(write_genai(tmp_path), activations="exact")
    expected = [model.generator(min_length=1000, max_new_tokens=ANSWER).generate([*begin, *tail]) for tail in tails]
    assert not any(set(model.config.ends) & set(answer) for answer in expected)
    pool = executable.pages(PAGES, ends="ends", past="past", table="table")
    first = pool.sequence()
    pool.run({"input_ids": np.array(begin)}, [first], [len(begin)])
    forks, new = [first.fork() for _ in tails], tails
    answers: list[list[int]] = [[] for _ in tails]
    for _ in range(ANSWER):
        logits = pool.run({"input_ids": np.concatenate(new)}, forks, [len(each) for each in new])["logits"]
        tokens = logits[np.cumsum([len(each) for each in new]) - 1].argmax(1).tolist()
        new = [[token] for token in tokens]
        for answer, token in zip(answers, tokens, strict=True):
            answer.append(token)
    assert answers == expected
    whole = len(begin) // PAGE
    assert len({fork.pages[:whole] for fork in forks}) == 1 and pool.used < sum(len(fork.pages) for fork in forks)
