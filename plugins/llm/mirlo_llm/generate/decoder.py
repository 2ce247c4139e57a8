"""A compiled language model: the roles of its inputs and outputs, and one step."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.extend.runtime import CACHE_SCALE, ELEMENT_TYPES, LAST_ROWS, Executable, TensorSpec, numpy_dtype
from mirlo_llm import caches
from mirlo_llm.caches.cache_arrays import AXIS, BLOCK, ring_rows
from mirlo_llm.caches.in_place_pool import InPlacePool
from mirlo_llm.generate.adapters import AdapterFiles, Adapters
from mirlo_llm.generate.caches import BatchCaches, CallCaches, EngineCaches, SelectedCaches
from mirlo_llm.generate.config import ModelConfig, NodeNames
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.prefixes import PAGE, PrefixCache

LAST_ONLY = ("num_logits_to_keep", "logits_to_keep")
"""Inputs with the number of last positions to compute logits for; 0 stands for all."""
STATE = r"(^|[._])past(_key_values)?([._]\d+)?[._](conv|recurrent|ssm)(_state)?([._]\d+)?$"
"""Names of inputs that are states of a fixed size: `past_key_values.0.conv_state`, `past_conv.0`."""
USES_CACHE = "use_cache_branch"
"""Input of merged decoders of Optimum that selects the branch with a past."""


@dataclass(frozen=True)
class PaddedTokens:
    """The new tokens of a batch, padded to one length, and the number of cached tokens."""

    tokens: np.ndarray
    """i64[batch, length]."""
    mask: np.ndarray
    """i64[batch, total]: 1 for each token, 0 for padding."""
    positions: np.ndarray
    """i64[batch, length]."""
    counts: tuple[int, ...]
    """The number of tokens of each row without padding."""
    before: Sequence[Sequence[int]]
    """The number of cached tokens of each row."""
    is_left: bool = False
    """Whether padding is at the start of rows; otherwise it is at their end."""

    @property
    def packed(self) -> np.ndarray:
        """Return which elements are tokens, if padding is at the end: bool[batch, length]."""
        return np.arange(self.tokens.shape[1]) < np.array(self.counts)[:, None]


Maker = Callable[[PaddedTokens, CallCaches], np.ndarray]
"""Computes a model input from the new tokens and the caches."""


class CompiledDecoder:
    """The compiled model, called with tokens; `PagedDecoder` is the subclass for paged caches."""

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
        """Return the first adapter if the model requires one, otherwise None."""
        return self._adapters.needed

    def with_adapter(self, name: str | None) -> CompiledDecoder:
        """Return the decoder with one of its adapters, or without any for None."""
        constants = self._adapters.inputs(name)
        if name == self.adapter and not (constants or self.constants):
            return self
        clone = copy.copy(self)
        clone.adapter, clone.constants = name, constants
        return clone

    @property
    def pads_left(self) -> bool:
        """Return whether the prompts of a batch are padded on the left; otherwise on the right."""
        return self.config.names.pads_left

    @property
    def page(self) -> int:
        """Return the largest page size of the cache of common prefixes."""
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
        """Return empty caches for `count` sequences of different lengths; other arguments as in `new_state`."""
        limit = self.config.context or None
        pool = caches.pool(
            self.executable, count, capacity, limit=limit, pairs=self.caches, states=self.states, block=block
        )
        for name in (self.config.names.past_length, USES_CACHE):
            if isinstance(pool, InPlacePool) and name in self.inputs and count > 1:
                what = "is one for all sequences, which then have one length: continuous batching cannot use the model"
                raise ModelFolderError(f"{self.config.model}: input {self.inputs[name]} {what}")
        return pool

    def cache_bytes(self, sequences: int, tokens: int) -> int:
        """Return the bytes of the caches and states of this many sequences of this many tokens."""
        windows = caches.windows(self.executable)
        result = 0
        for name in (*self.caches, *self.states):
            spec = self.inputs[name]
            dims = [dim if isinstance(dim, int) else 1 for dim in spec.shape[1:]]
            rows = 1
            if name in windows:
                rows = min(ring_rows(spec, windows[name], BLOCK), tokens)
            elif name in self.caches and not isinstance(spec.shape[AXIS], int):
                rows = tokens
            result += ELEMENT_TYPES[spec.dtype].bytes * math.prod(dims) * rows
        return result * sequences

    def is_token(self, token: int) -> bool:
        """Return whether a number is a token."""
        return 0 <= token < self.vocabulary

    def call_length(self, tokens: Sequence[int], most: int) -> int:
        """Return the number of new tokens to compute in one call; most calls have at most `most`."""
        return min(len(tokens), most)

    def run(self, state: CallCaches, new: PaddedTokens, rows: int = 1) -> np.ndarray:
        """Return the logits of the last new tokens of each sequence, [batch, rows, vocabulary].

        If a sequence has fewer new tokens, its first rows are undefined.
        """
        inputs = {name: make(new, state) for name, make in self._makers.items()}
        logits = self._logits(state, inputs, new, rows)
        return logits if logits.dtype == np.float32 else logits.astype(np.float32)

    def run_selected(
        self, selection: SelectedCaches, parts: Sequence[Sequence[int]], held: Sequence[Sequence[int]], rows: int
    ) -> np.ndarray:
        """Return the logits of the last new tokens of an engine's sequences, [sequences, rows, vocabulary].

        `parts` are the new tokens of each, of up to one length, `held` those before.
        """
        tokens, _ = pad(parts, self.config.pad, left=False)
        positions = selection.lengths[:, None] + np.arange(tokens.shape[1])
        counts = tuple(map(len, parts))
        return self.run(selection, PaddedTokens(tokens, selection.mask(tokens.shape[1]), positions, counts, held), rows)

    def _logits(self, state: CallCaches, inputs: dict[str, np.ndarray], new: PaddedTokens, rows: int) -> np.ndarray:
        """Run the model and select the logits of the last new tokens of each sequence."""
        length = new.tokens.shape[1]
        behind = np.array([0 if new.is_left else length - count for count in new.counts])
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
        """Receive the other results of a call, whose memory the next call overwrites; a hook for subclasses."""

    def _find_caches(self, outputs: dict[str, TensorSpec]) -> dict[str, str]:
        return find_caches(self.config.names, self.inputs, outputs, self.config, self.states)

    def _made_elsewhere(self) -> set[str]:
        """Return the inputs that the caller of the model computes."""
        return {LAST_ROWS}

    def _vocabulary(self, logits: TensorSpec) -> int:
        """Return the size of the vocabulary."""
        shape = logits.shape
        if len(shape) != 3 or not isinstance(shape[2], int):
            raise ModelFolderError(f"{self.config.model}: expected logits [batch, length, vocabulary], found {logits}")
        return shape[2]

    def _known_inputs(self) -> dict[str, Callable[[TensorSpec], Maker]]:
        """Return, by name, the functions that compute the inputs that a model may have."""
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
    """A decoder with cross-attention to an encoder's states, which are inputs of its calls."""

    _output = ""
    recorded: list[np.ndarray]
    """The values of a recorded output in all calls."""

    def _made_elsewhere(self) -> set[str]:
        return super()._made_elsewhere() | {name for name in self.inputs if name.startswith("states.")}

    def with_states(self, states: Mapping[str, np.ndarray]) -> StatesDecoder:
        """Return the decoder for the states of an encoder."""
        clone = copy.copy(self)
        clone.constants = dict(states)
        return clone

    def recording(self, output: str) -> StatesDecoder:
        """Return a decoder that records an output of its calls in a list of its own."""
        clone = copy.copy(self)
        clone.recorded, clone._output = [], output
        return clone

    def _take(self, outputs: Mapping[str, np.ndarray]) -> None:
        if self._output:
            self.recorded.append(outputs[self._output].copy())


def find_states(
    names: NodeNames, inputs: dict[str, TensorSpec], outputs: dict[str, TensorSpec], config: ModelConfig
) -> dict[str, str]:
    """Return the outputs with the next values of states of a fixed size, by input."""
    if names.states is not None:
        states = {source: output for source, output in names.states.items() if source in inputs}
    else:
        states = {name: _after(name, outputs) for name in inputs if re.search(STATE, name)}
    for source, output in states.items():
        if output not in outputs:
            raise ModelFolderError(f"{config.model}: no output is the next value of the state '{source}'")
    return states


def _after(name: str, outputs: dict[str, TensorSpec]) -> str:
    """Return the output with the next value of an input; an empty name if there is none."""
    candidates = [re.sub(r"past(_key_values|_kv)?", new, name) for new in ("present", r"present\1")]
    return next((each for each in candidates if each in outputs), "")


def find_caches(
    names: NodeNames,
    inputs: dict[str, TensorSpec],
    outputs: dict[str, TensorSpec],
    config: ModelConfig,
    states: dict[str, str],
) -> dict[str, str]:
    """Return the outputs with the next values of caches, by input; some layers may have `states` instead."""
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
    """Pad rows of tokens to one length; return them and a mask of the tokens."""
    length = max(map(len, rows))
    tokens = np.full((len(rows), length), value, np.int64)
    mask = np.zeros((len(rows), length), np.int64)
    for i, row in enumerate(rows):
        place = slice(length - len(row), length) if left else slice(0, len(row))
        tokens[i, place], mask[i, place] = row, 1
    return tokens, mask


def typed(values: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Convert values to the element type of an input."""
    kind = numpy_dtype(spec.dtype)
    return values if values.dtype == kind else values.astype(kind)


def _filled(spec: TensorSpec, value: int | bool, new: PaddedTokens) -> np.ndarray:
    """Return a scalar, a vector of one value, or a vector with one value per sequence."""
    shape = tuple(dim if isinstance(dim, int) else len(new.tokens) for dim in spec.shape)
    return np.full(shape, value, numpy_dtype(spec.dtype))
