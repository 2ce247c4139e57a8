"""The session: a model that is compiled when it is opened, and called as ONNX Runtime's are."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from mirlo.driver.compile import compile
from mirlo.driver.inference.binding import IOBinding
from mirlo.driver.inference.errors import (
    BindingError,
    BoundRunError,
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    MissingInputs,
    NoSuchFile,
    SessionError,
    call_error,
    open_error,
)
from mirlo.driver.inference.ignored import LOGGER
from mirlo.driver.inference.nodes import (
    ModelDescription,
    ModelMetadata,
    NodeArg,
    declaration_of,
    kind_of,
    shape_of,
)
from mirlo.driver.inference.options import OptionTypeError, RunOptions, SessionOptionError, SessionOptions
from mirlo.driver.inference.profiling import SessionProfile
from mirlo.driver.inference.providers import Providers, choose_providers
from mirlo.driver.inference.values import OrtValue
from mirlo.frontends.onnx.declared import ADVICE, CONTRADICTS
from mirlo.frontends.onnx.model import without_declared_shapes
from mirlo.runtime.artifact import MODEL_FILE, TensorSpec
from mirlo.runtime.compiled_program import Port
from mirlo.runtime.container import has_magic
from mirlo.runtime.dtypes import ELEMENT_TYPES, numpy_dtype
from mirlo.runtime.errors import InputError, MirloError, UnmetAssumption, nearest
from mirlo.runtime.executable import Executable
from mirlo.runtime.kinds import STRING
from mirlo.runtime.load import load
from mirlo.runtime.program import Program

_WITHOUT_EFFECT = ("enable_fallback", "read_config_from_model", "disabled_optimizers")
"""Keyword arguments of ONNX Runtime's sessions that have no meaning here."""
_ORT_FORMAT = b"ORTM"
"""Bytes 4 to 8 of a file in ONNX Runtime's own format."""


class InferenceSession:
    """A compiled model with the interface of `onnxruntime.InferenceSession`.

    `path_or_bytes` is an ONNX model, its bytes, or a `.mirlo` file. Keyword arguments are those of `mirlo.compile`.
    `executable` is the compiled model. Settings of ONNX Runtime alone are accepted, and logged at debug level.
    """

    def __init__(
        self,
        path_or_bytes: object,
        sess_options: SessionOptions | None = None,
        providers: Providers = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
        **options: Any,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise OptionTypeError(
                f"sess_options: expected mirlo.SessionOptions(), found {type(sess_options).__module__}."
                f"{type(sess_options).__name__}"
            )
        self._model = path_or_bytes
        self._model_path = os.fspath(path_or_bytes) if isinstance(path_or_bytes, (str, os.PathLike)) else None
        self._model_bytes = path_or_bytes if isinstance(path_or_bytes, bytes) else None
        self._sess_options = self._settings = sess_options or SessionOptions()
        self.executable: Any
        self._profile: SessionProfile | None = None
        self._profile_start = 0
        self._target = ""
        self._builds: list[tuple[dict[str, int], Any]] = []
        """Builds for sizes of calls that the build for any sizes does not serve."""
        self._options = {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT}
        self._open(self._settings.providers if providers is None else providers, provider_options)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model on arrays by input name; return the named outputs in order, or all of them for None."""
        wanted = self._wanted(output_names)
        results = self._execute(input_feed, run_options)
        return [results[name] for name in wanted]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model on values by input name; return the named outputs as values."""
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(result) for result in self.run(output_names, feed, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], object, str], object],
        user_data: object = None,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run the model on another thread, which calls `callback` with the results, `user_data` and an error's text."""
        self._require_all(input_feed)

        def call() -> None:
            try:
                results, problem = self.run(output_names, input_feed, run_options), ""
            except Exception as error:  # the callback is the only one to tell
                results, problem = [], str(error) or type(error).__name__
            callback(results, user_data, problem)

        threading.Thread(target=call, name="mirlo run_async").start()

    def io_binding(self) -> IOBinding:
        """Return an empty binding, for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run the model on the arrays of a binding, and write to its outputs."""
        if not iobinding.outputs:
            raise BindingError("the binding has no outputs: call bind_output for each that you want")
        bound = {name: array for name, array in iobinding.outputs.items() if array is not None}
        try:
            results = self._run_bound(iobinding.inputs, bound, run_options)
        except InputError as problem:
            raise BindingError(f"Error in execution: {problem}") from problem
        except SessionError as problem:
            raise BoundRunError(problem) from problem
        iobinding.results = {name: bound.get(name, results[name]) for name in iobinding.outputs}

    def get_inputs(self) -> list[NodeArg]:
        """Return the name, shape and type of each input."""
        return list(self._description.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return the name, shape and type of each output."""
        return list(self._description.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs with a default value; the argument `shapes` of `mirlo.compile` makes them inputs."""
        return self._description.defaults

    def get_modelmeta(self) -> ModelMetadata:
        """Return the metadata of the model's file; those of a `.mirlo` file are empty."""
        return self._description.metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options that the session was opened with."""
        return self._settings

    def get_providers(self) -> list[str]:
        """Return the names of the session's providers."""
        return list(self._provider_options)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each of the session's providers."""
        return {name: dict(options) for name, options in self._provider_options.items()}

    def set_providers(
        self, providers: Providers = None, provider_options: Sequence[Mapping[str, object]] | None = None
    ) -> None:
        """Open the model again with other providers."""
        self._open(providers, provider_options)

    def disable_fallback(self) -> None:
        """Do nothing: a session never falls back to other providers."""

    def enable_fallback(self) -> None:
        """Do nothing: a session never falls back to other providers."""

    def end_profiling(self) -> str:
        """Write the profile and return the name of its file; "" if profiling is not enabled, or has ended."""
        profile, self._profile = self._profile, None
        return "" if profile is None else profile.write()

    def get_profiling_start_time_ns(self) -> int:
        """Return the nanoseconds of `time.perf_counter_ns` when profiling began, 0 if it did not."""
        return self._profile_start

    # What packages read of ONNX Runtime's sessions beside their methods: `_model_path`, `_model_bytes`,
    # `_sess_options`, `_provider_options`, and these.

    @property
    def _providers(self) -> list[str]:
        return self.get_providers()

    @property
    def _inputs_meta(self) -> list[NodeArg]:
        return self.get_inputs()

    @property
    def _outputs_meta(self) -> list[NodeArg]:
        return self.get_outputs()

    @property
    def _overridable_initializers(self) -> list[NodeArg]:
        return self.get_overridable_initializers()

    @property
    def _model_meta(self) -> ModelMetadata:
        return self.get_modelmeta()

    @property
    def _sess(self) -> InferenceSession:
        return self

    def _open(self, providers: Providers, provider_options: Sequence[Mapping[str, object]] | None) -> None:
        start = time.perf_counter()
        chosen = choose_providers(providers, provider_options)
        self._provider_options, self._target = chosen.options, chosen.target
        self._builds.clear()
        try:
            self.executable, declared = _opened(self._model, chosen.target, self._settings, self._options)
        except MirloError as problem:
            raise open_error(problem) from problem
        self._description = ModelDescription(declared, self.executable.inputs, self.executable.outputs)
        self._outputs = [argument.name for argument in self._description.outputs]
        if self._settings.enable_profiling:
            self._start_profile(time.perf_counter() - start)

    def _start_profile(self, seconds: float) -> None:
        profile = SessionProfile(self._settings.profile_file_prefix, next(iter(self._providers)))
        profile.add_opening(seconds)
        self._profile, self._profile_start = profile, profile.start_ns
        weakref.finalize(self, profile.write)  # also at exit, as in ONNX Runtime

    def _execute(self, feed: Mapping[str, Any], run_options: RunOptions | None) -> dict[str, Any]:
        """Return the outputs by name; values that are no arrays are converted where the model does not take them."""
        if run_options is not None:
            _require_running(run_options)
        try:
            return self._call(feed)
        except InputError as problem:
            self._require_all(feed)
            converted = self._converted(feed)
            if converted is None:
                raise call_error(problem) from problem
        except MirloError as problem:
            if not isinstance(problem.__cause__, UnmetAssumption):
                raise call_error(problem) from problem
            self._compile_for(feed, problem.__cause__)
            converted = dict(feed)
        try:
            return self._call(converted)
        except MirloError as problem:
            raise call_error(problem) from problem

    def _compile_for(self, feed: Mapping[str, Any], unmet: UnmetAssumption) -> None:
        """Compile the model for a call that violates an assumption of the general build.

        ONNX Runtime decides in each call, for example, whether `Squeeze` without axes drops a dim. Only sizes of 1 are
        fixed for it; other dims stay dynamic. A declared shape that differs is ignored from then on.
        """
        model, fixed = self._model, dict[str, int]()
        if CONTRADICTS in str(unmet):
            text = str(unmet).removesuffix(ADVICE)
            LOGGER.warning("%s: the model is compiled anew without the shapes that it declares", text)
            model = without_declared_shapes(self._model)
        else:
            sizes = self._sizes(feed)
            fixed = {dim: size for dim, size in sizes.items() if size == 1} or sizes
            LOGGER.debug("the model is compiled anew for a call with %s", fixed)
        options = {**self._options, "dims": {**(self._options.get("dims") or {}), **fixed}}
        try:
            executable = _compiled(model, self._target, self._settings, options)
        except MirloError as problem:
            raise open_error(problem) from problem
        self._builds.insert(0, (fixed, executable))

    def _sizes(self, feed: Mapping[str, Any]) -> dict[str, int]:
        """Return the sizes of the dynamic dims in a call."""
        pairs = ((shape_of(spec), np.shape(feed.get(spec.name, 0))) for spec in self.executable.inputs)
        return {
            dim: size
            for shape, actual in pairs
            for dim, size in zip(shape, actual, strict=False)
            if isinstance(dim, str)
        }

    def _build_for(self, feed: Mapping[str, Any]) -> Any:
        """Return the build that serves a call."""
        sizes = self._sizes(feed)
        for fixed, executable in self._builds:
            if fixed.items() <= sizes.items():
                return executable
        return self.executable

    def _run_bound(
        self, feed: Mapping[str, Any], bound: Mapping[str, np.ndarray], run_options: RunOptions | None
    ) -> Mapping[str, Any]:
        """Run the model; return the outputs by name, bound ones in their arrays."""
        if bound and isinstance(self.executable, Executable) and self._profile is None and not self._builds:
            _require_running(run_options)
            return self.executable.run(feed, out=bound)
        results = self._execute(feed, run_options)
        for name, array in bound.items():
            _write(name, array, results[name])
        return results

    def _call(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        profile = self._profile
        executable = self._build_for(feed) if self._builds else self.executable
        if profile is None:
            results: dict[str, Any] = executable.run(feed)
            return results
        if not isinstance(executable, (Executable, Program)):
            raise Fail(f"a model of type {type(executable).__name__} has no profile: clear enable_profiling")
        run = executable.run_timed(feed)
        profile.add_run(run)
        return run.results

    def _converted(self, feed: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the feed with arrays for values of ONNX Runtime, lists and numbers; None if it has none of these."""
        specs = {spec.name: spec for spec in self.executable.inputs}
        result = {name: _as_fed(specs.get(name), value) for name, value in feed.items()}
        return None if all(result[name] is value for name, value in feed.items()) else result

    def _require_all(self, feed: Mapping[str, Any]) -> None:
        if not isinstance(feed, Mapping):
            return
        missing = [
            argument.name for argument in self._description.inputs
            if argument.name not in feed and not argument.type.startswith("optional")
        ]  # fmt: skip
        if missing:
            raise MissingInputs(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")

    def _wanted(self, output_names: Sequence[str] | None) -> list[str]:
        if not output_names:
            return self._outputs
        if isinstance(output_names, str):
            raise OptionTypeError(f"output_names: expected a list of names, found the text {output_names!r}")
        for name in output_names:
            if name not in self._outputs:
                hint = nearest(name, self._outputs)
                raise InvalidArgument(f"no output is named '{name}'; outputs: {', '.join(self._outputs)}{hint}")
        return list(output_names)


def _opened(model: object, target: str, settings: SessionOptions, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return a compiled model, and the declarations of the model's file."""
    if isinstance(model, (str, os.PathLike)) and not os.path.exists(model):
        raise NoSuchFile(f"Load model from {os.fspath(model)} failed: File doesn't exist")
    if _is_compiled(model):
        if options or settings.free_dims:
            raise SessionOptionError(f"'{model}' is compiled already: options of compilation do not apply")

        return load(model), None
    _refuse_ort_format(model)
    executable = _compiled(model, target, settings, options)
    if settings.optimized_model_filepath:
        executable.save(settings.optimized_model_filepath)
    return executable, declaration_of(model)


def _compiled(model: object, target: str, settings: SessionOptions, options: Mapping[str, Any]) -> Any:
    arguments = {"threads": settings.threads, "opt_level": settings.opt_level, **options}
    arguments["dims"] = {**settings.free_dims, **(options.get("dims") or {})} or None
    return compile(model, arguments.pop("target", target), **arguments)


def _refuse_ort_format(model: object) -> None:
    head = b""
    if isinstance(model, (str, os.PathLike)) and os.path.isfile(model):
        with open(model, "rb") as file:
            head = file.read(8)
    elif isinstance(model, (bytes, bytearray, memoryview)):
        head = bytes(model[:8])
    if head[4:8] == _ORT_FORMAT:
        name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "the model"
        raise InvalidProtobuf(f"{name}: it is in ONNX Runtime's own format: open the ONNX model that it was made of")


def _require_running(run_options: RunOptions | None) -> None:
    if run_options is None:
        return
    if not isinstance(run_options, RunOptions):
        raise OptionTypeError(f"run_options: expected mirlo.RunOptions(), found {run_options!r}")
    if run_options.terminate:
        raise Fail("Exiting due to terminate flag being set to true.")


def _as_fed(spec: TensorSpec | Port | None, value: Any) -> Any:
    """Return the array of a value of ONNX Runtime, and of a list for an input that is a tensor.

    Elements of string tensors are converted by `str`, as in ONNX Runtime: 1 in a column of a table is "1".
    """
    if isinstance(value, OrtValue):
        return value.numpy()
    if spec is None:
        return value
    kind = kind_of(spec)
    if kind == STRING:
        is_mixed = isinstance(value, list) or (isinstance(value, np.ndarray) and value.dtype == object)
        return _texts(np.asarray(value, object)) if is_mixed else value
    if kind not in ELEMENT_TYPES or not isinstance(value, (list, tuple)):
        return value
    try:
        return np.asarray(value, numpy_dtype(kind))
    except (TypeError, ValueError, OverflowError) as problem:
        what = f"expected an array {spec}, found a {type(value).__name__} of which numpy makes none: {problem}"
        raise InvalidArgument(f"input '{spec.name}': {what}") from None


def _texts(array: np.ndarray) -> np.ndarray:
    result = np.empty(array.shape, object)
    result.reshape(-1)[:] = [str(element) for element in array.flat]
    return result


def _write(name: str, array: np.ndarray, result: object) -> None:
    """Write an output to the array that is bound to it."""
    if not isinstance(result, np.ndarray) or (array.shape, array.dtype) != (result.shape, result.dtype):
        raise BindingError(f"output '{name}': the bound array is {array.dtype}{list(array.shape)}, the result is not")
    array[...] = result


def _is_compiled(source: object) -> TypeGuard[str | os.PathLike[str]]:
    if not isinstance(source, (str, os.PathLike)):
        return False
    return Path(source).suffix == ".mirlo" or has_magic(source, MODEL_FILE)
