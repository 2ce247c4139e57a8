"""The session: a model that is compiled when it is opened, and called as ONNX Runtime's are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from mirlo.driver.inference.options import SessionOptionError, SessionOptions, target_of
from mirlo.driver.inference.values import IOBinding, NodeArg, kind_type, tensor_type
from mirlo.runtime.artifact import MODEL_FILE, TensorSpec
from mirlo.runtime.container import has_magic
from mirlo.runtime.errors import InputError
from mirlo.runtime.nearest import nearest

if TYPE_CHECKING:
    import numpy as np

    from mirlo.runtime.compiled_program import Port


class InferenceSession:
    """A compiled model with the interface of `onnxruntime.InferenceSession`.

    `path_or_bytes` is an ONNX model, its bytes, or a `.mirlo` file. Options of ONNX Runtime that do not apply are
    errors. Keyword arguments are those of `mirlo.compile`. `executable` is the compiled model.
    """

    def __init__(
        self,
        path_or_bytes: object,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, object]]] | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
        **options: Any,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise SessionOptionError(
                f"sess_options: expected mirlo.SessionOptions(), found {type(sess_options).__module__}."
                f"{type(sess_options).__name__}"
            )
        if any(provider_options or ()):
            raise SessionOptionError("provider_options: these configure ONNX Runtime's providers; none apply")
        settings = sess_options or SessionOptions()
        target, self._providers = target_of(providers)
        self.executable: Any
        if _is_compiled(path_or_bytes):
            if options or settings.free_dims:
                raise SessionOptionError(f"'{path_or_bytes}' is compiled already: options of compilation do not apply")
            from mirlo.runtime.load import load

            self.executable = load(path_or_bytes)
        else:
            from mirlo.driver.compile import compile

            given = {"threads": settings.threads, "opt_level": settings.opt_level, **options}
            given["dims"] = {**settings.free_dims, **(options.get("dims") or {})} or None
            self.executable = compile(path_or_bytes, given.pop("target", target), **given)
        self._outputs = [spec.name for spec in self.executable.outputs]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, np.ndarray], run_options: object = None
    ) -> list[object]:
        """Run the model on arrays by input name; return the named outputs in order, or all of them for None."""
        if run_options is not None:
            raise SessionOptionError("run_options: expected None, found options, which configure ONNX Runtime")
        wanted = self._outputs if not output_names else [self._output(name) for name in output_names]
        results = self.executable.run(input_feed)
        return [results[name] for name in wanted]

    def get_inputs(self) -> list[NodeArg]:
        """Return the name, shape and type of each input."""
        return [_node_arg(spec) for spec in self.executable.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the name, shape and type of each output."""
        return [_node_arg(spec) for spec in self.executable.outputs]

    def get_providers(self) -> list[str]:
        """Return the names of the providers that the session was opened with."""
        return list(self._providers)

    def io_binding(self) -> IOBinding:
        """Return an empty binding, for `run_with_iobinding`."""
        return IOBinding([spec.name for spec in self.executable.inputs], self._outputs)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: object = None) -> None:
        """Run the model on the arrays of a binding, and write to its outputs."""
        if run_options is not None:
            raise SessionOptionError("run_options: expected None, found options, which configure ONNX Runtime")
        if not iobinding.outputs:
            raise InputError("the binding has no outputs: call bind_output for each that you want")
        given = {name: array for name, array in iobinding.outputs.items() if array is not None}
        results = self.executable.run(iobinding.inputs, out=given) if given else self.executable.run(iobinding.inputs)
        iobinding.results = {name: results[name] for name in iobinding.outputs}

    def _output(self, name: str) -> str:
        if name not in self._outputs:
            hint = nearest(name, self._outputs)
            raise InputError(f"no output is named '{name}'; outputs: {', '.join(self._outputs)}{hint}")
        return name


def _node_arg(spec: TensorSpec | Port) -> NodeArg:
    if isinstance(spec, TensorSpec):
        return NodeArg(spec.name, list(spec.shape), tensor_type(spec.dtype))
    return NodeArg(spec.name, list(spec.kind.shape or ()), kind_type(spec.kind))


def _is_compiled(source: object) -> TypeGuard[str | os.PathLike[str]]:
    if not isinstance(source, (str, os.PathLike)):
        return False
    return Path(source).suffix == ".mirlo" or has_magic(source, MODEL_FILE)
