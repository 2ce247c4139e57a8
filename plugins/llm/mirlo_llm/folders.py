"""Folders of language models, which `mirlo explain` and `mirlo quantize` take."""

from __future__ import annotations

from pathlib import Path

from mirlo.extend.command import FolderForm, FolderQuantization, QuantizedFolder


def _accepts(folder: str) -> bool:
    from mirlo_llm.generate.config import GENAI, PLAIN

    return any((Path(folder) / name).exists() for name in (GENAI, PLAIN))


def _open(folder: str) -> object:
    from mirlo_llm.generate.config import read_config
    from mirlo_llm.generate.model import model_to_compile

    model = model_to_compile(read_config(folder))
    return str(model) if isinstance(model, Path) else model


def _quantize(request: FolderQuantization) -> QuantizedFolder:
    from mirlo_llm.commands.perplexity import read_text
    from mirlo_llm.quantize.folder import MAX_WINDOWS, CalibrationText, quantize_folder

    text = None
    if request.text is not None:
        text = CalibrationText(read_text(request.text), request.samples or MAX_WINDOWS)
    count, errors = quantize_folder(
        request.source, request.target, request.options, text, request.threads, request.progress
    )
    return QuantizedFolder(count, errors)


FORM = FolderForm(_accepts, _open, _quantize)
