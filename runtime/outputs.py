"""The arrays of a call's outputs: new ones, the caller's, and those with sizes known only after the call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.artifact import Artifact, describe
from mirlo.runtime.device_array import DeviceArray
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.errors import InputError, OutOfMemoryError
from mirlo.runtime.inputs import GivenOutputs, check_output, is_same_memory, outputs_given
from mirlo.runtime.sizes import Allocations, RecordWords, Sizes


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
