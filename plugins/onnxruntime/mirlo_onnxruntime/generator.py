"""The code generator `onnx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.extend.codegen import (
    Artifact,
    CodeGenerator,
    Decline,
    ExternalModule,
    Figures,
    PatternTuple,
    decline,
    is_op,
    node_of,
)
from mirlo.extend.codegen import codegen_option as option
from mirlo.extend.codegen import dims as D
from mirlo.extend.ops import TensorType, ir
from mirlo_onnxruntime.export import load_exporters
from mirlo_onnxruntime.model import node_model, region_model
from mirlo_onnxruntime.provider import onnxruntime, require_provider, try_model

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class OnnxGenerator(CodeGenerator):
    """Regions as ONNX models, run by an execution provider of ONNX Runtime."""

    name = "onnx"
    format = "onnx"
    guarded = False
    figures = Figures(gflops=90.0, gbytes=10.0, call_us=30.0)
    """Figures of the CPU provider; each call goes through Python."""
    provider: str = option("CPUExecutionProvider", "the execution provider, 'cuda' for CUDAExecutionProvider")
    provider_options: tuple[str, ...] = option((), "its options, 'device_id=0'")
    source_only: bool = option(False, "export models without checking that ONNX Runtime runs them")

    def __post_init__(self) -> None:
        for text in self.provider_options:
            if "=" not in text:
                raise ValueError(f"provider-options: expected NAME=VALUE, found '{text}'")

    def patterns(self) -> Sequence[PatternTuple]:
        """Return patterns that make each operator of ONNX a composite; merging joins them into regions."""
        if not self.source_only:
            onnxruntime()
        names = sorted(load_exporters())
        return [(name.removeprefix("relax."), is_op(name).where(self._accepts, "onnx.accepts")) for name in names]

    def fingerprint(self) -> str:
        """Return the version of ONNX Runtime."""
        return str(onnxruntime().__version__)

    def codegen(self, module: ExternalModule) -> Artifact:
        """Export the models and concatenate them."""
        data, models, weights = bytearray(), {}, {}
        for function in module.functions:
            region = region_model(function)
            model = region.model.SerializeToString()
            models[function.name] = [len(data), len(model)]
            weights[function.name] = region.weights
            data += model
        params = dict.fromkeys(name for of_region in weights.values() for name in of_region.values())
        provider = self.provider if self.source_only else require_provider(self.provider)
        metadata = {
            "models": models, "weights": weights, "provider": provider, "provider_options": dict(self._options),
        }  # fmt: skip
        return Artifact(self.format, module.names, bytes(data), tuple(params), metadata)

    def files(self, artifact: Artifact, params: Mapping[str, np.ndarray]) -> Mapping[str, bytes]:
        """Return a model per region, complete with its weights."""
        import numpy as np
        import onnx
        from onnx import numpy_helper

        result = {}
        for name in artifact.functions:
            start, size = artifact.metadata["models"][name]
            model = onnx.load_from_string(artifact.data[start : start + size])
            weights = artifact.metadata["weights"][name]
            for tensor in model.graph.initializer:
                if tensor.name in weights:
                    array = np.ascontiguousarray(params[weights[tensor.name]])
                    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            result[f"{name}.onnx"] = model.SerializeToString()
        return result

    @property
    def copies(self) -> bool:  # type: ignore[override]
        """Return whether the provider runs on a device with its own memory."""
        return self.provider.lower().removesuffix("executionprovider") not in ("cpu", "openvino", "dnnl", "xnnpack")

    @property
    def _options(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, value) for name, _, value in (text.partition("=") for text in self.provider_options))

    def _accepts(self, op: ir.OpView) -> bool | Decline:
        """Decline an operator that ONNX cannot express or the provider cannot run."""
        for value in (*op.operation.operands, *op.operation.results):
            kind = TensorType.from_mlir(value.type)
            if kind is None or any(dim is D.UNKNOWN for dim in kind.shape):
                return decline("ONNX models are made of tensors whose dims are known", found=str(value.type))
        model = node_model(node_of(op))
        if isinstance(model, Decline):
            return model
        if self.source_only:
            return True
        return try_model(model.SerializeToString(), self.provider, self._options) or True


class OnnxRuntimeGenerator(OnnxGenerator):
    """The generator `onnx` under the name `onnxruntime`."""

    name = "onnxruntime"
