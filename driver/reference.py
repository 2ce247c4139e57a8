"""The reference of compilation options, generated from their declarations.

python -m mirlo.driver.reference > docs/options.md
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

from mirlo.driver.compile_option import CompileOption
from mirlo.driver.options import CoreArguments
from mirlo.runtime.options import OptionFlag

HEAD = """# Options of a compilation

Written by `python -m mirlo.driver.reference`; do not edit.

These are the arguments of `mirlo.compile`; `mirlo.generate.load` takes all that are not for models of other frameworks.
The flags set them for `mirlo compile`,
`mirlo run` and other commands (`mirlo COMMAND --help`). `torch.compile(model, backend="mirlo", options={...})` takes
those that name no parts of one model, and [some of its own](../plugins/torch/README.md#torchcompile). Packages add
options: [`mirlo-ranks`](../plugins/ranks/README.md#options) those of several processes.

*key*: a compiled model in the [cache](cache.md) is used for the same value only. Without it, results are the same for
all values.

| option | type | default | flag | key | `torch.compile` | since |
| --- | --- | --- | --- | --- | --- | --- |"""


def reference() -> str:
    """Return the page as Markdown."""
    entries = [(field, field.metadata["option"]) for field in dataclasses.fields(CoreArguments)]
    lines = [HEAD, *(_row(field, option) for field, option in entries)]
    for field, option in entries:
        lines += _section(field.name, option)
    return "\n".join(lines) + "\n"


def _row(field: dataclasses.Field[object], option: CompileOption) -> str:
    kind = str(field.type).replace("|", "\\|")
    default = "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
    flags = ", ".join(f"`{_usage(flag)}`" for flag in option.flags)
    keyed = "" if option.key is None else "key"
    torch = "" if option.of_model else "yes"
    return f"| [`{field.name}`](#{field.name}) | `{kind}` | {default} | {flags} | {keyed} | {torch} | {option.since} |"


def _usage(flag: OptionFlag) -> str:
    return f"{flag.name} {flag.metavar}" if flag.metavar else flag.name


def _section(name: str, option: CompileOption) -> Iterator[str]:
    """Yield the lines about an option."""
    yield f"\n## {name}\n\n{option.help}"
    if option.choices:
        yield f"\nOne of {', '.join(f'`{choice}`' for choice in option.choices)}."
    if option.only_for:
        yield f"\nFor {option.only_for}."
    if option.own_pass:
        yield f"\nA pipeline of your own has the pass `{option.own_pass}` in its place ([passes](passes.md))."


if __name__ == "__main__":
    sys.stdout.write(reference())
