"""A compiled language model: which of its inputs and outputs mean what, and one step of it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.extend.runtime import CACHE_SCALE, LAST_ROWS, Executable, TensorSpec, numpy_dtype
from mirlo_llm import caches
from mirlo_llm.caches.in_place_pool import InPlacePool
from mirlo_llm.generate.adapters import AdapterFiles, Adapters
from mirlo_llm.generate.caches import BatchCaches, CallCaches, EngineCaches
from mirlo_llm.generate.config import ModelConfig, NodeNames
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.prefixes import PAGE, PrefixCache

LAST_ONLY = ("num_logits_to_keep", "logits_to_keep")
"""Inputs that say for how many last positions logits are computed; 0 stands for all."""
STATE = r"(^|[._])past(_key_values)?([._]\d+)?[._](conv|recurrent|ssm)(_state)?([._]\d+)?$"
"""Names of inputs that are states of a fixed size: `past_key_values.0.conv_state`, `past_conv.0`."""
USES_CACHE = "use_cache_branch"
"""Input of merged decoders of Optimum: whether there is a past."""


@dataclass(frozen=True)
class PaddedTokens:
    """The new tokens of a batch, in rows of one length, and what is in the caches already."""

    tokens: np.ndarray
    """i64[batch, length]."""
    mask: np.ndarray
    """i64[batch, total]: 1 for each token, 0 for padding."""
    positions: np.ndarray
    """i64[batch, length]."""
    counts: tuple[int, ...]
    """How many tokens of each row are no padding: the first ones, unless the model pads on the left."""
    before: Sequence[Sequence[int]]
    """The tokens of each row that the caches hold."""

    @property
    def packed(self) -> np.ndarray:
        """Return which elements are no padding, where that is behind the tokens: bool[batch, length]."""
        return np.arange(self.tokens.shape[1]) < np.array(self.counts)[:, None]


Maker = Callable[[PaddedTokens, CallCaches], np.ndarray]
"""Computes an input from the new tokens and the caches."""


class CompiledDecoder:
    """The compiled model, called with tokens. `PagedDecoder` is the one of models with caches in pages."""

    def __init__(
        self,
        config: ModelConfig,
        executable: Executable,
        adapters: AdapterFiles | None = None,
        prefixes: PrefixCache | None = None,
    ) -> None:
        self.config = config
        self.executable = executable
        self.inputs = {spec.name: spec for spec in executable.inputs}
        outputs = {spec.name: spec for spec in executable.outputs}
        names = config.names
        self.states = find_states(names, self.inputs, outputs, config)
        """The outputs that are the next values of states of a fixed size, by inputs."""
        self.caches = self._find_caches(outputs)
        for what, name, specs in (("input", names.tokens, self.inputs), ("output", names.logits, outputs)):
            if name not in specs:
                known = ", ".join(map(str, specs.values()))
                raise ModelFolderError(f"{config.model}: no {what} is named '{name}', as {config.source} says: {known}")
        self.vocabulary = self._vocabulary(outputs[names.logits])
        for token in (*config.ends, config.pad):
            if token >= self.vocabulary:
                what = f"{token} is not a token: the model has {self.vocabulary}"
                raise ModelFolderError(f"{config.source}: tokens of the end and of padding: {what}")
        self._adapters = Adapters({}) if adapters is None else adapters.fitted(self.inputs)
        self.adapter: str | None = None
        """The name of the adapter."""
        self.constants: dict[str, np.ndarray] = {}
        """The inputs of the adapter."""
        self.prefixes = PrefixCache(0) if prefixes is None else prefixes
        """Beginnings of sequences that need not be computed again."""
        others = (
            self.inputs.keys()
            - self.caches.keys()
            - self.states.keys()
            - (set() if adapters is None else adapters.names)
            - self._made_elsewhere()
        )
        makers = self._known_inputs()
        self._makers = {name: self._maker(spec, makers) for name, spec in self.inputs.items() if name in others}

    @property
    def first_adapter(self) -> str | None:
        """Return the first adapter of a model that needs one; None for others."""
        return self._adapters.needed

    def with_adapter(self, name: str | None) -> CompiledDecoder:
        """Return the decoder with one of its adapters; None for the model without one."""
        constants = self._adapters.inputs(name)
        if name == self.adapter and not (constants or self.constants):
            return self
        clone = copy.copy(self)
        clone.adapter, clone.constants = name, constants
        return clone

    @property
    def pads_left(self) -> bool:
        """Return whether the prompts of a batch are padded before their first tokens; else after the last ones."""
        return self.config.names.pads_left

    @property
    def page(self) -> int:
        """Return the most tokens of a page in which rows of common beginnings are kept."""
        return PAGE

    def new_state(self, capacity: int, batch: int, block: int) -> BatchCaches:
        """Return empty caches for calls with up to `block` new tokens."""
        limit = self.config.context or None
        return caches.state(
            self.executable,
            capacity,
            batch,
            limit=limit,
            pairs=self.caches,
            constants=self.constants,
            states=self.states,
            block=block,
        )

    def new_pool(self, capacity: int, count: int, block: int) -> EngineCaches:
        """Return empty caches of a number of sequences that are of different lengths, as `new_state` does."""
        limit = self.config.context or None
        pool = caches.pool(
            self.executable, count, capacity, limit=limit, pairs=self.caches, states=self.states, block=block
        )
        for name in (self.config.names.past_length, USES_CACHE):
            if isinstance(pool, InPlacePool) and name in self.inputs and count > 1:
                what = "is one for all sequences, which then have one length: continuous batching cannot use the model"
                raise ModelFolderError(f"{self.config.model}: input {self.inputs[name]} {what}")
        return pool

    def is_token(self, token: int) -> bool:
        """Return whether a number stands for a token."""
        return 0 <= token < self.vocabulary

    def call_length(self, tokens: Sequence[int], most: int) -> int:
        """Return how many of new tokens one call computes; most calls have up to `most`."""
        return min(len(tokens), most)

    def run(self, state: CallCaches, new: PaddedTokens, rows: int = 1) -> np.ndarray:
        """Return the logits of the last new tokens of each sequence, [batch, rows, vocabulary].

        Of a sequence with fewer new tokens the first rows mean nothing.
        """
        inputs = {name: make(new, state) for name, make in self._makers.items()}
        logits = self._logits(state, inputs, new, rows)
        return logits if logits.dtype == np.float32 else logits.astype(np.float32)

    def _logits(self, state: CallCaches, inputs: dict[str, np.ndarray], new: PaddedTokens, rows: int) -> np.ndarray:
        """Run the model, and pick the logits of the last new tokens of each sequence."""
        length = new.tokens.shape[1]
        behind = np.array([0 if self.pads_left else length - count for count in new.counts])
        wanted = min(int(behind.max()) + rows, length)
        if LAST_ROWS in self.inputs:
            inputs[LAST_ROWS] = np.zeros(wanted, np.int8)
        outputs = state.run(inputs, new.counts)
        self._take(outputs)
        logits = outputs[self.config.names.logits]
        if not behind.any():
            return logits[:, -rows:]
        places = np.maximum(logits.shape[1] - behind[:, None] - np.arange(rows, 0, -1), 0)
        picked: np.ndarray = logits[np.arange(len(behind))[:, None], places]
        return picked

    def _take(self, outputs: Mapping[str, np.ndarray]) -> None:
        """Take what else a call has computed, in memory that the next one writes to."""

    def _find_caches(self, outputs: dict[str, TensorSpec]) -> dict[str, str]:
        return find_caches(self.config.names, self.inputs, outputs, self.config, self.states)

    def _made_elsewhere(self) -> set[str]:
        """Return the inputs that are computed where the model is called."""
        return {LAST_ROWS}

    def _vocabulary(self, logits: TensorSpec) -> int:
        """Return the number of tokens."""
        shape = logits.shape
        if len(shape) != 3 or not isinstance(shape[2], int):
            raise ModelFolderError(f"{self.config.model}: expected logits [batch, length, vocabulary], found {logits}")
        return shape[2]

    def _known_inputs(self) -> dict[str, Callable[[TensorSpec], Maker]]:
        """Return what computes the inputs that a model may have, by their names."""
        names = self.config.names
        return {
            names.tokens: lambda spec: lambda new, state: typed(new.tokens, spec),
            names.mask: lambda spec: lambda new, state: typed(new.mask, spec),
            names.positions: lambda spec: lambda new, state: typed(new.positions, spec),
            names.past_length: lambda spec: lambda new, state: _filled(spec, state.length, new),
            names.total_length: lambda spec: lambda new, state: _filled(spec, state.length + new.tokens.shape[1], new),
            USES_CACHE: lambda spec: lambda new, state: _filled(spec, state.length > 0, new),
            **{name: lambda spec: lambda new, state: _filled(spec, 0, new) for name in LAST_ONLY},
        }

    def _maker(self, spec: TensorSpec, makers: Mapping[str, Callable[[TensorSpec], Maker]]) -> Maker:
        """Return the function that computes an input."""
        if spec.name not in makers:
            raise ModelFolderError(
                f"{self.config.model}: input {spec} is not known: expected {', '.join(makers)}, and caches; inputs for "
                "adapters need load(adapters=...)"
            )
        return makers[spec.name](spec)


class StatesDecoder(CompiledDecoder):
    """A decoder that attends to the states of an encoder, which its calls have as inputs."""

    _output = ""
    recorded: list[np.ndarray]
    """What calls wrote to an output, of a decoder that records one."""

    def _made_elsewhere(self) -> set[str]:
        return super()._made_elsewhere() | {name for name in self.inputs if name.startswith("states.")}

    def with_states(self, states: Mapping[str, np.ndarray]) -> StatesDecoder:
        """Return the decoder of what an encoder has read."""
        clone = copy.copy(self)
        clone.constants = dict(states)
        return clone

    def recording(self, output: str) -> StatesDecoder:
        """Return the decoder with a list of its own, of what calls write to an output."""
        clone = copy.copy(self)
        clone.recorded, clone._output = [], output
        return clone

    def _take(self, outputs: Mapping[str, np.ndarray]) -> None:
        if self._output:
            self.recorded.append(outputs[self._output].copy())


def find_states(
    names: NodeNames, inputs: dict[str, TensorSpec], outputs: dict[str, TensorSpec], config: ModelConfig
) -> dict[str, str]:
    """Return the outputs that are the next values of states of a fixed size, by inputs."""
    if names.states is not None:
        states = {source: output for source, output in names.states.items() if source in inputs}
    else:
        states = {name: _after(name, outputs) for name in inputs if re.search(STATE, name)}
    for source, output in states.items():
        if output not in outputs:
            raise ModelFolderError(f"{config.model}: no output is the next value of the state '{source}'")
    return states


def _after(name: str, outputs: dict[str, TensorSpec]) -> str:
    """Return the output that is the next value of an input; an empty name if there is none."""
    candidates = [re.sub(r"past(_key_values|_kv)?", new, name) for new in ("present", r"present\1")]
    return next((each for each in candidates if each in outputs), "")


def find_caches(
    names: NodeNames,
    inputs: dict[str, TensorSpec],
    outputs: dict[str, TensorSpec],
    config: ModelConfig,
    states: dict[str, str],
) -> dict[str, str]:
    """Return the outputs that are the next values of caches, by inputs; some layers may have `states` instead."""
    if names.caches is not None:
        caches = {source: output for source, output in names.caches.items() if source in inputs or not states}
        scales = {f"{source}{CACHE_SCALE}": f"{output}{CACHE_SCALE}" for source, output in caches.items()}
        caches |= {source: output for source, output in scales.items() if source in inputs and output in outputs}
        for source, output in caches.items():
            for what, name, specs in (("input", source, inputs), ("output", output, outputs)):
                if name not in specs:
                    raise ModelFolderError(
                        f"{config.model}: no {what} is named '{name}', as {config.source} says: check "
                        "'num_hidden_layers' and the names of caches"
                    )
        return caches
    result = {}
    for name in inputs:
        if not re.search(r"(^|[._])past", name) or len(inputs[name].shape) != 4 or name in states:
            continue
        after = _after(name, outputs)
        if not after:
            raise ModelFolderError(f"{config.model}: no output is the next value of the cache '{name}'")
        result[name] = after
    if not result and not states:
        raise ModelFolderError(
            f"{config.model}: no input is a cache, such as past_key_values.0.key: export the model with a past"
        )
    return result


def pad(rows: Sequence[Sequence[int]], value: int, left: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens in rows of one length, and which of them are no padding."""
    length = max(map(len, rows))
    tokens = np.full((len(rows), length), value, np.int64)
    mask = np.zeros((len(rows), length), np.int64)
    for i, row in enumerate(rows):
        place = slice(length - len(row), length) if left else slice(0, len(row))
        tokens[i, place], mask[i, place] = row, 1
    return tokens, mask


def typed(values: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Return values in the element type of an input."""
    kind = numpy_dtype(spec.dtype)
    return values if values.dtype == kind else values.astype(kind)


def _filled(spec: TensorSpec, value: int | bool, new: PaddedTokens) -> np.ndarray:
    """Return a scalar, or a vector with one value, or one for each sequence."""
    shape = tuple(dim if isinstance(dim, int) else len(new.tokens) for dim in spec.shape)
    return np.full(shape, value, numpy_dtype(spec.dtype))
