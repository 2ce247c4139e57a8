"""Options of the backend: its own, those of `mirlo.compile`, and what the page says of them. Needs no PyTorch."""

from pathlib import Path

import pytest
from mirlo_torch.backend.options import BackendOptionError, BackendOptions

from mirlo.extend.compilation import DEFAULTS, OPTIONS
from mirlo.extend.options import ANYTHING, declared_options

PAGE = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", list(OPTIONS))
def test_torch_takes_what_names_no_parts_of_a_model(name: str) -> None:
    value = OPTIONS[name].choices[-1] if OPTIONS[name].choices else DEFAULTS[name]
    if OPTIONS[name].of_model:
        with pytest.raises(BackendOptionError, match=f"has no option '{name}'"):
            BackendOptions.parse({name: value}, None)
        return
    assert BackendOptions.parse({name: value, "strict": True}, None).compilation == {name: value}
    if OPTIONS[name].kind is not ANYTHING:
        with pytest.raises(BackendOptionError, match=f"^{name}: expected .*, found <object"):
            BackendOptions.parse({name: object()}, None)


def test_options_of_the_backend_itself() -> None:
    assert BackendOptions.parse({"checks": False}, "default") == BackendOptions(checks=False)
    with pytest.raises(BackendOptionError, match="strict: expected True or False, found 1"):
        BackendOptions.parse({"strict": 1}, None)
    with pytest.raises(BackendOptionError, match=r"backend 'mirlo' has no option 'check'; .*did you mean 'checks'\?"):
        BackendOptions.parse({"check": False}, None)


def test_the_page_lists_the_options_of_the_backend() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, option in declared_options(BackendOptions).items():
        assert f"| `{name}` | `{getattr(BackendOptions, name)!r}` | {option.help} |" in text
