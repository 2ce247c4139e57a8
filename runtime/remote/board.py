"""A board that runs models: a session with its runner."""

from __future__ import annotations

import hashlib
import struct
import tempfile
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.errors import ArtifactError, NotForThisMachine
from mirlo.runtime.loaders import platform_of
from mirlo.runtime.locks import make_lock
from mirlo.runtime.names import terminal
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass
from mirlo.runtime.remote.model import RemoteModel, TimedCalls
from mirlo.runtime.remote.wire import Connection, FrameKind, RemoteError, RunnerAddress, RunnerLost
from mirlo.runtime.tensor_bytes import read_tensors, tensor_bytes

WANT_OUTPUTS, CPU_TIME = 1, 2
"""Flags of a request to run."""
MAX_RESULTS = 1 << 34
"""Bytes of results that are taken: a runner that announces more is broken."""
MARGIN_SECONDS = 30.0
"""Time that a reply may take beyond the limit of the runner for a call."""

LinkModel = Callable[[Artifact, ParameterStore, Path, str, str], Sequence[Path]]
"""Writes a model to a shared library: its path, the model's name, where the weights are; returns the files."""


@dataclass(frozen=True)
class BoardFacts:
    """What a runner reports of its machine."""

    arch: str
    """As in a triple: aarch64, riscv64, x86_64."""
    system: str
    cores: int
    limit: int
    """Bytes of models that it takes."""
    seconds: int
    """The longest time of the calls of one request."""


class Board:
    """A board; models that it has run in processes of their own."""

    def __init__(self, address: RunnerAddress, token: bytes, link: LinkModel) -> None:
        self.address = address
        self._link = link
        self._connection = Connection(address, token)
        self.lock = make_lock()
        """Held for requests that belong together: threads that call models take turns."""
        self.facts = _facts(address, self._connection.facts)
        self._unused: deque[int] = deque()
        """Models that nothing refers to any more; they are freed by the next request, not in the middle of one."""

    def features(self, names: Sequence[str]) -> list[str]:
        """Return those of some features of processors that this one has."""
        with self.lock:
            known = set(self._connection.request(FrameKind.FEATURES, " ".join(names).encode()).decode().split(" "))
        return [name for name in names if name in known]

    def load(self, artifact: Artifact, store: ParameterStore) -> RemoteModel:
        """Link a model for the board and load it there."""
        self._require_fits(artifact)
        with tempfile.TemporaryDirectory(prefix="mirlo-remote-") as name:
            library, *weights = self._link(artifact, store, Path(name) / "libmodel.so", "model", "beside")
            files = [path.read_bytes() for path in (library, *weights)]
        with self.lock:
            self._free_unused()
            number = self._upload(files, artifact.threads)
        model = RemoteModel(artifact, store, self, number)
        weakref.finalize(model, self._unused.append, number)
        return model

    def send_inputs(self, number: int, arrays: Sequence[np.ndarray], sent: bytes | None) -> bytes:
        """Send the inputs of a model, unless they have the digest of those that it has; return their digest."""
        content = tensor_bytes(arrays)
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if digest == sent:
            return digest
        with self.lock:
            self._connection.request(FrameKind.INPUTS, struct.pack("<IQ", number, len(content)))
            self._connection.send_parts(content)
            self._connection.receive(FrameKind.OK, self._longest)
        return digest

    def run(
        self, number: int, calls: int, *, warm: int = 1, stamps: int = 0, pause: float = 0.0, cpu_time: bool = False,
        outputs: Sequence[TensorSpec] | None = None,
    ) -> TimedCalls:  # fmt: skip
        """Call a model `warm` times, and this many times more that are timed, with stamps of kernels."""
        flags = (WANT_OUTPUTS if outputs is not None else 0) | (CPU_TIME if cpu_time else 0)
        order = struct.pack("<IIIIIQ", number, calls, warm, stamps, flags, int(pause * 1e9))
        with self.lock:
            count = int.from_bytes(self._connection.request(FrameKind.RUN, order, self._longest)[:8], "little")
            if count > MAX_RESULTS:
                raise RunnerLost(f"the runner at {self.address} announced {count} bytes of results")
            content = self._connection.receive_parts(count)
        times, ticks = calls * 2, calls * stamps
        if count < (times + ticks) * 8:
            raise RunnerLost(f"the runner at {self.address} sent the times of other calls")
        try:
            tensors, end = read_tensors(outputs or (), content, (times + ticks) * 8)
        except ArtifactError as problem:
            raise RunnerLost(f"the runner at {self.address} sent no results of the model: {problem}") from None
        if end != count:
            raise RunnerLost(f"the runner at {self.address} sent {count - end} bytes more than the model has results")
        return TimedCalls(
            np.frombuffer(content, np.uint64, times).reshape(calls, 2),
            np.frombuffer(content, np.uint64, ticks, times * 8).reshape(calls, stamps),
            tensors,
        )

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *unused: type[BaseException] | BaseException | types.TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the session; the runner then serves another host."""
        self._connection.close()

    @property
    def _longest(self) -> float:
        return self.facts.seconds + MARGIN_SECONDS

    def _upload(self, files: Sequence[bytes], threads: int) -> int:
        sizes = [len(content) for content in files]
        order = struct.pack("<QQI", sizes[0], sum(sizes[1:]), threads)
        self._connection.request(FrameKind.LOAD, order)
        self._connection.send_parts(*files)
        return int.from_bytes(self._connection.receive(FrameKind.OK, self._longest)[:4], "little")

    def _free_unused(self) -> None:
        while self._unused:
            self._connection.request(FrameKind.FREE, struct.pack("<I", self._unused.popleft()))

    def _require_fits(self, artifact: Artifact) -> None:
        """Raise an error for a model of another kind of machine."""
        triple = artifact.metadata.get("triple")
        own = f"{self.facts.arch}-{self.facts.system}"
        if artifact.loader != "llvm" or not isinstance(triple, str):
            raise RemoteError(
                f"a model for target '{artifact.target}' is no machine code that the runner at {self.address} loads: "
                "compile it for 'llvm{triple=...}'"
            )
        if platform_of(triple) != (self.facts.arch, self.facts.system):
            raise NotForThisMachine(
                f"the model was compiled for {triple}, and {self.address} is {own}: compile it with "
                f"--target 'llvm{{cpu=NAME triple={own}-gnu}}'"
            )
        needed = [str(name) for name in artifact.metadata.get("features", ())]
        lacking = sorted(set(needed) - set(self.features(needed)))
        if lacking:
            raise NotForThisMachine(
                f"the model was compiled for a CPU with {', '.join(lacking)}, which the one of {self.address} lacks: "
                "name its CPU in --target"
            )


def _facts(address: RunnerAddress, content: bytes) -> BoardFacts:
    rows = dict(line.split(" ", 1) for line in content.decode("ascii", "replace").splitlines() if " " in line)
    try:
        numbers = [int(rows[name]) for name in ("cores", "limit", "seconds")]
        arch, system = terminal(rows["arch"]), terminal(rows["system"])
    except (KeyError, ValueError):
        raise RunnerLost(f"the runner at {address} does not say what it is: build it again") from None
    return BoardFacts(arch, system, *numbers)
