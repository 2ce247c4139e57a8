"""The options of a server: what is derived from their declarations."""

from pathlib import Path

import pytest
from mirlo_llm.serve.errors import ServeError
from mirlo_llm.serve.options import ServeOptions

from mirlo.extend.command import Arguments, given_options, make_parser
from mirlo.extend.options import declared_options

FLAGS = {flag.name: name for name, option in declared_options(ServeOptions).items() for flag in option.flags}


@pytest.mark.parametrize("flag", sorted(FLAGS))
def test_each_flag_sets_its_option(flag: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef\n")
    texts = {"--host": ["localhost"], "--api-keys": [str(keys)], "--without-keys": [], "--memory": ["2KiB"]}
    texts |= {"--lookup": ["8"], "--draft-tokens": ["8"]}
    texts |= {"--model-impl": ["mirlo"], "--trust-remote-code": [], "--strict": [], "--ollama": []}
    values = {"--host": "localhost", "--api-keys": ("0123456789abcdef",), "--without-keys": True, "--memory": 2048}
    values |= {"--lookup": 8, "--draft-tokens": 8}
    values |= {"--model-impl": "mirlo", "--trust-remote-code": True, "--strict": True, "--ollama": True}
    words = ["serve", "model.onnx", flag, *texts.get(flag, ["1024"])]
    given = given_options(make_parser(with_packages=True).parse_args(words, namespace=Arguments()), ServeOptions)
    assert given == {FLAGS[flag]: values.get(flag, 1024)}
    assert getattr(ServeOptions(**given), FLAGS[flag]) == given[FLAGS[flag]]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("port", 70000, "port: expected 0 to 65535, found 70000"),
        ("port", "80", "port: expected an integer, 0 to 65535, found '80'"),
        ("slots", 0, "slots: expected 1 to 4096, found 0"),
        ("batch_delay", float("nan"), "batch_delay: expected a number, found nan"),
        ("grace", -1, "grace: expected 0 to 3600, found -1"),
        ("is_open", 1, "is_open: expected True or False, found 1"),
        ("keys", "0123456789abcdef", "keys: expected a list of API keys, found '0123456789abcdef'"),
    ],
)
def test_wrong_values(name: str, value: object, message: str) -> None:
    with pytest.raises(ServeError, match=message):
        ServeOptions(**{name: value})  # type: ignore[arg-type]
