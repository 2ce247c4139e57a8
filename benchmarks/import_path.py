"""How often a model comes back to a file of the import that it had left: `python -m benchmarks.import_path [MODEL...]`.

The import is traced, and the model is followed as data: a file is *visited* while one of its functions has a part of
the model as an argument, as the model's file says it: a message of protobuf, an object of the graph that is read from
it, the node or attributes of one, or a list of such parts. Values of the import (SSA values, arrays, types of Mirlo's)
are no parts of the model. A visit ends where a function of another file gets a part of the model, or where the function
is done. Each visit of a file beyond its first one is a return. Without arguments, the models are a single Softmax and
the samples that are named in `SAMPLES`.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = tuple(str(ROOT / folder) + "/" for folder in ("frontends/onnx", "driver", "tools"))
SAMPLES = ("mobilenetv2", "resnet50", "bert_base", "gpt2")
WITH_VARARGS, WITH_VARKEYWORDS = 4, 8
"""Flags of code objects."""


@dataclass
class Trace:
    """The files that a model visits, in order."""

    visits: list[str] = field(default_factory=list)
    _open: list[tuple[FrameType, str]] = field(default_factory=list)
    _inside: dict[CodeType, str | None] = field(default_factory=dict)

    @property
    def files(self) -> Counter[str]:
        return Counter(self.visits)

    @property
    def returns(self) -> int:
        """Return the number of visits of files that were visited and left before."""
        return len(self.visits) - len(set(self.visits))

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Take an event of `sys.setprofile`."""
        if event == "call":
            file = self._file_of(frame.f_code)
            if file is not None and any(map(is_part, _arguments(frame))):
                self._open.append((frame, file))
                self._visit(file)
        elif event == "return" and self._open and self._open[-1][0] is frame:
            self._open.pop()
            if self._open:
                self._visit(self._open[-1][1])

    def _visit(self, file: str) -> None:
        if not self.visits or self.visits[-1] != file:
            self.visits.append(file)

    def _file_of(self, code: CodeType) -> str | None:
        if code not in self._inside:
            path = code.co_filename
            self._inside[code] = path.removeprefix(f"{ROOT}/") if path.startswith(FOLDERS) else None
        return self._inside[code]


def _arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & WITH_VARARGS) + bool(code.co_flags & WITH_VARKEYWORDS)
    return [frame.f_locals.get(name) for name in code.co_varnames[:count]]


def is_part(value: object) -> bool:
    """Return whether a value is a part of the model as its file says it."""
    from mirlo.frontends.onnx import model
    from mirlo.frontends.onnx.node import Attributes

    if isinstance(value, (model.LoadedModel, Attributes)) or _is_read(value):
        return True
    if isinstance(value, Mapping):
        return any(map(_is_read, list(value.values())[:1]))
    is_list = isinstance(value, (list, tuple)) or type(value).__name__.startswith("RepeatedComposite")
    return is_list and len(value) > 0 and _is_read(value[0])  # type: ignore[arg-type, index]


def _is_read(value: object) -> bool:
    from google.protobuf.message import Message  # type: ignore[import-untyped]

    kind = type(value)
    named = kind.__module__ == "mirlo.frontends.onnx.graph"
    return isinstance(value, Message) or named


def trace(model: object) -> Trace:
    """Return the trace of the import of a model."""
    from mirlo.driver.models import open_model

    result = Trace()
    sys.setprofile(result)
    try:
        open_model(model)
    finally:
        sys.setprofile(None)
    return result


def softmax() -> bytes:
    """Return a model of a single operator."""
    import onnx
    from onnx import helper

    shape = ["batch", 64]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], "rows", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    content: bytes = model.SerializeToString()
    return content


def main(paths: list[str]) -> None:
    """Print visits and returns of each model."""
    from mirlo.frontends.onnx.registry import load_converters
    from mirlo.tools.samples import seeded

    load_converters()
    trace(softmax())  # what is computed once in a process
    with tempfile.TemporaryDirectory() as folder:
        models: dict[str, object] = {Path(path).stem: path for path in paths}
        if not paths:
            models = {"one Softmax": softmax()}
            models |= {name: seeded.write(seeded.complete(name), Path(folder, f"{name}.onnx")) for name in SAMPLES}
        for name, model in models.items():
            traced = trace(model)
            most = ", ".join(f"{file.removeprefix('frontends/onnx/')} {n}" for file, n in traced.files.most_common(6))
            counts = f"{len(traced.visits):7} visits {len(traced.files):3} files {traced.returns:7} returns"
            print(f"{name:14} {counts}   most: {most}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
