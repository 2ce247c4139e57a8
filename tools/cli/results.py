"""Parts of the results that commands print with `--json`, as dictionaries."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.progress import COMPILED, Progress

if TYPE_CHECKING:
    import numpy as np

    from mirlo.runtime.artifact import TensorSpec
    from mirlo.runtime.profile import Profile


def file_json(files: Iterable[Path]) -> list[dict[str, object]]:
    """Return the files that a command wrote, with their sizes."""
    return [{"path": str(path), "bytes": path.stat().st_size} for path in files]


def linked_result(arguments: Arguments, files: Iterable[Path]) -> dict[str, object]:
    """Return the result of `mirlo link`."""
    return {"model": arguments.model, "files": file_json(files)}


def compiled_result(arguments: Arguments, progress: Progress | None, files: Iterable[Path]) -> dict[str, object]:
    """Return the files that a compilation wrote and its time, for programs."""
    return {
        "model": arguments.model,
        "target": arguments.target or "llvm",
        "emit": arguments.emit,
        "files": file_json(files),
        "from_cache": progress is not None and progress.how != COMPILED,
        "seconds": {} if progress is None else {**progress.seconds, "total": progress.total},
    }


def tensor_json(spec: TensorSpec) -> dict[str, object]:
    """Return the name, element type and dims of an input or output for programs; dynamic dims are texts."""
    shape = [dim if isinstance(dim, int) else str(dim) for dim in spec.shape]
    return {"name": spec.name, "dtype": spec.dtype, "shape": shape}


def array_json(name: str, array: np.ndarray) -> dict[str, object]:
    """Return the description of an array, with a summary of its finite values, for programs."""
    import numpy as np

    from mirlo.runtime.dtypes import element_type_of

    kind = element_type_of(array.dtype)
    numbers = array.astype(np.float64) if array.dtype.kind not in "OUS" else np.empty(0)
    finite = numbers[np.isfinite(numbers)]
    values = {"mean": finite.mean(), "min": finite.min(), "max": finite.max()} if finite.size else {}
    return {
        "name": name,
        "dtype": None if kind is None else kind.name,
        "shape": list(array.shape),
        "not_finite": int(numbers.size - finite.size),
        **{key: float(value) for key, value in values.items()},
    }


def latency_json(seconds: Sequence[float]) -> dict[str, object]:
    """Return the times of calls, for programs."""
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "runs": len(seconds)}


def profile_json(profile: Profile) -> list[dict[str, object]]:
    """Return the time of each kernel, in the order of their calls, for programs."""
    return [{"name": row.symbol, "kind": row.kind, "microseconds": row.microseconds} for row in profile]
