"""Mirlo itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.dialects.core.installed import import_modules
from mirlo.driver.code import kernel_listings
from mirlo.driver.compile import compile as compile_model
from mirlo.driver.request import CompileRequest
from mirlo.frontends.onnx.registry import load_converters
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.legalize.legalize import load_default_rules
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.targets import CompileOptions, code_target, find_target
from mirlo.runtime.entry_points import installed_version
from mirlo.runtime.model_runner import models_run_on
from mirlo.tools.remote import BoardOptions

if TYPE_CHECKING:
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.remote.model import RemoteModel


class MirloModel:
    """A compiled model."""

    def __init__(self, executable: Executable | RemoteModel, version: str, request: CompileRequest) -> None:
        self.executable = executable
        self.version = version
        self._request = request

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.inputs = dict(inputs)
        self._arrays = [inputs[spec.name] for spec in self.executable.inputs]

    def run(self) -> None:
        self._results = self.executable(*self._arrays)

    def outputs(self) -> dict[str, np.ndarray]:
        results = self._results if isinstance(self._results, tuple) else (self._results,)
        return {spec.name: array for spec, array in zip(self.executable.outputs, results, strict=True)}

    def code(self) -> dict[str, dict[str, str]]:
        """Return the code of each kernel by its name and the form, in the two forms closest to the machine."""
        target = code_target(Targets.parse(self._request.target).or_host().host_target)
        result: dict[str, dict[str, str]] = {}
        for form in [form.name for form in target.forms if form.is_text][-2:]:
            for listing in kernel_listings(self._request, form):
                texts = result.setdefault(listing.function, {})
                texts[form] = texts.get(form, "") + listing.content.decode()
        return result


def _import_compiler() -> None:
    """Import what a compilation imports lazily: other engines import all of it with `import`."""
    import llvmlite.binding  # noqa: F401
    import onnx  # noqa: F401

    import mirlo.driver.tune.database  # noqa: F401

    target = find_target("llvm")
    load_converters()
    load_default_rules()
    import_modules("mirlo.passes.graph.rules")
    Pipeline(target.pipeline(CompileOptions()))


_import_compiler()


class BoardModel(MirloModel):
    """A compiled model on a board, whose clock times it."""

    executable: RemoteModel

    def seconds(self, count: int, gap: float, cpu_time: bool) -> list[float]:
        """Return the times of calls, in place of those of `run` by the clock of this machine."""
        return self.executable.seconds(self.inputs, count, gap, cpu_time)


def load(
    model: str, threads: int, shapes: Mapping[str, Sequence[int]], cache: str | None, target: str = "llvm",
    board: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None,
) -> MirloModel:  # fmt: skip
    """Compile; `cache` is the folder of the cache, or None.

    `board` has the fields of `BoardOptions`; `options` are others of `mirlo.compile`.
    """
    name = installed_version("mirlo") or "checkout"
    compile_options: dict[str, Any] = {"threads": threads, "shapes": shapes or None, **(options or {})}
    request = CompileRequest(model, target, **compile_options)
    runner = BoardOptions(**board).connect() if board is not None else None
    with models_run_on(runner):
        executable = compile_model(model, target, cache=cache or False, **compile_options)
    return (MirloModel if runner is None else BoardModel)(executable, name, request)
