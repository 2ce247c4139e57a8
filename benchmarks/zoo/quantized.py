"""Other entries, exported by TorchScript and quantized with the tools of ONNX Runtime."""

from __future__ import annotations

import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .entry import CONVERTED, DYNAMIC, DYNAMO, Entry, Variant

STATICALLY = (
    ("torchvision", "resnet18"), ("torchvision", "mobilenet_v2"), ("torchvision", "squeezenet1_1"),
    ("torchvision", "shufflenet_v2_x0_5"), ("timm", "vit_tiny_patch16_224"), ("modules", "unet"), ("modules", "dcgan"),
)  # fmt: skip
DYNAMICALLY = (
    ("transformers", "BertModel"), ("transformers", "DistilBertModel"), ("transformers", "GPT2LMHeadModel"),
    ("transformers", "T5EncoderModel"), ("modules", "lstm"), ("modules", "transformer_encoder"),
)  # fmt: skip
HALVES = (("torchvision", "mobilenet_v3_small"), ("transformers", "BertModel"), ("modules", "gru"))


def _find(family: str, name: str) -> Entry:
    module = importlib.import_module(f".{family}", __package__)
    result: Entry = next(entry for entry in module.ENTRIES if entry.name == name)
    return result


def _exported(entry: Entry, folder: Path) -> Path:
    from .export import export

    return export(Variant(entry, DYNAMO if entry.family == "transformers" else "torchscript", DYNAMIC), folder)


class _Calibration:
    """Three batches of an entry's inputs."""

    def __init__(self, entry: Entry, names: set[str]) -> None:
        self.batches = iter([{k: v for k, v in entry.arrays(0, seed).items() if k in names} for seed in range(3)])

    def get_next(self) -> Any:
        return next(self.batches, None)


def _quantized(family: str, name: str, way: str) -> Entry:
    entry = _find(family, name)

    def make() -> bytes:
        import onnx
        from onnxruntime import quantization as q

        with TemporaryDirectory() as folder:
            path, out = _exported(entry, Path(folder)), Path(folder) / "quantized.onnx"
            if way == "dynamic":
                q.quantize_dynamic(path, out)
                return out.read_bytes()
            if way == "f16":
                from onnxruntime.transformers.float16 import convert_float_to_float16

                result: bytes = convert_float_to_float16(onnx.load(path), keep_io_types=True).SerializeToString()
                return result
            names = {value.name for value in onnx.load(path).graph.input}
            form = q.QuantFormat.QDQ if way == "qdq" else q.QuantFormat.QOperator
            # 7-bit weights: on machines without VNNI, ONNX Runtime's sums of 8-bit products saturate.
            q.quantize_static(path, out, _Calibration(entry, names), quant_format=form, per_channel=way == "qdq",
                              reduce_range=True)  # fmt: skip
            return out.read_bytes()

    return Entry(f"{name}_{way}", "quantized", make, entry.inputs, entry.sizes, (CONVERTED,), (DYNAMIC,),
                 fixed=entry.fixed)  # fmt: skip


ENTRIES = (
    *(_quantized(*each, "qdq") for each in STATICALLY),
    *(_quantized(*each, "qoperator") for each in STATICALLY[:4]),
    *(_quantized(*each, "dynamic") for each in DYNAMICALLY),
    *(_quantized(*each, "f16") for each in HALVES),
)
