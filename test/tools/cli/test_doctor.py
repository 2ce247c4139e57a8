"""`mirlo doctor`: present and missing parts, and the commands that install them."""

from __future__ import annotations

import importlib.metadata

import pytest
from commands import mirlo, output_of

from mirlo.tools.cli import doctor
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError

ABSENT = doctor.Requirement("no-such-package-anywhere", "dreams")


def test_report() -> None:
    printed = output_of(mirlo("doctor"))
    lines = printed.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["mirlo:", "machine:", "cache:", "targets:", "extras:"]
    assert f"numpy           {importlib.metadata.version('numpy')}".split() in [line.split() for line in lines]
    assert all(len(line) < 160 for line in lines if "pip install" in line)
    assert lines[-1] == "everything that compiling and running models needs is there"


def test_a_missing_extra_names_its_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [*doctor.requirements(), ABSENT]
    monkeypatch.setattr(doctor, "requirements", lambda: found)
    doctor.execute(Arguments())
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["dreams", "pip", "install", "'mirlo[dreams]'", "adds", ABSENT.name] in lines


def test_a_missing_requirement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requirements", lambda: [doctor.Requirement(ABSENT.name, None)])
    with pytest.raises(CommandError, match=f"{ABSENT.name} missing: pip install"):
        doctor.execute(Arguments())


def test_every_requirement_of_the_package_is_read() -> None:
    found = doctor.requirements()
    assert {"numpy", "llvmlite"} <= {each.name for each in found if each.extra is None}
    assert {"torch", "vulkan"} <= {each.extra for each in found}


def test_bytecode_that_is_not_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for is_off in (False, True):
        monkeypatch.setattr("sys.dont_write_bytecode", is_off)
        doctor.execute(Arguments())
        assert ("unset PYTHONDONTWRITEBYTECODE" in capsys.readouterr().out) == is_off
