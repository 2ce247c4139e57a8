"""Functions and methods of ONNX Runtime that have no effect: each does what its docstring begins with."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mirlo
from mirlo.driver.inference import ignored, process
from mirlo.runtime.errors import MirloError

VALUES: dict[str, Any] = {
    "severity": 2, "verbosity": 1, "callback": print, "seed": 3, "size": 4, "intra_op_num_threads": 2,
    "inter_op_num_threads": 2, "options": {"a": 1}, "names": ["w"], "values": [0],
}  # fmt: skip
"""Arguments by the names of parameters; others are texts."""


def _interfaces() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, function in vars(process).items():
        if inspect.isfunction(function) and function.__module__ == process.__name__ and not name.startswith("_"):
            yield name, function
    for kind in ("SessionOptions", "RunOptions"):
        options = getattr(mirlo, kind)()
        for name, function in inspect.getmembers(options, inspect.ismethod):
            if not name.startswith("_"):
                yield f"{kind}.{name}", function


def _arguments(function: Callable[..., Any]) -> list[Any]:
    required = inspect.Parameter.empty
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each.name for each in parameters if each.default is required and each.kind in kinds]
    return [VALUES.get(name, f"a {name}") for name in needed]


def test_each_interface_does_what_its_docstring_says(caplog: pytest.LogCaptureFixture) -> None:
    ignored._NOTED.clear()
    verbs: set[str] = set()
    for name, function in _interfaces():
        verb = (function.__doc__ or "").split()[0].rstrip(":")
        arguments = _arguments(function)
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="mirlo"):
            if verb == "Refuse":
                with pytest.raises(
                    MirloError, match="|".join(map(re.escape, [*map(str, arguments), function.__name__]))
                ):
                    function(*arguments)
            else:
                result = function(*arguments)
                assert (result is not None) == (verb == "Return"), name
        messages = [record.getMessage() for record in caplog.records]
        assert len(messages) == (verb == "Accept"), (name, messages)
        assert all(" has no effect: " in message for message in messages), messages
        verbs.add(verb)
    assert verbs >= {"Accept", "Do", "Return", "Refuse", "Add", "Fix", "Set"}
    process.set_default_logger_severity(2)


def test_what_the_process_prints_is_its_build(capsys: pytest.CaptureFixture[str]) -> None:
    process.print_debug_info()
    assert capsys.readouterr().out == f"{process.get_build_info()}\n"
    assert process.API_VERSION in process.get_build_info()


@pytest.mark.parametrize("severity", [-1, 5])
def test_other_severities_are_refused(severity: int) -> None:
    with pytest.raises(MirloError, match=f"Invalid logging severity {severity}"):
        process.set_default_logger_severity(severity)


def test_providers_and_dims_of_options_are_kept() -> None:
    options = mirlo.SessionOptions()
    assert not options.has_providers()
    options.add_provider("CPUExecutionProvider", {"a": 1})  # type: ignore[dict-item]
    assert options.has_providers() and options.providers == [("CPUExecutionProvider", {"a": "1"})]
    options.add_free_dimension_override_by_name("batch", 4)
    assert options.free_dims == {"batch": 4}
    for wrong in (-1, True, "4"):
        for add in (options.add_free_dimension_override_by_name, options.add_free_dimension_override_by_denotation):
            with pytest.raises(MirloError, match="expected a number from 0"):
                add("batch", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, 1025])
def test_keys_of_config_entries_are_limited(length: int) -> None:
    options = mirlo.SessionOptions()
    options.add_session_config_entry("k" * 1024, "v")
    assert options.get_session_config_entry("k" * 1024) == "v"
    with pytest.raises(MirloError, match="longer than maximum length 1024"):
        options.add_session_config_entry("k" * length, "v")


def test_every_level_of_optimization() -> None:
    for level in mirlo.GraphOptimizationLevel:
        options = mirlo.SessionOptions()
        options.graph_optimization_level = level
        assert options.opt_level == (0 if level == 0 else 2)
