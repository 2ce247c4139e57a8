"""The options of an `InferenceSession`: those of ONNX Runtime that apply; every other one is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from mirlo.runtime.errors import MirloError
from mirlo.runtime.nearest import nearest
from mirlo.runtime.system import available_cores


class SessionOptionError(MirloError, ValueError):
    """An option of a session that does not apply, or has an invalid value."""


class GraphOptimizationLevel(IntEnum):
    """How much a session optimizes; compilation without optimizations is `opt_level=0`."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """How a session orders nodes: compiled models are sequential."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


_NEUTRAL: dict[str, tuple[object, ...]] = {
    "execution_mode": (ExecutionMode.ORT_SEQUENTIAL,),
    "inter_op_num_threads": (0, 1),
    "enable_profiling": (False,),
    "optimized_model_filepath": ("",),
    "enable_mem_pattern": (True,),
    "enable_mem_reuse": (True,),
    "enable_cpu_mem_arena": (True,),
    "use_deterministic_compute": (False, True),
    "log_severity_level": (0, 1, 2, 3, 4),
    "log_verbosity_level": (0,),
    "logid": (),
}
"""Options of ONNX Runtime without a counterpart, and the values that ask for nothing but what Mirlo does; any text
for one without values."""
_ADVICE = {
    "execution_mode": "nodes are fused into kernels, which run in order: use intra_op_num_threads",
    "inter_op_num_threads": "kernels run one after the other: use intra_op_num_threads",
    "enable_profiling": "use 'mirlo run MODEL --profile', or profile() of the executable",
    "optimized_model_filepath": "use 'mirlo compile MODEL -o FILE.mirlo', and open that file",
}
_OWN = ("intra_op_num_threads", "graph_optimization_level")


@dataclass(init=False)
class SessionOptions:
    """The options of a session, with the names that ONNX Runtime gives them.

    `intra_op_num_threads` (0: all cores of this process) and `graph_optimization_level` apply, and
    `add_free_dimension_override_by_name` fixes a dynamic dim. Every other option must have its default value.
    """

    intra_op_num_threads: int
    graph_optimization_level: int
    free_dims: dict[str, int] = field(default_factory=dict)

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        object.__setattr__(self, "free_dims", {})

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OWN:
            object.__setattr__(self, name, _natural(name, value))
            return
        if name not in _NEUTRAL:
            hint = nearest(name, [*_OWN, *_NEUTRAL])
            raise SessionOptionError(f"SessionOptions has no option '{name}'{hint}")
        allowed = _NEUTRAL[name]
        if allowed and value not in allowed:
            expected = ", ".join(str(option) for option in allowed)
            advice = f": {_ADVICE[name]}" if name in _ADVICE else ""
            raise SessionOptionError(f"SessionOptions.{name}: expected {expected}, found {value!r}{advice}")
        object.__setattr__(self, name, value)

    def add_free_dimension_override_by_name(self, dim: str, size: int) -> None:
        """Fix the size of a dynamic dim."""
        self.free_dims[dim] = _natural(f"the size of the dim '{dim}'", size)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Refuse an entry: these configure execution providers of ONNX Runtime."""
        raise SessionOptionError(f"session config entry '{key}' = '{value}' configures ONNX Runtime and does not apply")

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse a library of operators for ONNX Runtime."""
        raise SessionOptionError(
            f"'{path}': libraries of custom operators are made for ONNX Runtime; define the operators with "
            "mirlo.onnx_operator"
        )

    @property
    def threads(self) -> int:
        """Return the number of threads of a call."""
        return self.intra_op_num_threads or available_cores()

    @property
    def opt_level(self) -> int:
        """Return the argument `opt_level` of `mirlo.compile`."""
        return 0 if self.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL else 2


_PROVIDERS = {"CPUExecutionProvider": "llvm", "CUDAExecutionProvider": "nvvm"}
"""The targets that stand for execution providers of ONNX Runtime; Mirlo's own targets are providers by their names."""


def target_of(providers: Sequence[str | tuple[str, Mapping[str, object]]] | None) -> tuple[str, list[str]]:
    """Return the target for a session's providers, and the providers' names.

    As in ONNX Runtime the first one comes first, and "CPUExecutionProvider" behind it computes what it does not.
    """
    from mirlo.passes.targets import target_names

    names: list[str] = []
    for entry in providers or ["CPUExecutionProvider"]:
        name, options = (entry, {}) if isinstance(entry, str) else entry
        if options:
            given = ", ".join(sorted(options))
            raise SessionOptionError(f"provider '{name}': its options ({given}) configure ONNX Runtime; none apply")
        if name not in _PROVIDERS and name not in target_names():
            known = ", ".join([*_PROVIDERS, *target_names()])
            raise SessionOptionError(f"there is no provider '{name}'; expected one of {known}")
        names.append(name)
    targets = list(dict.fromkeys(_PROVIDERS.get(name, name) for name in names))
    if targets[0] in ("nvvm", "spirv") and targets[1:] == ["llvm"]:
        targets.pop()  # a GPU's target compiles host code by itself
    return ",".join(targets), names


def _natural(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SessionOptionError(f"{name}: expected a number from 0, found {value!r}")
    return value
