"""Execution providers: ONNX Runtime's names, and the corresponding targets of Mirlo."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from mirlo.driver.inference.ignored import note_ignored
from mirlo.driver.inference.options import SessionOptionError
from mirlo.passes.targets import declared_target, target_names
from mirlo.runtime.records import dataclass

Providers: TypeAlias = "Sequence[str | tuple[str, Mapping[str, object]]] | None"
"""The argument `providers` of a session: names, each with options or without, the most wanted one first."""

CPU = "CPUExecutionProvider"
"""The provider that computes what no other one does."""
_TARGETS = {"CUDAExecutionProvider": "nvvm", CPU: "llvm"}
"""The targets that stand for providers; Mirlo's own targets are providers by their names."""
_HOST_INCLUDED = ("nvvm", "spirv")
"""Targets that compile the host's part of a model by themselves."""
_OTHERS = (
    "TensorrtExecutionProvider", "MIGraphXExecutionProvider", "OpenVINOExecutionProvider", "DnnlExecutionProvider",
    "VitisAIExecutionProvider", "QNNExecutionProvider", "NnapiExecutionProvider", "JsExecutionProvider",
    "CoreMLExecutionProvider", "DmlExecutionProvider", "RknpuExecutionProvider", "WebNNExecutionProvider",
    "WebGpuExecutionProvider", "XnnpackExecutionProvider", "CANNExecutionProvider", "AzureExecutionProvider",
    "ROCMExecutionProvider", "ACLExecutionProvider", "ArmNNExecutionProvider", "TvmExecutionProvider",
)  # fmt: skip
"""Providers of ONNX Runtime without a target: a session warns, and goes on without them."""


@dataclass
class ChosenProviders:
    """The providers of a session, each with its options, and the corresponding target."""

    target: str
    options: dict[str, dict[str, str]] = field(default_factory=dict)


def get_available_providers() -> list[str]:
    """Return ONNX Runtime's names of the providers that this machine has."""
    return [name for name, target in _TARGETS.items() if declared_target(target).runs_here()]


def get_all_providers() -> list[str]:
    """Return ONNX Runtime's names of providers, those that this machine does not have among them."""
    return [*_OTHERS, *_TARGETS]


def get_device() -> str:
    """Return "GPU" where a session can use one by a provider of ONNX Runtime's, else "CPU"."""
    return "GPU" if get_available_providers() != [CPU] else "CPU"


def choose_providers(providers: Providers, provider_options: Sequence[Mapping[str, object]] | None) -> ChosenProviders:
    """Return the providers of a session, as ONNX Runtime chooses them: without those that this machine lacks."""
    wanted = _normalized(providers, provider_options)
    chosen: dict[str, dict[str, str]] = {}
    available = get_available_providers() if wanted else [CPU]
    for name, options in wanted.items():
        if name not in available and name not in target_names():
            _require_provider(name)
            listed = ", ".join(available)
            warnings.warn(f"provider '{name}' is not available here; available: {listed}", UserWarning, stacklevel=4)
            continue
        if options:
            note_ignored(
                f"the options {', '.join(sorted(options))} of provider '{name}'", "they configure ONNX Runtime"
            )
        chosen[name] = options
    if all(name in _TARGETS for name in chosen):
        chosen.setdefault(CPU, {})
    targets = list(dict.fromkeys(_TARGETS.get(name, name) for name in chosen))
    if targets[0] in _HOST_INCLUDED and targets[1:] == ["llvm"]:
        targets.pop()
    if targets[0] == "llvm":
        del targets[1:]  # it computes everything: a provider after it gets nothing
    return ChosenProviders(",".join(targets), chosen)


def _require_provider(name: str) -> None:
    """Raise an error for a name that is no provider's; packages add providers to ONNX Runtime by such names."""
    if not name.endswith("ExecutionProvider"):
        known = ", ".join([*_TARGETS, *target_names()])
        raise SessionOptionError(f"there is no provider '{name}'; expected one of {known}")


def _normalized(
    providers: Providers, provider_options: Sequence[Mapping[str, object]] | None
) -> dict[str, dict[str, str]]:
    if providers is None:
        return {}
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise SessionOptionError(f"providers: expected a list of names, found {providers!r}")
    if provider_options is not None and len(provider_options) != len(providers):
        raise SessionOptionError(
            f"provider_options: expected options for each of the {len(providers)} providers, found "
            f"{len(provider_options)}"
        )
    result: dict[str, dict[str, str]] = {}
    for index, entry in enumerate(providers):
        name, options = entry if isinstance(entry, (tuple, list)) and len(entry) == 2 else (entry, {})
        if provider_options is not None:
            options = provider_options[index]
        if not isinstance(name, str) or not isinstance(options, Mapping):
            raise SessionOptionError(f"providers: expected a name, or a pair of a name and options, found {entry!r}")
        if name in result:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", UserWarning, stacklevel=4)
            continue
        result[name] = {str(key): str(value) for key, value in options.items()}
    return result
