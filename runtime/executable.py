"""The executable: a compiled model that can be called with arrays."""

from __future__ import annotations

import ctypes
import os
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.runtime import artifact as artifacts
from mirlo.runtime import interrupts, packed, system, threads
from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.artifact import Artifact, TensorSpec, describe
from mirlo.runtime.container import address_of
from mirlo.runtime.device_array import DeviceArray, is_on_device
from mirlo.runtime.direct import DirectCall
from mirlo.runtime.dtypes import MAX_RANK, numpy_dtype
from mirlo.runtime.entry_points import EntryPoint, offered
from mirlo.runtime.errors import ArtifactError, InputError, OutOfMemoryError
from mirlo.runtime.external import LoadedExternals, load_externals
from mirlo.runtime.inputs import GivenOutputs, bind, check_output, convert, is_same_memory, outputs_given, random_input
from mirlo.runtime.kernel_code import KernelCodeOwner
from mirlo.runtime.known_packages import install_command
from mirlo.runtime.loaders import load_code
from mirlo.runtime.memory import MemoryUse
from mirlo.runtime.names import POLLS, REQUIRE
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.sizes import Allocations, RecordWords, Sizes

if TYPE_CHECKING:
    from mirlo.runtime.profile import Profile, TimedRun
    from mirlo.runtime.update import UpdatingCall


class OutputArrays:
    """Makes and checks the arrays of the outputs of a model."""

    def __init__(self, artifact: Artifact, sizes: Sizes, arenas: ArenaPool) -> None:
        self._arenas = arenas
        self.specs = artifact.outputs
        self.names = [spec.name for spec in self.specs]
        late = set(artifact.late)
        self.late = {i for i, spec in enumerate(self.specs) if late.intersection(map(str, spec.shape))}
        """The outputs of data-dependent sizes."""
        indices = {spec.name: i for i, spec in enumerate(artifact.inputs)}
        self._aliases = {name: indices[source] for name, source in artifact.aliases.items()}
        self._dtypes = [numpy_dtype(spec.dtype) for spec in self.specs]
        self._sizes = sizes

    def from_device(self, arrays: list[DeviceArray], out: GivenOutputs) -> list[np.ndarray]:
        """Return copies on the CPU, in the caller's arrays where they are given."""
        result: list[np.ndarray] = []
        for spec, array, output in zip(self.specs, arrays, outputs_given(self.specs, out), strict=True):
            result.append(array.numpy(None if output is None else check_output(spec, array.shape, output, result)))
        return result

    def updated(self, out: GivenOutputs, inputs: list[np.ndarray]) -> dict[int, np.ndarray]:
        """Return the caller's arrays for outputs of data-dependent sizes that update their input in place."""
        requested = outputs_given(self.specs, out)
        result: dict[int, np.ndarray] = {}
        for i in self.late:
            array, source = requested[i], self._aliases.get(self.specs[i].name)
            if source is not None and is_same_memory(array, inputs[source]) and array.flags.c_contiguous:
                result[i] = array
        return result

    def with_late(
        self, results: Sequence[np.ndarray | None], late: Allocations, record: RecordWords, out: GivenOutputs
    ) -> list[np.ndarray]:
        """Return the outputs, including those with data-dependent sizes."""
        late.require()
        result: list[np.ndarray] = []
        requested = outputs_given(self.specs, out)
        for i, (spec, array) in enumerate(zip(self.specs, results, strict=True)):
            if array is None:
                array = late.output(i, self._dtypes[i], self._sizes.shape(spec.shape, record))
                wanted = requested[i]
                if wanted is not None:
                    wanted = check_output(spec, array.shape, wanted, result)
                    if not is_same_memory(wanted, array):
                        wanted[...] = array
                    array = wanted
            result.append(array)
        return result

    def before_call(self, out: GivenOutputs, record: RecordWords, inputs: list[np.ndarray]) -> list[np.ndarray | None]:
        """Return new arrays, or the caller's; None for each output whose size is not known yet."""
        results: list[np.ndarray | None] = []
        for i, (spec, dtype, output) in enumerate(
            zip(self.specs, self._dtypes, outputs_given(self.specs, out), strict=True)
        ):
            if i in self.late:
                results.append(None)
                continue
            shape = self._sizes.shape(spec.shape, record)
            if min(shape, default=0) < 0:
                raise InputError(f"output '{spec.name}': of these inputs it would be {describe(spec.dtype, shape)}")
            if output is None:
                try:
                    results.append(self._arenas.empty(dtype, shape))
                except OutOfMemoryError as error:
                    raise OutOfMemoryError(f"there is no memory for output {spec}: {error}") from None
                continue
            source = self._aliases.get(spec.name)
            others = inputs
            if source is not None and is_same_memory(output, inputs[source]):
                others = [array for i, array in enumerate(inputs) if i != source]
            taken = [array for array in others + results if array is not None]
            results.append(check_output(spec, shape, output, taken))
        return results


METHODS = "mirlo.methods"
"""The entry point group of former methods of `Executable`, which functions of packages replace."""


def package_method(name: str) -> Any:
    """Return the function or property of this name, with a warning that names its place; None if there is none."""
    if name.startswith("_"):
        return None
    entry = _method_entry(name)
    if entry is not None:
        place = entry.value.replace(":", ".")
        warnings.warn(f"Executable.{name} is now {place}(executable, ...)", DeprecationWarning, stacklevel=3)
        return entry.load()
    command = install_command(METHODS, name)
    if command is not None:
        raise AttributeError(f"Executable.{name} is a function of a package that is not installed: {command}")
    return None


@cache
def _method_entry(name: str) -> EntryPoint | None:
    return next((entry for entry in offered(METHODS) if entry.name == name), None)


class Executable(KernelCodeOwner):
    """A compiled model.

    Call it with one array per input, by position or by name. Arrays are numpy's, or any object with DLPack's
    protocol or numpy's array interface; they are used without a copy if they are contiguous. The result is an array,
    or a tuple of arrays if the model has several outputs. `run` takes and returns dicts instead, `on_device` returns
    arrays that stay on the device.

    Calls from several threads run concurrently, each with its own arena.
    """

    def __init__(
        self, artifact: Artifact, store: ParameterStore, device: int | None = None, arenas: ArenaPool | None = None
    ) -> None:
        """Load an artifact with its weights; `arenas` give the memory of calls, in place of a pool of this model's."""
        artifacts.check_params(artifact, store)
        artifacts.check_caches(artifact)
        self._sizes = Sizes(artifact)
        _check_signature(artifact, self._sizes)
        self.artifact = artifact
        # Views of the arrays, so that the rest of the compiler's store can be freed.
        self._store = ParameterStore()
        for spec in artifact.params:
            self._store.add(spec.name, store.get(spec.name), store.source(spec.name))
        self._arenas = arenas or ArenaPool(artifact.arena_bytes)
        self._results = OutputArrays(artifact, self._sizes, self._arenas)
        self._allocates = bool(self._results.late) or bool(artifact.metadata.get("allocates"))
        self._polls = bool(artifact.metadata.get(POLLS))
        self._has_conditions = REQUIRE in artifact.packed
        for external in artifact.externals:
            for name in external.stored_params:
                self._store.add(name, store.get(name), store.source(name))
        self._externals = load_externals(artifact.externals, self._store, artifact.threads)
        # Also at exit: the resources of a library are released while it is still loaded.
        weakref.finalize(self, self._externals.release)
        self._functions = packed.resolve(artifact.packed, "the model", self._externals.functions)
        self._params = self._params_array()
        self._code = load_code(artifact, device)
        self._names = [spec.name for spec in artifact.inputs]
        self._direct = DirectCall.of(
            artifact, self._sizes, self._code, self._params, self._arenas, self._results.late, self._allocates
        )
        system.release_code_seldom()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the names and types of the inputs."""
        return self.artifact.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the names and types of the outputs."""
        return self.artifact.outputs

    @property
    def aliases(self) -> dict[str, str]:
        """Return the inputs that can be updated in place, by the names of the outputs."""
        return self.artifact.aliases

    def __getattr__(self, name: str) -> Any:
        """Return a method that a package has in its own module now; for one version, with a warning."""
        method = package_method(name)
        if method is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return method.__get__(self, type(self))

    @property
    def memory(self) -> MemoryUse:
        """Return the bytes of the weights (shared by all calls) and of the arena of a call."""
        return MemoryUse(self._store.nbytes, self.artifact.arena_bytes, self._code.device_arena, self._sizes.is_dynamic)

    @property
    def stored_weights(self) -> ParameterStore:
        """Return the weights by name; they must not be written."""
        return self._store

    def weight(self, name: str) -> np.ndarray:
        """Return a weight by its name in `artifact.params`; it must not be written."""
        return self._store.get(name)

    def resident(self) -> Executable:
        """Return the model with its weights in memory of this process, in huge pages where the system has them.

        Weights of a loaded file are mapped otherwise: they take no time to load and processes share them, but cores
        read them more slowly, which counts where each call reads all of them. Tables of which calls read some rows stay
        mapped.
        """
        if self.artifact.externals or self._code.device_arena:
            return self
        store = self._store.copy()
        tables = self.artifact.metadata.get("tables")
        mapped = {str(name) for name in tables} if isinstance(tables, list) else set()
        store.hold([spec.name for spec in self.artifact.params if spec.name not in mapped], with_mapped=True)
        return Executable(self.artifact, store)

    @property
    def externals(self) -> LoadedExternals:
        """Return the loaded external modules."""
        return self._externals

    def __call__(
        self, *arrays: np.ndarray, out: GivenOutputs = None, **named: np.ndarray
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run the model; `out` are arrays to write the outputs to, in place of new ones.

        `out` is an array, a list of one per output (None allocates a new one), or a dict by output name. An output
        of `aliases` may be written to the array of its input, which is then updated without a copy; no other arrays
        overlap. An input that is itself called `out` is passed by position, or to `run`.
        """
        if out is None:
            quick = self.run_quickly(arrays if not named else None if arrays else self._in_order(named))
            if quick is not None:
                return quick[0] if len(quick) == 1 else quick
        results = self._execute(bind(self.inputs, arrays, named), out)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Mapping[str, np.ndarray], out: GivenOutputs = None) -> dict[str, np.ndarray]:
        """Run the model on arrays by input name, and return arrays by output name."""
        results: Sequence[np.ndarray] | None = None
        if out is None:
            results = self.run_quickly(self._in_order(inputs))
        if results is None:
            results = self._execute(bind(self.inputs, (), inputs), out)
        return dict(zip(self._results.names, results, strict=True))

    def run_quickly(self, values: Sequence[np.ndarray] | None) -> tuple[np.ndarray, ...] | None:
        """Return the results in new arrays; None if values are not exactly arrays that the fast path takes."""
        if self._direct is None or values is None:
            return None
        if self.artifact.threads > 1:
            threads.revive(self.artifact.threads)
        return self._run_directly(self._direct, values)

    def on_device(
        self, *arrays: object, stream: object = None, out: object = None, **named: object
    ) -> DeviceArray | tuple[DeviceArray, ...]:
        """Run the model and leave the results on its device, as `DeviceArray`s; return before they are computed.

        Inputs are arrays on the device (with `__dlpack__` or `__cuda_array_interface__`), used without a copy, or on
        the CPU. The call is ordered after earlier and before later work on `stream`: a handle, or a stream of
        PyTorch, CuPy or `cuda.core`; without one CUDA's default stream. `out` are arrays on the device to write the
        outputs to.
        """
        results = self._run_on_device(bind(self.inputs, arrays, named), out, stream)
        return results[0] if len(results) == 1 else tuple(results)

    def to(self, device: int) -> Executable:
        """Return the model on another device of this machine, by its number."""
        return Executable(self.artifact, self._store, device)

    def random_inputs(self, seed: int = 0, dims: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
        """Return random arrays that fit the inputs; `dims` are the symbols' sizes.

        Floats are normally distributed, integers are 0 and 1.
        """
        rng = np.random.default_rng(seed)
        return {spec.name: random_input(spec, dims or {}, rng) for spec in self.inputs}

    def profile(
        self, *arrays: np.ndarray, repeats: int = 10, dims: Mapping[str, int] | None = None, **named: np.ndarray
    ) -> Profile:
        """Measure the time of each kernel: the median of several runs, after one warm-up run.

        Without inputs, random ones are used; `dims` are the sizes of their dynamic dims.
        """
        from mirlo.runtime.profile import Profile, make_profile, tick_length  # for few calls, as those below

        if repeats < 1:
            raise InputError(f"repeats: expected 1 or more, found {repeats}")
        if not arrays and not named:
            named = self.random_inputs(dims=dims)
        values = bind(self.inputs, arrays, named)
        if not self.artifact.kernels:
            return Profile((), repeats)
        # Both the time stamps of the runs and the clock are read at the same points: the ends of a long interval give
        # the length of a tick more accurately than one run.
        stamps = np.zeros((repeats + 1, len(self.artifact.kernels) + 1), np.uint64)
        clock = []
        for row in stamps:
            self._execute(values, None, row)
            clock.append(time.perf_counter())
        seconds_per_tick = tick_length((clock[0], int(stamps[0, -1])), (clock[-1], int(stamps[-1, -1])))
        return make_profile(self.artifact.kernels, stamps[1:], seconds_per_tick, self._externals.steps())

    def run_timed(self, inputs: Mapping[str, np.ndarray]) -> TimedRun:
        """Run the model like `run`, and return the results with the time stamps of the kernels."""
        from mirlo.runtime.profile import TimedRun

        kernels, values = self.artifact.kernels, bind(self.inputs, (), inputs)
        stamps = np.zeros(len(kernels) + 1, np.uint64) if kernels else None
        start = time.perf_counter()
        results = dict(zip(self._results.names, self._execute(values, None, stamps), strict=True))
        return TimedRun(results, kernels, stamps, start, time.perf_counter())

    def device_microseconds(self, *arrays: np.ndarray, repeats: int = 10, **named: np.ndarray) -> float | None:
        """Return the time of a repeated call by the device's clock, without copies of its arrays to and from it.

        None for models that are not on a device, and for those with host decisions during the run.
        """
        if repeats < 1:
            raise InputError(f"repeats: expected 1 or more, found {repeats}")
        if self._code.timed is None:
            return None
        self._execute(bind(self.inputs, arrays, named), None)
        return self._code.timed(repeats)

    def updating(
        self,
        arrays: Mapping[str, np.ndarray],
        outputs: Mapping[str, str],
        constants: Mapping[str, np.ndarray] | None = None,
    ) -> UpdatingCall | None:
        """Return prepared calls that update these inputs in place, by `outputs`; None if calls cannot be prepared.

        `constants` are inputs that stay the same in all calls.
        """
        from mirlo.runtime.update import CallParts, UpdatingCall, can_prepare

        known = self.aliases
        wrong = {output: name for name, output in outputs.items() if known.get(output) != name}
        if wrong or set(outputs) != set(arrays):
            raise InputError(f"these outputs do not update the arrays in place: {wrong or sorted(outputs.values())}")
        parts = CallParts(
            self.artifact, self._sizes, self._code, self._params, self._arenas, self._measure, self._polls
        )
        return UpdatingCall(parts, arrays, outputs, constants or {}) if can_prepare(parts) else None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model with its weights to a `.mirlo` file, which `mirlo.load` reads without compiling."""
        artifacts.save(path, self.artifact, self._store)

    def share_arenas(self, pool: ArenaPool) -> None:
        """Cache the arenas of calls in a pool shared with other models that are not called at the same time."""
        self._arenas.share(pool)

    def release_arenas(self) -> None:
        """Free the arenas that are cached for later calls."""
        self._arenas.release()
        if self._code.release is not None:
            self._code.release()

    def fill_device(self, byte: int) -> None:
        """Fill the memory that calls use on a device, so that tests find reads before writes."""
        if self._code.fill is not None:
            self._code.fill(byte)

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"<Executable for {self.artifact.target}: ({inputs}) -> ({outputs}); {self.memory}>"

    def _in_order(self, inputs: Mapping[str, np.ndarray]) -> Sequence[np.ndarray] | None:
        """Return the inputs in the model's order; None if some are missing or unknown."""
        if self._direct is None:
            return None
        try:
            return [inputs[name] for name in self._names] if len(inputs) == len(self._names) else None
        except Exception:  # `bind` says what is wrong with it
            return None

    def _run_directly(self, direct: DirectCall, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...] | None:
        """Return the results of the fast path; None if the call cannot take it."""
        if self._has_conditions:
            with packed.failures():  # the general path raises them
                results = direct.run(values)
        else:
            results = direct.run(values)
        if self._polls:
            interrupts.raise_pending()
        return results

    def _execute(
        self, values: Sequence[np.ndarray], out: GivenOutputs, stamps: np.ndarray | None = None
    ) -> list[np.ndarray]:
        if self.artifact.threads > 1:
            threads.revive(self.artifact.threads)
        if self._code.device is not None and stamps is None and any(map(is_on_device, values)):
            return self._results.from_device(self._run_on_device(values, None, None), out)
        dims: dict[str, int] = {}
        # These locals keep every array alive during the call, whatever other threads of the caller do with theirs.
        arrays = [convert(spec, value, dims) for spec, value in zip(self.inputs, values, strict=True)]
        if self._direct is not None and out is None and stamps is None:
            quick = self._run_directly(self._direct, arrays)
            if quick is not None:
                return list(quick)
        record = self._sizes.record(dims)
        self._measure(record)
        nbytes = self.artifact.arena_bytes
        if self._sizes.is_dynamic:
            nbytes = 0 if self._code.has_memory else self._sizes.arena_bytes(record)
        results = self._results.before_call(out, record, arrays)
        late = Allocations(self._results.updated(out, arrays), self._arenas.empty) if self._allocates else None
        if late is not None:
            record[self._sizes.words - 1] = late.address
        addresses = [0 if array is None else address_of(array) for array in (*arrays, *results)]
        tensors = (ctypes.c_void_p * (len(addresses) + 1))(*addresses, ctypes.addressof(record))
        with packed.failures() as failures, self._arenas.arena(nbytes) as arena:
            self._code.entry(tensors, self._params, arena, None if stamps is None else address_of(stamps))
        if self._polls:
            interrupts.raise_pending()
        if failures or record[0] > 0:
            self._raise_first(failures, record)
        self._sizes.require(record)
        if late is None:
            return [array for array in results if array is not None]
        return self._results.with_late(results, late, record, out)

    def _raise_first(self, failures: list[tuple[str, BaseException]], record: RecordWords) -> None:
        """Raise the error of a call in which a function failed."""
        artifact = self.artifact
        calls = [(kernel.symbol, kernel.source) for kernel in artifact.kernels]
        packed.raise_first(failures, artifact.packed, record[0], record[1], self._externals.explain, calls)

    def _measure(self, record: RecordWords) -> None:
        """Check the sizes of the inputs in compiled code and compute the others: an entry call without tensors."""
        if self._sizes.is_dynamic:
            self._code.entry(None, None, ctypes.addressof(record), None)
            self._sizes.require(record)

    def _run_on_device(self, values: Sequence[object], out: object, stream: object) -> list[DeviceArray]:
        from mirlo.runtime.on_device import DeviceCall, run_on_device  # for models on devices

        side = self._code.device
        if side is None:
            raise InputError(
                f"models for target '{self.artifact.target}' give arrays of the CPU: call the model itself"
            )
        with packed.failures() as failures:

            def finish(record: RecordWords) -> None:
                if failures or record[0] > 0:
                    self._raise_first(failures, record)
                self._sizes.require(record)

            call = DeviceCall(self._params, self._measure, finish, self._results.late)
            return run_on_device(side, self.artifact, self._sizes, values, out, stream, call)

    def _params_array(self) -> ctypes.Array[ctypes.c_void_p]:
        """Return the addresses of the weights, then of the packed functions: the same for every call."""
        weights = [address_of(self._store.get(spec.name)) for spec in self.artifact.params]
        functions = [ctypes.cast(function, ctypes.c_void_p).value for function in self._functions]
        return (ctypes.c_void_p * (len(weights) + len(functions)))(*weights, *functions)


def _check_signature(artifact: Artifact, sizes: Sizes) -> None:
    for kind, specs in (("inputs", artifact.inputs), ("outputs", artifact.outputs)):
        for spec in specs:
            if len(spec.shape) > MAX_RANK:
                what = f"{kind[:-1]} '{spec.name}' has {len(spec.shape)} dims"
                raise ArtifactError(f"{what}, arrays have at most {MAX_RANK}: reshape it in the model")
        names = [spec.name for spec in specs]
        for name in names:
            if names.count(name) > 1:
                raise ArtifactError(f"two {kind} are named '{name}': each needs a name of its own")
    known = sizes.known
    for spec in artifact.outputs:
        for dim in spec.shape:
            if isinstance(dim, str) and dim not in known:
                raise ArtifactError(f"output {spec}: no input has the dim '{dim}', so its size cannot be known")
