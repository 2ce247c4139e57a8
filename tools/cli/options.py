"""The flags of options, from the dataclasses that declare them: those of `mirlo.compile` by default."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mirlo.runtime.options import OptionDeclaration, OptionFlag

T = TypeVar("T")
FlagGroup = argparse._ActionsContainer
OptionsType = Callable[[], type]
"""Returns a dataclass of options; it is called, and imports, when arguments are parsed."""


def compile_options() -> type:
    """Return the options of `mirlo.compile`."""
    from mirlo.driver.options import CompileArguments

    return CompileArguments


def package_options() -> type:
    """Return the options of `mirlo.compile` that installed packages add."""
    from mirlo.driver.package_options import PackageOptions

    return PackageOptions


class AppendNamed(argparse.Action):
    """Append a value with its name; it is an error to give a name twice, of which one would not count."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        """Append a pair."""
        assert isinstance(values, tuple)
        before = getattr(namespace, self.dest) or []
        if any(name == values[0] for name, _ in before):
            raise argparse.ArgumentError(self, f"'{values[0]}' is given twice")
        setattr(namespace, self.dest, [*before, values])


def argument_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return the function of argparse that parses a text; its errors state the expected value."""

    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_argument


class OptionsParser(argparse.ArgumentParser):
    """A parser that reads the declarations of options when it is used: `mirlo --help` needs none of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pending: list[Callable[[], None]] = []
        """What adds flags of options."""

    def add_pending(self) -> None:
        """Add the flags of the options that the command has."""
        pending, self.pending = self.pending, []
        for add in pending:
            add()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments."""
        self.add_pending()
        return super().parse_known_args(args, namespace)


def add_options(
    parser: argparse.ArgumentParser,
    *names: str,
    of: OptionsType = compile_options,
    group: FlagGroup | None = None,
    required: bool = False,
    purpose: str = "",
    shows_defaults: bool = True,
) -> None:
    """Add the flags of these options, or of all; an option that is not set is None.

    `purpose` replaces the help text where the option has another meaning for a command.
    """

    def add() -> None:
        from dataclasses import fields

        from mirlo.runtime.options import declared_options

        kind = of()
        declared = declared_options(kind)
        defaults = {each.name: each.default for each in fields(kind)}
        for name in names or declared:
            for flag in declared[name].flags:
                help_text = (
                    purpose or flag.help or _help_text(declared[name], defaults[name] if shows_defaults else None)
                )
                _add_flag(group or parser, name, flag, declared[name], help_text, required)

    assert isinstance(parser, OptionsParser)
    parser.pending.append(add)


def add_package_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the options that installed packages add to `mirlo.compile`."""
    add_options(parser, of=package_options)


def _help_text(declared: OptionDeclaration, default: object) -> str:
    """Return the help text of an option: its first sentence, with the default."""
    sentence = declared.help.partition(". ")[0].rstrip(".")
    is_plain = isinstance(default, (int, float, str)) and not isinstance(default, bool)
    shown = f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"
    return f"{sentence[:1].lower()}{sentence[1:]}{shown if is_plain else ''}"


def _add_flag(
    group: FlagGroup, name: str, flag: OptionFlag, declared: OptionDeclaration, help_text: str, required: bool
) -> None:
    names, dest = (flag.name, *flag.aliases), flag.dest or name
    parse = argument_type(flag.parse or declared.kind.parse)
    if flag.form == "constant":
        group.add_argument(*names, dest=dest, action="store_const", const=flag.constant, help=help_text)
        return
    if flag.form == "pairs":
        group.add_argument(
            *names, dest=dest, metavar=flag.metavar, type=parse, action=AppendNamed, default=[], help=help_text
        )
        return
    group.add_argument(
        *names, dest=dest, metavar=flag.metavar, type=parse, help=help_text, required=required,
        action="append" if flag.form == "append" else "store", choices=declared.choices or None,
    )  # fmt: skip


def given_options(arguments: argparse.Namespace, of: type | None = None) -> dict[str, Any]:
    """Return the options that the command line sets, by name: those of `mirlo.compile`, or of another dataclass."""
    return {name: value for name, (_, value) in given_flags(arguments, of).items()}


def given_flags(arguments: argparse.Namespace, of: type | None = None) -> dict[str, tuple[str, Any]]:
    """Return the flag and the value of each option that the command line sets, by the name of the option."""
    from mirlo.runtime.options import declared_options

    by_name: dict[str, tuple[str, Any]] = {}
    for name, declared in declared_options(of or compile_options()).items():
        for flag in declared.flags:
            value = getattr(arguments, flag.dest or name, None)
            if value is None or value == []:
                continue
            if any(other.form == "constant" and value is other.constant for other in declared.flags if other != flag):
                continue  # the value is that of another flag
            if flag.form == "constant" and value is not flag.constant:
                continue
            by_name[name] = (flag.name, flag.convert(value) if flag.convert is not None else value)
    return by_name
