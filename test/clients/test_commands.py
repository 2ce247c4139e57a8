"""Commands over the models in packages that use ONNX Runtime: none ends in an internal error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from every_command import internal_errors

from mirlo.benchmarks.clients import PackagedModel, packaged_models

MODELS: Sequence[PackagedModel] = tuple(packaged_models())


@pytest.mark.skipif(not MODELS, reason="`make test-clients` installs the packages")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.package}/{model.path.name}")
def test_commands(model: PackagedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = dict(internal_errors(model.path, tmp_path, capsys))
    assert not wrong, wrong
