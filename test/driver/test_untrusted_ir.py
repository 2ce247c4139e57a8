"""A pipeline that a file names runs only passes that touch nothing but the module, unless the user trusts the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import mirlo
from mirlo.driver.models import ModelError, open_model
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import CONTAINED, UPSTREAM_NAMES, load_all
from mirlo.passes.reproducer import uncontained
from mirlo.passes.upstream import find_upstream
from mirlo.tools import opt

BODY = """func.func @main(%x: tensor<4xf32> {relax.name = "x"}) -> (tensor<4xf32> {relax.name = "y"}) {
  %y = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
"""
OUTSIDE = (
    "snapshot-op-locations{filename=PATH}",
    "func.func(snapshot-op-locations{filename=PATH})",
    "inline{default-pipeline=snapshot-op-locations}",
    "inline{op-pipelines=func.func(snapshot-op-locations{filename=PATH})}",
    "print-op-stats",
    "view-op-graph",
    "transform-interpreter",
    "gpu-module-to-binary",
    "codegen-external{target=c options='compiler=PATH'}",
    "schedule{given=relu=PATH}",
    "run-on-external{pipeline=snapshot-op-locations{filename=PATH}}",
    "run-on-external{pipeline={run-on-external{pipeline=print-op-stats}}}",
)


def _hostile(folder: Path, pipeline: str) -> Path:
    path = folder / "model.mlir"
    text = pipeline.replace("PATH", str(folder / "written"))
    path.write_text(f'// configuration: --pass-pipeline="builtin.module({text})"\n{BODY}')
    return path


@pytest.mark.sample(2)
@pytest.mark.parametrize("pipeline", OUTSIDE)
def test_compiling_refuses(tmp_path: Path, pipeline: str) -> None:
    path = _hostile(tmp_path, pipeline)
    with pytest.raises(ModelError, match=r"the file's first line runs .*: give --trust-file"):
        mirlo.compile(path, cache=False)
    assert not (tmp_path / "written").exists()
    assert open_model(path, trust=True).pipeline is not None


@pytest.mark.parametrize("pipeline", OUTSIDE)
def test_mirlo_opt_refuses(tmp_path: Path, pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt.main(["--run-reproducer", str(_hostile(tmp_path, pipeline))]) == 1
    assert "give --trust-file if you trust the file" in capsys.readouterr().err
    assert not (tmp_path / "written").exists()


def test_a_plugin_of_a_file_is_not_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin, path = tmp_path / "plugin.py", tmp_path / "model.mlir"
    plugin.write_text(f"open({str(tmp_path / 'written')!r}, 'w')\n")
    path.write_text(f"// configuration: --pass-pipeline='builtin.module(cse)' --load-pass-plugin={plugin}\n{BODY}")
    assert opt.main(["--run-reproducer", str(path)]) == 1
    assert f"loads the plug-in '{plugin}', which is code" in capsys.readouterr().err
    mirlo.compile(path, pipeline="cse" and Pipeline.named("llvm"), cache=False)
    assert not (tmp_path / "written").exists()
    assert opt.main(["--run-reproducer", "--trust-file", str(path)]) == 0 and (tmp_path / "written").exists()


def test_a_first_line_that_is_no_command_line_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(f"// configuration: --pass-pipeline='builtin.module(\n{BODY}")
    with pytest.raises(mirlo.runtime.errors.MirloError, match="cannot be read"):
        mirlo.compile(tmp_path / "m.mlir", cache=False)


def test_code_in_ir_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(
        'module attributes {relax.external_artifacts = {c = {format = "c", functions = ["f"], params = []}}} {\n'
        f"{BODY}}}\n"
    )
    with pytest.raises(ModelError, match=r"holds code that other compilers made .*: give --trust-file"):
        mirlo.compile(tmp_path / "m.mlir", cache=False)


def test_pipelines_of_targets_are_contained() -> None:
    for target in ("llvm", "nvvm", "spirv"):
        assert uncontained(Pipeline.named(target)) is None


def test_each_pass_says_whether_it_is_contained() -> None:
    own = {name: cls.contained for name, cls in load_all().items() if cls.__module__.startswith("mirlo.")}
    assert [name for name, contained in own.items() if not contained] == ["codegen-external", "find-device-functions"]
    for name in UPSTREAM_NAMES:
        found = find_upstream(name)
        assert found is not None and found.is_contained() == (name in (*CONTAINED, "inline")), name
