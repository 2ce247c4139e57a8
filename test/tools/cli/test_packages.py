"""Commands of packages: found by entry points, and known by name where their package is missing."""

from __future__ import annotations

import gc
from argparse import ArgumentParser, Namespace

import pytest

from mirlo.runtime.entry_points import EntryPoint
from mirlo.runtime.known_packages import COMMANDS, PACKAGES
from mirlo.tools.cli import arguments, main
from mirlo.tools.cli.arguments import PackageCommand


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("count", type=int)


def _execute(arguments: Namespace) -> None:
    print("double:", 2 * arguments.count)


DOUBLE = PackageCommand("print a number twice as large", _add_arguments, _execute)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("double", f"{__name__}:DOUBLE", arguments.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: DOUBLE)
    monkeypatch.setattr(arguments, "offered", lambda group: [entry] if group == arguments.GROUP else [])


@pytest.mark.usefixtures("installed")
def test_a_package_adds_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["double", "21"]) == 0 and capsys.readouterr().out == "double: 42\n"
    with pytest.raises(SystemExit, match="0"):
        main(["double", "--help"])
    assert "Print a number twice as large." in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["double", "x"])
    assert "argument count: invalid int value: 'x'" in capsys.readouterr().err


@pytest.mark.parametrize("lasts", [False, True])
def test_a_server_collects_garbage_as_usual(lasts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one collection looks at a million objects of requests, while all threads wait."""
    seen: list[int] = []
    command = PackageCommand("serve", _add_arguments, lambda arguments: seen.append(gc.get_threshold()[0]), lasts)
    monkeypatch.setattr(arguments, "offered", lambda group: [EntryPoint("double", "x:X", arguments.GROUP)])
    monkeypatch.setattr(EntryPoint, "load", lambda self: command)
    before = gc.get_threshold()
    gc.set_threshold(701)
    try:
        assert main(["double", "1"]) == 0
        assert gc.get_threshold()[0] == 701
    finally:
        gc.set_threshold(*before)
    assert seen == [701] if lasts else seen[0] > 10_000


def test_help_imports_no_package(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint(name, "no_such_module:X", arguments.GROUP) for name in ("double", *COMMANDS)]
    monkeypatch.setattr(arguments, "offered", lambda group: entries)
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "double a command of package 'no_such_module:X'" in printed
    assert all(f"{name} {purpose}" in printed for name, purpose in COMMANDS.items())
    assert main([]) == 0 and "double" in capsys.readouterr().out


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "offered", lambda group: [])
    for name, package in PACKAGES["commands"].items():
        with pytest.raises(SystemExit, match="2"):
            main([name])
        expected = f"'{name}' is a command of a package that is not installed: pip install {package}"
        assert expected in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "(pip install mirlo-editor)" in " ".join(capsys.readouterr().out.split())
    assert set(COMMANDS) == set(PACKAGES["commands"])
