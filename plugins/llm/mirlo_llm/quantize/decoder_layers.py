"""The layers of a decoder one by one, with weights as inputs and the inputs of linear layers as results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mirlo import compile as compile_model
from mirlo.extend.frontend import GraphBuilder, ImportedModule, Tensor, TensorType
from mirlo.extend.quantize import QuantizationError
from mirlo.extend.runtime import Executable
from mirlo_llm.generate.checkpoints.architectures import DecoderOptions, ExpertOptions, LayerOptions
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.decoder import DecoderGraph
from mirlo_llm.generate.checkpoints.graph import BATCH, LENGTH, CheckpointWeights, ChosenMatrix, Matrix, import_graph

STATES = "states"
"""The names of a layer's input and output."""
MASK = "attention_mask"
ROUTERS = (".mlp.gate", ".mlp.shared_expert_gate")
"""Suffixes of routers and gates of experts, which are not quantized."""


@dataclass
class DecoderLayer:
    """A layer with its weights, and the connections of its linear layers and norms, by names of the architecture."""

    name: str
    options: LayerOptions
    weights: dict[str, np.ndarray]
    """Weights by name, f32; matrices are stored as [out, in]."""
    transposed: frozenset[str]
    """The matrices that the file stores as [in, out]."""
    reads: dict[str, int]
    """By linear layer, the number of its input tensor, which several may share."""
    norms: dict[str, tuple[str, ...]]
    """By norm whose result only linear layers read, these layers."""

    @property
    def matrices(self) -> list[str]:
        """Return the matrices that are quantized."""
        return [name for name in self.reads if not name.endswith(ROUTERS)]

    def inputs(self) -> list[np.ndarray]:
        """Return the weights in the file's layout."""
        return list(map(self.stored, self.weights))

    def stored(self, name: str) -> np.ndarray:
        """Return a weight in the file's layout."""
        weights = self.weights[name]
        return np.ascontiguousarray(weights.T) if name in self.transposed else weights


class _RecordedWeights(CheckpointWeights):
    """The tensors of a file, with a record of those used."""

    def __init__(self, weights: CheckpointWeights) -> None:
        super().__init__(weights.path, weights.tensors, weights.name_in_file)
        self.used: dict[str, np.ndarray] = {}

    def take(self, name: str, *shape: int) -> np.ndarray | BlockWeights:
        tensor = super().take(name, *shape)
        assert isinstance(tensor, np.ndarray)
        self.used[name] = tensor
        return tensor


class _LayerGraph(DecoderGraph):
    """The graph of a layer that records the inputs of linear layers."""

    def __init__(
        self, builder: GraphBuilder, options: DecoderOptions, weights: _RecordedWeights, inputs: Mapping[str, Tensor]
    ) -> None:
        """Begin a layer; `inputs` replace the weights of their names."""
        super().__init__(builder, options, weights)
        self._used, self._inputs = weights.used, inputs
        self.read: dict[str, Tensor] = {}
        self.normed: dict[str, Tensor] = {}
        self.transposed: set[str] = set()
        self._routed: dict[str, Tensor] = {}
        """By the beginning of names, what a norm computed for products of a mixture."""

    def _take(self, name: str, *shape: int) -> Matrix | ChosenMatrix | Tensor:
        """Return the input of a weight, if there is one, in place of the weight."""
        weights = super()._take(name, *shape)
        return self._inputs.get(name, weights)

    def product(self, name: str, x: Tensor, width: int, is_transposed: bool | None = None) -> Tensor:
        self.read[name] = x
        if self._is_transposed if is_transposed is None else is_transposed:
            self.transposed.add(f"{name}.weight")
        return super().product(name, x, width, is_transposed)

    def norm(self, name: str, x: Tensor) -> Tensor:
        result = super().norm(name, x)
        if name and f"{name}.weight" in self._used:
            self.normed[name] = result
        return result

    def mixture(self, name: str, x: Tensor, experts: ExpertOptions) -> Tensor:
        self._routed[f"{name}."] = x
        return super().mixture(name, x, experts)

    def mix(self, name: str, rows: Tensor, chosen: Tensor, factors: Tensor, experts: ExpertOptions) -> Tensor:
        """Pass all rows to each expert, with zeros for rows of other experts."""
        result = rows.like(0)
        for expert in range(experts.count):
            chooses = chosen.equals(chosen.like(expert)).cast("f32")
            own = rows * chooses.sum(1, keepdims=True)
            factor = (factors * chooses).sum(1, keepdims=True)
            if experts.scales_inputs:
                own, factor = own * factor, chooses.sum(1, keepdims=True)
            result = self.gated(f"{name}.experts.{expert}", own, experts.inner) * factor + result
        return result

    def source_of(self, name: str) -> Tensor:
        """Return the input of a linear layer; experts share one input."""
        prefix = next((each for each in self._routed if name.startswith(each)), None)
        return self.read[name] if prefix is None or name.endswith(".down_proj") else self._routed[prefix]


def decoder_layers(options: DecoderOptions, weights: CheckpointWeights) -> Iterator[DecoderLayer]:
    """Yield the layers of a decoder."""
    for i, layer in enumerate(options.layers):
        used = _RecordedWeights(weights)
        graphs: list[_LayerGraph] = []
        name = f"model.layers.{i}"
        _layer_module(name, options, layer, used, {}, graphs)
        yield _described(name, options, layer, used, graphs[0])


def _described(
    name: str, options: DecoderOptions, layer: LayerOptions, weights: _RecordedWeights, graph: _LayerGraph
) -> DecoderLayer:
    numbers: dict[int, int] = {}
    reads = {each: numbers.setdefault(id(x), len(numbers)) for each, x in graph.read.items()}
    arrays: dict[str, np.ndarray] = {}
    for key, tensor in weights.used.items():
        array = np.asarray(tensor, np.float32)
        if not np.isfinite(array).all():
            place = f"{weights.path}: tensor '{weights.name_in_file(key)}'"
            raise QuantizationError(f"{place} has values that are not finite: no scale fits them")
        arrays[key] = np.ascontiguousarray(array.T) if key in graph.transposed else array
    sources = {each: id(graph.source_of(each)) for each in graph.read}
    norms = {
        norm: readers
        for norm, x in graph.normed.items()
        if not options.norms_sums and (readers := tuple(each for each in graph.read if sources[each] == id(x)))
    }
    return DecoderLayer(name, layer, arrays, frozenset(graph.transposed), reads, norms)


def _layer_module(
    name: str,
    options: DecoderOptions,
    layer: LayerOptions,
    weights: _RecordedWeights,
    inputs: Mapping[str, TensorType],
    graphs: list[_LayerGraph],
) -> ImportedModule:
    """Return a layer on whole texts: its result, and the inputs of its linear layers."""
    kinds = {
        STATES: TensorType.of((BATCH, LENGTH, options.hidden), "f32"),
        MASK: TensorType.of((BATCH, LENGTH), "i64"),
    }

    def build(builder: GraphBuilder, x: Tensor, mask: Tensor, *inputs_of_weights: Tensor) -> dict[str, Tensor]:
        own = {f"{name}.{short}": each for short, each in zip(inputs, inputs_of_weights, strict=True)}
        graph = _LayerGraph(builder, options, weights, own)
        result, *_ = graph.layer(name, x, layer, graph.places(mask), ())
        unread = own.keys() - weights.used.keys()
        assert not unread, f"inputs that the layer does not take: {sorted(unread)}"
        graphs.append(graph)
        distinct = {id(each): each for each in graph.read.values()}
        return {STATES: result, **{f"read.{i}": each for i, each in enumerate(distinct.values())}}

    return import_graph(weights, {**kinds, **inputs}, build, is_whole=False)


@dataclass
class LayerRunner:
    """Runs layers; those that differ only in the values of weights are compiled once."""

    options: DecoderOptions
    weights: CheckpointWeights
    threads: int
    _compiled: dict[object, Executable] = field(default_factory=dict)

    def embed(self, windows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the embeddings of windows of tokens."""
        kinds = {name: TensorType.of((BATCH, LENGTH), "i64") for name in ("input_ids", MASK)}

        def build(builder: GraphBuilder, tokens: Tensor, mask: Tensor) -> dict[str, Tensor]:
            graph = DecoderGraph(builder, self.options, self.weights.copy())
            return {STATES: graph.first_states(tokens, graph.places(mask))}

        model = self._compile(import_graph(self.weights, kinds, build, is_whole=False))
        results = (model.run({"input_ids": each[None], MASK: np.ones((1, len(each)), np.int64)}) for each in windows)
        return [result[STATES] for result in results]

    def run(self, layer: DecoderLayer, states: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the result of a layer, and the inputs of its linear layers by number."""
        model = self._executable(layer)
        arrays = dict(zip(layer.weights, layer.inputs(), strict=True))
        results = model.run({STATES: states, MASK: np.ones(states.shape[:2], np.int64), **_named(layer, arrays)})
        return results[STATES], [results[f"read.{i}"] for i in range(len(results) - 1)]

    def _executable(self, layer: DecoderLayer) -> Executable:
        each, arrays = layer.options, _named(layer, dict(zip(layer.weights, layer.inputs(), strict=True)))
        frequencies = None if each.frequencies is None else each.frequencies.tobytes()
        shapes = tuple((name, array.shape) for name, array in arrays.items())
        key = (each.window, frequencies, each.rotation_scale, each.experts, shapes)
        if key not in self._compiled:
            kinds = {name: TensorType.of(array.shape, "f32") for name, array in arrays.items()}
            used = _RecordedWeights(self.weights)
            self._compiled[key] = self._compile(_layer_module(layer.name, self.options, each, used, kinds, []))
        return self._compiled[key]

    def _compile(self, module: ImportedModule) -> Executable:
        model = compile_model(module, cache=False, threads=self.threads, dims={"batch": 1})
        assert isinstance(model, Executable)
        return model


def _named(layer: DecoderLayer, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rename arrays so that names do not depend on the layer."""
    return {name.removeprefix(f"{layer.name}."): array for name, array in arrays.items()}
