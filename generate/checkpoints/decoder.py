"""A decoder as a graph: its inputs and outputs are those of decoders in ONNX, its caches are written in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.foreign import ImportedModule
from mirlo.frontends.tensor import Tensor, where
from mirlo.generate.checkpoints.architectures import DecoderOptions, LayerOptions, read_options
from mirlo.generate.checkpoints.safetensors import read_checkpoint
from mirlo.generate.errors import ModelFolderError
from mirlo.generate.json_file import read_json
from mirlo.runtime.params import ParameterStore

BATCH, LENGTH, PAST, TOTAL = map(D.symbol, ("batch", "length", "past", "total"))
HIDDEN = -1e9
"""Added to scores of keys that are not seen."""
IGNORED = "rotary_emb.inv_freq"
"""The end of the name of a tensor that follows from the configuration."""


def import_checkpoint(weights: Path, config: Path) -> ImportedModule:
    """Return the graph of a decoder, whose weights are those of a file."""
    options, store = read_options(read_json(config)), ParameterStore()
    tensors = read_checkpoint(weights)
    with make_context(), ir.Location.file(str(weights), 0, 0):
        module = ir.Module.create()
        caches = [f"{i}.{kind}" for i in range(len(options.layers)) for kind in ("key", "value")]
        rows = TensorType.of((BATCH, options.kv_heads, PAST, options.size), "f32")
        inputs = {
            "input_ids": TensorType.of((BATCH, LENGTH), "i64"),
            "attention_mask": TensorType.of((BATCH, TOTAL), "i64"),
            **{f"past_key_values.{name}": rows for name in caches},
        }
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ([kind.to_mlir() for kind in inputs.values()], []))
        builder = GraphBuilder("main", store, weights)
        builder.taken.update(map(str, (BATCH, LENGTH, PAST, TOTAL)))
        with builder.inside(function.add_entry_block()):
            given = [builder.tensor(argument) for argument in function.entry_block.arguments]
            results = list(map(builder.full, Decoder(builder, options, tensors, weights).results(*given)))
            func.ReturnOp(results)
        kinds = ir.FunctionType.get(function.type.inputs, [value.type for value in results])
        function.attributes["function_type"] = ir.TypeAttr.get(kinds)
        function.arg_attrs = _names(list(inputs))
        function.attributes["res_attrs"] = _names(["logits", *(f"present.{name}" for name in caches)])
    return ImportedModule(module, store)


@dataclass(frozen=True)
class TokenPlaces:
    """The positions of the new tokens and of the keys."""

    tokens: Tensor
    """[batch, length]."""
    keys: Tensor
    """[1, 1, 1, total]."""

    def mask(self, window: int) -> Tensor:
        """Return what is added to scores: a token sees itself and those before it, the last ones of a window."""
        own = self.tokens.expand_dims(1, 3)
        seen = self.keys <= own
        if window:
            seen = seen & (self.keys > own - window)
        zero = own.like(0).cast("f32")
        return where(seen, zero, zero.like(HIDDEN))


class Decoder:
    """The graph of a decoder under construction."""

    def __init__(
        self, builder: GraphBuilder, options: DecoderOptions, tensors: Mapping[str, np.ndarray], source: Path
    ) -> None:
        self.builder, self.options, self.source = builder, options, source
        self._tensors = dict(tensors)
        self._angles: dict[bytes, tuple[Tensor, Tensor]] = {}
        self._masks: dict[int, Tensor] = {}

    def results(self, tokens: Tensor, mask: Tensor, *caches: Tensor) -> list[Tensor]:
        """Return the logits and the caches afterwards; every tensor of the file must have been used."""
        options = self.options
        places = self._places(mask)
        table = self.weight("model.embed_tokens", options.vocabulary, options.hidden)
        x, kept = table.gather(tokens) * options.embedding_scale, list[Tensor]()
        for i, layer in enumerate(options.layers):
            x, *written = self.layer(f"model.layers.{i}", x, layer, places, caches[2 * i : 2 * i + 2])
            kept += written
        x = self.norm("model.norm", x)
        if options.tied:
            self._tensors.pop("lm_head.weight", None)
            logits = x.matmul(table, transpose_rhs=True)
        else:
            logits = self.product("lm_head", x, options.vocabulary)
        left = [name for name in self._tensors if not name.endswith(IGNORED)]
        if left:
            what = f"{len(left)} tensors are not those of the architecture in config.json, such as {left[0]!a:.80}"
            raise ModelFolderError(f"{self.source}: {what}: export the model to ONNX")
        return [self._capped(logits * options.logit_scale, options.logit_cap), *kept]

    def layer(
        self, name: str, x: Tensor, layer: LayerOptions, places: TokenPlaces, cache: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result of a layer, and its keys and values afterwards."""
        before, behind, before_products, behind_products = (part and f"{name}.{part}" for part in self.options.norms)
        attended, key, value = self.attention(f"{name}.self_attn", self.norm(before, x), layer, places, cache)
        x = x + self.norm(behind, attended) * self.options.residual_scale
        made = self.gated(f"{name}.mlp", self.norm(before_products, x))
        return x + self.norm(behind_products, made) * self.options.residual_scale, key, value

    def attention(
        self, name: str, x: Tensor, layer: LayerOptions, places: TokenPlaces, cache: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attend the new tokens to the cache and to each other."""
        options = self.options
        widths = [count * options.size for count in (options.heads, options.kv_heads, options.kv_heads)]
        if options.fused:
            query, key, value = self.product(f"{name}.qkv_proj", x, sum(widths)).split(widths, -1)
        else:
            parts = zip("qkv", widths, strict=True)
            query, key, value = (self.product(f"{name}.{part}_proj", x, width) for part, width in parts)
        if options.head_norms == "all":
            query, key = self.norm(f"{name}.q_norm", query), self.norm(f"{name}.k_norm", key)
        query, key, value = map(self._heads, (query, key, value))
        if options.head_norms == "each":
            query, key = self.norm(f"{name}.q_norm", query), self.norm(f"{name}.k_norm", key)
        if layer.frequencies is not None:
            turns = self._turns(layer.frequencies, places)
            query, key = (self.builder.emit("rotary_embedding", each, *turns) for each in (query, key))
        key, value = (self._written(old, new, places) for old, new in zip(cache, (key, value), strict=True))
        read = (each.part((0, 0, 0, 0), (BATCH, options.kv_heads, TOTAL, options.size)) for each in (key, value))
        if layer.window not in self._masks:
            self._masks[layer.window] = places.mask(layer.window)
        # No sequence is longer than the keys, so `at_end` hides nothing that is seen; kernels skip what it hides.
        attended = self.builder.emit(
            "attention", query, *read, self._masks[layer.window], scale=options.scale, softcap=options.score_cap,
            causal=True, at_end=True,
        )  # fmt: skip
        rows = attended.permute((0, 2, 1, 3)).reshape((BATCH, LENGTH, widths[0]))
        return self.product(f"{name}.o_proj", rows, options.hidden), key, value

    def gated(self, name: str, x: Tensor) -> Tensor:
        """Return act(gate(x)) * up(x), multiplied by the weights that lead back."""
        options = self.options
        if options.fused:
            gate, up = self.product(f"{name}.gate_up_proj", x, 2 * options.inner).halves(-1)
        else:
            gate, up = (self.product(f"{name}.{part}_proj", x, options.inner) for part in ("gate", "up"))
        operator, _, approximate = options.activation.partition("_")
        attributes = {"approximate": approximate} if approximate else {}
        return self.product(f"{name}.down_proj", self.builder.emit(operator, gate, **attributes) * up, options.hidden)

    def product(self, name: str, x: Tensor, width: int) -> Tensor:
        """Multiply rows by weights, and add the bias if the file has one."""
        rows = x.shape[-1]
        assert isinstance(rows, int)
        result = x.matmul(self.weight(name, width, rows), transpose_rhs=True)
        return result + self.weight(name, width, part="bias") if f"{name}.bias" in self._tensors else result

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Divide by the root of the mean square; an empty name stands for no norm."""
        if not name:
            return x
        width = x.shape[-1]
        assert isinstance(width, int)
        scale = self.weight(name, width)
        if self.options.norm_offset:
            scale = scale + self.options.norm_offset
        return self.builder.emit("rms_norm", x, scale, axis=-1, epsilon=self.options.epsilon)

    def weight(self, name: str, *shape: int, part: str = "weight") -> Tensor:
        """Return a tensor of the file as f32; it must have this shape."""
        name = f"{name}.{part}"
        if name not in self._tensors:
            raise ModelFolderError(f"{self.source}: there is no tensor '{name}', which the architecture needs")
        array = self._tensors.pop(name)
        if array.shape != shape or array.dtype.name not in ("float32", "float16", "bfloat16"):
            expected = f"expected {list(shape)} of f32, f16 or bf16"
            raise ModelFolderError(
                f"{self.source}: tensor '{name}': {expected}, found {array.dtype.name}{list(array.shape)}"
            )
        kind = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[array.dtype.name]
        return self.builder.of_array(array, TensorType.of(shape, kind)).cast("f32")

    def _heads(self, x: Tensor) -> Tensor:
        """Return [batch, heads, length, size]."""
        width = x.shape[-1]
        assert isinstance(width, int)
        return x.reshape((BATCH, LENGTH, width // self.options.size, self.options.size)).permute((0, 2, 1, 3))

    def _written(self, cache: Tensor, new: Tensor, places: TokenPlaces) -> Tensor:
        """Return the cache with the rows of the new tokens."""
        shape = (BATCH, self.options.kv_heads, D.maximum(PAST, TOTAL), self.options.size)
        return self.builder.emit("cache_write", cache, new, places.tokens, shape=shape)

    def _turns(self, frequencies: np.ndarray, places: TokenPlaces) -> tuple[Tensor, Tensor]:
        """Return cos and sin of the angles, [batch, 1, length, pairs], once for all layers that share them."""
        key = frequencies.tobytes()
        if key not in self._angles:
            each = self.builder.of_array(frequencies, TensorType.of(frequencies.shape, "f32"))
            angles = places.tokens.cast("f32").expand_dims(1, 3) * each
            self._angles[key] = angles.cos(), angles.sin()
        return self._angles[key]

    def _places(self, mask: Tensor) -> TokenPlaces:
        """Return positions: in a prompt, sequences that are shorter than the longest are padded at the end."""
        before = mask.sum(1).reshape((BATCH, 1)) - self._size(LENGTH)
        first = self.builder.emit("maximum", before, before.like(0))
        return TokenPlaces(first + self._range(LENGTH).expand_dims(0), self._range(TOTAL).expand_dims(0, 1, 2))

    def _range(self, size: D.Dim) -> Tensor:
        zero, one = (self.builder.constant(number, _I64) for number in (0, 1))
        return self.builder.emit("steps", zero, one, shape=(size,))

    def _size(self, size: D.Dim) -> Tensor:
        return self.builder.known(TensorType.of((), "i64"), (size,))

    @staticmethod
    def _capped(x: Tensor, cap: float | None) -> Tensor:
        return x if cap is None else (x * (1 / cap)).tanh() * cap


_F32, _I64 = TensorType.of((), "f32").dtype, TensorType.of((), "i64").dtype


def _names(names: list[str]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.DictAttr.get({"relax.name": ir.StringAttr.get(name)}) for name in names])
