"""Hostile structure: graphs that are malformed, or extreme, in how their parts refer to each other.

A model is built of blocks of bytes, since some of what is tried here no checker of ONNX accepts: values that nothing
computes, cycles, names that are defined twice, functions that call themselves, subgraphs that capture what does not
exist, deep nesting, thousands of inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.message import DecodeError

from mirlo.driver.compile import compile as compile_model
from mirlo.runtime.files import write_regular
from mirlo.tools.fuzz import extreme, malformed
from mirlo.tools.fuzz.structure_parts import model_to_change
from mirlo.tools.fuzz.verdict import ACCEPTED, STATES_OF_READERS, SeedVerdict, verdict_of_error

if TYPE_CHECKING:
    import onnx

STATES = STATES_OF_READERS
MAX_BYTES = 4_000_000
"""Bytes of a model, beyond which no further mutation is applied."""
MUTATIONS: tuple[Callable[[onnx.ModelProto, np.random.Generator], None], ...] = (
    malformed.dangling_value, malformed.cycle, malformed.shuffled, malformed.two_definitions, malformed.shadowed,
    malformed.outputs, malformed.arity, extreme.recursion, extreme.doubling, malformed.functions,
    malformed.attributes, malformed.subgraph, malformed.capture, extreme.deep, extreme.wide, malformed.opsets,
    malformed.types, malformed.operator, malformed.initializers, malformed.empty,
)  # fmt: skip


def hostile_model(seed: int) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return the model of a seed, and the mutations that made it: one, two or three."""
    rng = np.random.default_rng([seed, 6])
    model = model_to_change(rng)
    names = []
    for index in range(1 + int(rng.integers(3))):
        # The first one by the seed, so that each is tried equally often.
        mutation = MUTATIONS[seed % len(MUTATIONS) if index == 0 else int(rng.integers(len(MUTATIONS)))]
        with contextlib.suppress(DecodeError):  # nested more deeply than protobuf reads
            mutation(model, rng)
        names.append(mutation.__name__)
        if model.ByteSize() > MAX_BYTES:
            break
    return model, tuple(names)


def judge(seed: int) -> SeedVerdict:
    """Import and compile the model of a seed; run it where its inputs are known."""
    model, names = hostile_model(seed)
    try:
        executable = compile_model(model.SerializeToString(), jobs=1, cache=False)
        executable.run(executable.random_inputs(0))
    except Exception as error:
        return verdict_of_error(error, ", ".join(names), names[:1])
    return SeedVerdict(ACCEPTED, used=names[:1])


def write(seed: int, folder: Path) -> None:
    """Write the model of a seed."""
    write_regular(folder / "model.onnx", hostile_model(seed)[0].SerializeToString())
