"""A plug-in of pytest: tests that need an NVIDIA GPU have an emulated one (`make test-emulated`)."""

from __future__ import annotations

from typing import Any

from mirlo.testing.ptx.driver import emulated

_ENTERED: list[Any] = []


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--emulated-chip", default="sm_90a", help="whose compute capability the emulated GPU has")


def pytest_configure(config: Any) -> None:
    _ENTERED.append(emulated(config.getoption("--emulated-chip")))
    _ENTERED[-1].__enter__()


def pytest_unconfigure(config: Any) -> None:
    _ENTERED.pop().__exit__(None, None, None)
