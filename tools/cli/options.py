"""The flags of compilation options, from their declarations in `driver/options.py`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mirlo.driver.options import OptionFlag

T = TypeVar("T")


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
    """Return the function of argparse that parses a text; its errors say what was expected."""

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


def add_options(parser: argparse.ArgumentParser, *names: str, required: bool = False, purpose: str = "") -> None:
    """Add the flags of these options; an option that is not given is None.

    `purpose` is what `--help` says where the option means something else to a command.
    """

    def add() -> None:
        from mirlo.driver.options import OPTIONS

        for name in names:
            for flag in OPTIONS[name].flags:
                add_flag(parser, name, flag, purpose or flag.help, required)

    assert isinstance(parser, OptionsParser)
    parser.pending.append(add)


def add_all_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all options, as a group."""

    def add() -> None:
        from mirlo.driver.options import OPTIONS

        group = parser.add_argument_group("compilation")
        for name, option in OPTIONS.items():
            for flag in option.flags:
                add_flag(group, name, flag, flag.help, False)

    assert isinstance(parser, OptionsParser)
    parser.pending.append(add)


def add_flag(group: argparse._ActionsContainer, name: str, flag: OptionFlag, purpose: str, required: bool) -> None:
    """Add a flag of an option."""
    from mirlo.driver.options import OPTIONS

    names, dest = (flag.name, *flag.aliases), flag.dest or name
    if flag.form == "constant":
        group.add_argument(*names, dest=dest, action="store_const", const=flag.constant, help=purpose)
        return
    if flag.form == "pairs":
        group.add_argument(
            *names, dest=dest, metavar=flag.metavar, type=argument_type(flag.parse), action=AppendNamed, default=[],
            help=purpose,
        )  # fmt: skip
        return
    group.add_argument(
        *names, dest=dest, metavar=flag.metavar, type=argument_type(flag.parse), help=purpose, required=required,
        action="append" if flag.form == "append" else "store", choices=OPTIONS[name].choices or None,
    )  # fmt: skip


def given_options(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the options that the command line gives, as `mirlo.compile` takes them."""
    return {name: value for name, (_, value) in given_flags(arguments).items()}


def given_flags(arguments: argparse.Namespace) -> dict[str, tuple[str, object]]:
    """Return the flag and the value of each option that the command line gives, by the name of the option."""
    from mirlo.driver.options import OPTIONS

    given: dict[str, tuple[str, object]] = {}
    for name, option in OPTIONS.items():
        for flag in option.flags:
            value = getattr(arguments, flag.dest or name, None)
            if value is None or value == []:
                continue
            if any(other.form == "constant" and value is other.constant for other in option.flags if other != flag):
                continue  # the value is that of another flag
            if flag.form == "constant" and value is not flag.constant:
                continue
            given[name] = (flag.name, flag.convert(value) if flag.convert is not None else value)
    return given
