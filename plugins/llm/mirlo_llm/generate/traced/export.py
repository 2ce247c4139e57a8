"""Export of a transformers model, and errors that name the line of its code."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from mirlo_torch.decompose import decomposed
from mirlo_torch.importer import import_exported_program

from mirlo.extend.frontend import FrontendError, ImportedModule, TensorType
from mirlo_llm.generate.checkpoints.image_options import text_config
from mirlo_llm.generate.checkpoints.packed import read_weights
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_json
from mirlo_llm.generate.traced import converters
from mirlo_llm.generate.traced.interfaces import ExpertUse
from mirlo_llm.generate.traced.layers import LayersDifferError
from mirlo_llm.generate.traced.weights import FileWeights

assert converters  # they are registered
CODE = "the code of the model cannot be compiled"


def export(module: Any, model: Any, arguments: tuple[Any, ...], shapes: tuple[Any, ...], config: Path) -> Any:
    """Export a module around a model, with dynamic sizes and operators that have converters."""

    def trace(**options: bool) -> Any:
        with torch.no_grad():
            return torch.export.export(module, arguments, dynamic_shapes=shapes, strict=False, **options)

    try:
        try:
            program = trace()
        except torch._dynamo.exc.UserError as error:
            if "Constraints violated" not in str(error):
                raise
            # Guards that always hold, such as min(2048, total) <= total, of which the solver is not sure.
            program = trace(prefer_deferred_runtime_asserts_over_guards=True)
        return decomposed(program)
    except FrontendError as error:
        raise ModelFolderError(f"{config}: {CODE}: {error}") from error
    except LayersDifferError:
        raise
    except Exception as error:
        raise ModelFolderError(f"{config}: {problem_of(model, error)}") from error


def problem_of(model: Any, error: Exception) -> str:
    """Return the reason why a model cannot be exported, with the line of its code."""
    sources = (inspect.getsourcefile(type(each)) for each in model.modules())
    own = {file for file in sources if file is not None and "/torch/" not in Path(file).as_posix()}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = re.sub(r"\s+", " ", lines[0] if lines else type(error).__name__)[:300]
    at = f" {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}:" if frames else ""
    return f"torch.export cannot trace {type(model).__name__}:{at} {text}: export the model to ONNX"


def import_exported_model(
    program: Any, model: Any, use: ExpertUse, weights: Path, config: Path, names: tuple[Sequence[str], Sequence[str]],
    passed: Mapping[str, TensorType] | None = None, windows: Mapping[str, int] | None = None,
    pages: Mapping[str, str] | None = None,
) -> ImportedModule:  # fmt: skip
    """Import an exported program with the weights of a file; `names` are those of inputs and outputs.

    Parameters in `passed` are inputs; `windows` are the tokens of the windows of inputs that are rings, `pages` what
    inputs are to attention with caches in pages.
    """
    source = FileWeights(weights, model, read_weights(weights, text_config(read_json(config))), use.parameters)
    try:
        result = import_exported_program(program, *names, source.make, passed, windows, pages)
    except FrontendError as error:
        raise ModelFolderError(f"{config}: {CODE}: {error}") from error
    source.finish()
    return result
