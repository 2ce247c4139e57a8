"""Boards of other processors: the runner is cross-compiled, and qemu executes it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import mirlo
from onnx_models import F32, make_model, node
from runners import TOKEN, started

from mirlo.driver.build import build
from mirlo.driver.request import CompileRequest
from mirlo.runtime.errors import NotForThisMachine
from mirlo.runtime.model_runner import models_run_on
from mirlo.runtime.remote.model import RemoteModel
from mirlo.targets.llvm.library.runner import write_runner
from mirlo.targets.llvm.options import parse_options
from mirlo.testing.oracle import exact_session


@dataclass(frozen=True)
class EmulatedBoard:
    """A processor, and how its programs are compiled and executed."""

    options: str
    arch: str
    flags: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return f"llvm{{{self.options}}}"

    def missing(self) -> str:
        commands = (f"{self.arch}-linux-gnu-gcc", f"qemu-{self.arch}-static")
        lacking = [name for name in commands if shutil.which(name) is None]
        return f"there is no {' and no '.join(lacking)}" if lacking else ""


BOARDS = {
    "aarch64": EmulatedBoard("cpu=neoverse-n1 triple=aarch64-linux-gnu", "aarch64"),
    "riscv64": EmulatedBoard("cpu=generic-rv64 features=+v,+zvl128b", "riscv64", ("-cpu", "rv64,v=true")),
}


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", BOARDS)
def test_models_are_run_timed_and_checked(name: str, tmp_path: Path) -> None:
    board = BOARDS[name]
    if board.missing():
        pytest.skip(board.missing())
    program = write_runner(tmp_path / "runner", parse_options(board.options).processor)[0]
    (tmp_path / "models").mkdir()
    weights = {"w": np.random.default_rng(0).standard_normal((32, 24)).astype(np.float32)}
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Softmax", "b", "y")]
    model = make_model(nodes, {"x": (F32, (5, 32))}, ["y"], weights)
    onnx.save(model, tmp_path / "model.onnx")
    emulator = [f"qemu-{board.arch}-static", *board.flags, "-L", f"/usr/{board.arch}-linux-gnu", program]
    (tmp_path / "token").write_text(TOKEN)
    with started(emulator, tmp_path / "models") as runner:
        with runner.board() as session:
            assert (session.facts.arch, session.facts.system) == (board.arch, "linux")
            with models_run_on(session):
                compiled = build(CompileRequest(model, board.target, threads=2, jobs=1, cache=False))
                with pytest.raises(NotForThisMachine, match=f"is {board.arch}-linux: compile it with --target"):
                    build(CompileRequest(model, jobs=1, cache=False))
            assert isinstance(compiled, RemoteModel)
            x = compiled.random_inputs()["x"]
            expected = exact_session(model).run(None, {"x": x})[0]
            np.testing.assert_allclose(compiled(x), expected, rtol=1e-5, atol=1e-6)
            assert 0 < compiled.profile(x).microseconds < 1e6
        flags = ["--target", board.target, "--remote", runner.address, "--token-file", tmp_path / "token"]
        checked = mirlo("check-target", "--operator", "relax.softmax", *flags)
        assert "4 ok, 0 declined, 0 wrong, 0 failed" in checked.stdout, checked.stderr
        measured = mirlo("bench", tmp_path / "model.onnx", "--seconds", "0.2", *flags)
        assert f"{runner.address}, {board.arch}, " in measured.stdout, measured.stderr
        tuned = mirlo("tune", tmp_path / "model.onnx", "--seconds", "3", "--database", tmp_path / "db.json", *flags)
        assert "kernels and operators with choices: " in tuned.stdout, tuned.stderr
        same = mirlo("bisect", tmp_path / "model.onnx", *flags)
        assert "every output is as reference computes it" in same.stdout, same.stderr
