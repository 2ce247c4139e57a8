"""Options of sessions and runs: the names, defaults and types of ONNX Runtime's; what has no effect is logged once."""

from __future__ import annotations

import logging
from typing import Any

import onnxruntime
import pytest

import mirlo
from mirlo.driver.inference import ignored
from mirlo.driver.inference.options import OptionTypeError, SessionOptionError


def _fields(options: Any) -> dict[str, Any]:
    names = [name for name in dir(options) if not name.startswith("_")]
    return {name: getattr(options, name) for name in names if not callable(getattr(options, name))}


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_names_and_defaults_are_those_of_onnx_runtime(kind: str) -> None:
    found, expected = _fields(getattr(mirlo, kind)()), _fields(getattr(onnxruntime, kind)())
    for name, value in expected.items():
        assert found[name] == (int(value) if hasattr(value, "name") else value), name


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_every_option_takes_a_value_of_its_type(kind: str) -> None:
    options = getattr(mirlo, kind)()
    for name, value in _fields(getattr(onnxruntime, kind)()).items():
        setattr(options, name, int(value) if hasattr(value, "name") else value)
        with pytest.raises(OptionTypeError, match=f"{kind}.{name}: expected a value of type .*, found \\[\\]"):
            setattr(options, name, [])


def test_numbers_of_threads_are_those_of_onnx_runtime() -> None:
    options = mirlo.SessionOptions()
    options.intra_op_num_threads = 3
    assert options.threads == 3
    options.intra_op_num_threads = -1
    assert options.threads == mirlo.SessionOptions().threads > 0


def test_an_option_that_is_misspelt_is_an_error() -> None:
    with pytest.raises(SessionOptionError, match="no option 'intra_op_threads'; did you mean 'intra_op_num_threads'"):
        mirlo.SessionOptions().intra_op_threads = 2  # type: ignore[attr-defined]
    with pytest.raises(SessionOptionError, match="execution_mode: expected one of .*, found 7"):
        mirlo.SessionOptions().execution_mode = 7  # type: ignore[attr-defined]


def test_what_has_no_effect_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ignored._NOTED.clear()
    with caplog.at_level(logging.DEBUG, logger="mirlo"):
        for _ in range(2):
            options = mirlo.SessionOptions()
            options.enable_cpu_mem_arena = False  # type: ignore[attr-defined]
            options.enable_mem_pattern = True  # type: ignore[attr-defined]
            options.inter_op_num_threads = 4  # type: ignore[attr-defined]
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            mirlo.RunOptions().add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
            mirlo.set_seed(3)
    names = [record.getMessage().partition(" has no effect: ")[0] for record in caplog.records]
    assert names == [
        "SessionOptions.enable_cpu_mem_arena",
        "SessionOptions.inter_op_num_threads",
        "the session config entry 'session.intra_op.allow_spinning'",
        "the run config entry 'memory.enable_memory_arena_shrinkage'",
        "set_seed",
    ]
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_the_severity_of_messages_is_the_level_of_the_logger() -> None:
    logger = logging.getLogger("mirlo")
    before = logger.level
    for severity, level in enumerate([logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL]):
        mirlo.set_default_logger_severity(severity)
        assert logger.level == level
    logger.setLevel(before)
