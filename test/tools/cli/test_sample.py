"""`--sample`: models that ship with Mirlo."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from commands import mirlo, output_of

from mirlo.tools import samples
from mirlo.tools.cli import main
from mirlo.tools.cli.arguments import Arguments, make_parser
from mirlo.tools.cli.files import check_model, use_sample


def test_a_sample_takes_the_place_of_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["info", "--sample", "mobilenetv2"]) == 0
    (file,) = (tmp_path / "mirlo" / "models").iterdir()
    assert file.name.startswith("mobilenetv2-")
    assert capsys.readouterr().out == output_of(mirlo("info", file))
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", samples.names())
def test_samples_are_graphs_without_data(name: str) -> None:
    graph = onnx.load(samples.GRAPHS / f"{name}.onnx").graph
    marked = [tensor for tensor in graph.initializer if tensor.doc_string.startswith(samples.MARK)]
    assert marked
    assert not any(tensor.raw_data for tensor in marked)


def test_an_unknown_sample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--sample", "mobilnetv2"]) == 1
    message = "no sample is named 'mobilnetv2'; did you mean 'mobilenetv2'? (there are: bert_base, gpt2, mobilenetv2"
    assert message in capsys.readouterr().err


def test_two_models(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compile", "m.onnx", "--sample", "gpt2"])
    assert ended.value.code == 2
    assert "m.onnx and --sample gpt2: give one model" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["explain", "explorer", "bench", "tune", "bisect"])
def test_commands_that_look_at_a_model_take_a_sample(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--sample", "mobilnetv2"]) == 1
    assert "no sample is named 'mobilnetv2'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([command, "m.onnx", "--sample", "gpt2"])
    assert "m.onnx and --sample gpt2: give one model" in capsys.readouterr().err


def test_a_sample_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(samples, "path", lambda name: tmp_path / f"{name}.onnx")
    for command, models in {"bench": ["models"], "explain": ["subject"], "tune": ["model"]}.items():
        arguments = make_parser().parse_args([command, "--sample", "gpt2"], namespace=Arguments())
        check_model(arguments, pytest.fail)
        use_sample(arguments)
        value = getattr(arguments, *models)
        assert value == ([str(tmp_path / "gpt2.onnx")] if command == "bench" else str(tmp_path / "gpt2.onnx"))
        assert arguments.verbose is False


def test_only_tune_needs_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["tune", "--database", str(tmp_path / "t.json")]) == 0
    with pytest.raises(SystemExit):
        main(["bench"])
    assert "give the file of a model, or --sample NAME" in capsys.readouterr().err
