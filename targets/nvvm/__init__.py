"""Target `nvvm`: NVIDIA GPUs, through LLVM's NVPTX back end."""

from __future__ import annotations

from typing import Any

from mirlo.passes.targets import Target


def _pipeline(options: Any = None) -> str:
    from mirlo.targets.gpu.pipeline import compile_pipeline

    return compile_pipeline("nvvm")


def _emit(module: Any, options: Any) -> Any:
    from mirlo.targets.nvvm.emit import emit

    return emit(module, opt_level=options.opt_level)


TARGET = Target(
    name="nvvm",
    help="NVIDIA GPUs, through PTX",
    parent="gpu",
    rule_modules=(),
    pipeline=_pipeline,
    emit=_emit,
)
