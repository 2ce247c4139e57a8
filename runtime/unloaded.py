"""A compiled model for another machine than this one."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from mirlo.runtime import artifact as artifacts
from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.errors import NotForThisMachine
from mirlo.runtime.kernel_code import KernelCodeOwner
from mirlo.runtime.memory import MemoryUse
from mirlo.runtime.params import ParameterStore


class UnloadedModel(KernelCodeOwner):
    """A model that was compiled for another machine: it can be inspected and saved, but not called here."""

    def __init__(self, artifact: Artifact, store: ParameterStore, reason: str) -> None:
        artifacts.check_params(artifact, store)
        self.artifact = artifact
        self.reason = reason
        """Why it does not run on this machine."""
        self._store = store

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the names and types of the inputs."""
        return self.artifact.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the names and types of the outputs."""
        return self.artifact.outputs

    @property
    def memory(self) -> MemoryUse:
        """Return the bytes of the weights and of the arena of a call."""
        weights = self._store.nbytes_of({spec.name for spec in self.artifact.params})
        return MemoryUse(weights, self.artifact.arena_bytes, is_dynamic=bool(self.artifact.metadata.get("sizes")))

    @property
    def stored_weights(self) -> ParameterStore:
        """Return the weights by name; they must not be written."""
        return self._store

    def weight(self, name: str) -> np.ndarray:
        """Return a weight by its name in `artifact.params`; it must not be written."""
        return self._store.get(name)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model with its weights to a `.mirlo` file, for `mirlo.load` on such a machine."""
        artifacts.save(path, self.artifact, self._store)

    def __call__(self, *arrays: object, **named: object) -> np.ndarray | tuple[np.ndarray, ...]:
        """Raise an error that says for which machine the model is."""
        raise NotForThisMachine(self.reason)

    def run(self, inputs: Mapping[str, object], out: object = None) -> dict[str, np.ndarray]:
        """Raise an error that says for which machine the model is."""
        raise NotForThisMachine(self.reason)

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"<UnloadedModel for {self.artifact.target}: ({inputs}) -> ({outputs}); {self.reason}>"
