"""The options of sessions and runs, with the names, types and defaults that ONNX Runtime gives them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NoReturn

from mirlo.driver.inference.errors import ConfigKeyError
from mirlo.driver.inference.ignored import note_ignored
from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.system import available_cores


class SessionOptionError(MirloError, ValueError):
    """An option that cannot apply, or has an invalid value."""

    error_code = "MIR0611"
    remedy = "Give the option a value that the message expects."


class UnknownOptionError(SessionOptionError, AttributeError):
    """An option that does not exist."""


class OptionTypeError(SessionOptionError, TypeError):
    """An option whose value is of another type."""


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


class ExecutionOrder(IntEnum):
    """The order in which a session executes nodes: compiled models have one."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_LOGGING: dict[str, object] = {"log_severity_level": -1, "log_verbosity_level": 0, "logid": ""}
_SESSION_DEFAULTS: dict[str, object] = {
    **_LOGGING,
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "enable_profiling": False,
    "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
    "execution_order": ExecutionOrder.DEFAULT,
    "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
    "inter_op_num_threads": 0,
    "intra_op_num_threads": 0,
    "optimized_model_filepath": "",
    "profile_file_prefix": "onnxruntime_profile_",
    "use_deterministic_compute": False,
    "use_per_session_threads": True,
}
_RUN_DEFAULTS: dict[str, object] = {**_LOGGING, "only_execute_path_to_fetches": False, "terminate": False}
_WITHOUT_EFFECT = {
    "enable_cpu_mem_arena": "the memory of a call is planned when a model is compiled",
    "enable_mem_pattern": "the memory of a call is planned when a model is compiled",
    "enable_mem_reuse": "the memory of a call is planned when a model is compiled",
    "execution_mode": "nodes are fused into kernels, which run in order; intra_op_num_threads has an effect",
    "execution_order": "nodes are fused into kernels, which run in order",
    "inter_op_num_threads": "kernels run one after the other; intra_op_num_threads has an effect",
    "use_deterministic_compute": "compiled models are deterministic",
    "use_per_session_threads": "all sessions of a process share one pool of threads",
    "only_execute_path_to_fetches": "kernels compute several outputs",
    "log_severity_level": "a session logs nothing while it runs",
    "log_verbosity_level": "a session logs nothing while it runs",
    "logid": "a session logs nothing while it runs",
}
"""Why options of ONNX Runtime are accepted without a change of behavior."""
_ALIASES = {"enable_cpu_arena": "enable_cpu_mem_arena"}
_LONGEST_KEY = 1024
"""Characters of the key of a config entry, as in ONNX Runtime."""


class OptionFields:
    """Attributes with defaults, each of its default's type, and config entries."""

    _defaults: Mapping[str, object] = {}
    _config: dict[str, str]

    def __init__(self) -> None:
        for name, value in self._defaults.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_config", {})

    def __setattr__(self, name: str, value: object) -> None:
        name = _ALIASES.get(name, name)
        if name not in self._defaults:
            hint = nearest(name, list(self._defaults))
            raise UnknownOptionError(f"{type(self).__name__} has no option '{name}'{hint}")
        checked = _typed(f"{type(self).__name__}.{name}", value, self._defaults[name])
        if name in _WITHOUT_EFFECT and checked != self._defaults[name]:
            note_ignored(f"{type(self).__name__}.{name}", _WITHOUT_EFFECT[name])
        object.__setattr__(self, name, checked)

    def _add_entry(self, what: str, key: str, value: str) -> None:
        if not 0 < len(key) <= _LONGEST_KEY:
            raise ConfigKeyError(f"Config key is empty or longer than maximum length {_LONGEST_KEY}")
        note_ignored(f"the {what} config entry '{key}'", "it configures ONNX Runtime")
        self._config[key] = value

    def _entry(self, key: str) -> str:
        if key not in self._config:
            raise ConfigKeyError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._config[key]


class SessionOptions(OptionFields):
    """The options of a session.

    `intra_op_num_threads` (0: all cores of this process), `graph_optimization_level`, `enable_profiling`,
    `profile_file_prefix` and `optimized_model_filepath` apply, and `add_free_dimension_override_by_name` fixes a
    dynamic dim. Settings of ONNX Runtime alone are accepted, and logged once at debug level by the logger "mirlo".
    """

    enable_profiling: bool
    graph_optimization_level: int
    intra_op_num_threads: int
    optimized_model_filepath: str
    profile_file_prefix: str
    free_dims: dict[str, int]
    providers: list[tuple[str, dict[str, str]]]

    _defaults = _SESSION_DEFAULTS

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "free_dims", {})
        object.__setattr__(self, "providers", [])

    def add_free_dimension_override_by_name(self, dim: str, size: int) -> None:
        """Fix the size of a dynamic dim."""
        self.free_dims[dim] = _natural(f"the size of the dim '{dim}'", size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Accept the size of the dims of a denotation, which stay dynamic."""
        _natural(f"the size of the dims '{denotation}'", size)
        note_ignored(f"the size of the dims of denotation '{denotation}'", "these dims stay dynamic")

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Accept an entry, which configures ONNX Runtime."""
        self._add_entry("session", key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Return the value of an entry that was added."""
        return self._entry(key)

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Add a provider, for sessions that are opened without a list of them."""
        self.providers.append((name, {str(key): str(value) for key, value in options.items()}))

    def has_providers(self) -> bool:
        """Return whether providers were added."""
        return bool(self.providers)

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Refuse a library of operators for ONNX Runtime."""
        raise SessionOptionError(
            f"'{path}': libraries of custom operators are made for ONNX Runtime; define the operators with "
            "mirlo.onnx_operator"
        )

    def add_initializer(self, name: str, value: object) -> NoReturn:
        """Refuse an initializer beside the model."""
        raise SessionOptionError(f"initializer '{name}': write it into the model, initializers beside it do not apply")

    def add_external_initializers(self, names: object, values: object) -> NoReturn:
        """Refuse initializers beside the model."""
        raise SessionOptionError(
            f"initializers {names}: open the model by its path, which finds them; initializers in memory do not apply"
        )

    @property
    def threads(self) -> int:
        """Return the number of threads of a call."""
        return self.intra_op_num_threads if self.intra_op_num_threads > 0 else available_cores()

    @property
    def opt_level(self) -> int:
        """Return the argument `opt_level` of `mirlo.compile`."""
        return 0 if self.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL else 2


class RunOptions(OptionFields):
    """The options of a run; `terminate` makes it fail, as in ONNX Runtime."""

    terminate: bool

    _defaults = _RUN_DEFAULTS

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Accept an entry, which configures ONNX Runtime."""
        self._add_entry("run", key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return the value of an entry that was added."""
        return self._entry(key)

    def add_active_adapter(self, adapter: object) -> NoReturn:
        """Refuse an adapter: their weights are inputs of the model."""
        raise SessionOptionError("add_active_adapter: pass the weights of an adapter as inputs of the model")


def _typed(name: str, value: object, default: object) -> object:
    """Return a value of the default's type; a number stands for a member of an enumeration."""
    expected: Any = type(default)
    if isinstance(default, IntEnum) and isinstance(value, int) and not isinstance(value, bool):
        if value not in iter(expected):
            raise SessionOptionError(f"{name}: expected one of {', '.join(map(str, expected))}, found {value!r}")
        return expected(value)
    if expected is bool and isinstance(value, int):
        return bool(value)
    if expected is int and hasattr(value, "__index__") and not isinstance(value, bool):
        return int(value)
    if expected is str and hasattr(value, "__fspath__"):
        return str(value)
    if not isinstance(value, expected) or isinstance(value, bool) is not isinstance(default, bool):
        raise OptionTypeError(f"{name}: expected a value of type {expected.__name__}, found {value!r}")
    return value


def _natural(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SessionOptionError(f"{name}: expected a number from 0, found {value!r}")
    return value
