"""Files in the format safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], **config: Any) -> Path:
    """Write a file `.safetensors`, and optionally PEFT's configuration next to it."""
    names = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "int64": "I64"}
    names |= {"float8_e4m3fn": "F8_E4M3", "uint8": "U8", "int8": "I8"}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": names[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}  # type: ignore[dict-item]
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    if config:
        path.with_name("adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path
