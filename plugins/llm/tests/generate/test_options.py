"""Options of language models: those of compilations, and their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from mirlo_llm import generate
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.model import OWN_OPTIONS
from mirlo_llm.serve.ray.deployment import _divide_options

from mirlo import MirloError
from mirlo.extend.compilation import OPTIONS
from mirlo.extend.options import UnknownOption

CALLS: dict[str, Callable[[], object]] = {
    "mirlo.generate.load": lambda: generate.load("none", thread=1),
    "mirlo.generate.load_embedding": lambda: generate.load_embedding("none", thread=1),
    "mirlo.generate.load_seq2seq": lambda: generate.load_seq2seq("none", thread=1),
    "mirlo.generate.load_speech": lambda: generate.load_speech("none", thread=1),
    "mirlo.serve.deployment": lambda: _divide_options({"thread": 1}),
}
"""Names of functions in errors, and calls with an unknown option."""


def test_language_models_take_the_options_of_compilations(tmp_path: Path) -> None:
    """Names are checked before the folder is read; options for models of other frameworks are none."""
    for name in OPTIONS:
        is_option = name not in ("model", "args", "kwargs", "dynamic_shapes")
        with pytest.raises(ModelFolderError if is_option else UnknownOption):
            generate.load(tmp_path, **{name: None})
    with pytest.raises(UnknownOption, match=r"mirlo.generate.load has no option 'prefix_byte'.*mean 'prefix_bytes'\?"):
        generate.load(tmp_path, prefix_byte=0)
    own = [name for name, each in inspect.signature(generate.load).parameters.items() if each.kind is each.KEYWORD_ONLY]
    assert list(OWN_OPTIONS) == own


@pytest.mark.parametrize("name", CALLS)
def test_unknown_options_are_refused(name: str) -> None:
    with pytest.raises(MirloError, match=f"{name} has no option 'thread'; options: "):
        CALLS[name]()
