"""`mirlo completion`: completion of commands, flags and their choices for shells, from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mirlo.runtime.records import dataclass
from mirlo.tools.cli.arguments import Arguments, make_parser
from mirlo.tools.cli.options import OptionsParser


@dataclass(frozen=True)
class CommandFlag:
    """A flag of a command."""

    names: tuple[str, ...]
    help: str
    choices: tuple[str, ...]
    takes_value: bool


@dataclass(frozen=True)
class CommandSummary:
    """A command with its flags, and the names that may follow it."""

    name: str
    help: str
    flags: tuple[CommandFlag, ...]
    words: tuple[str, ...]


def execute(arguments: Arguments) -> None:
    """Print the completion script of a shell."""
    print(SHELLS[arguments.shell](commands(make_parser(with_packages=True))), end="")


def commands(parser: argparse.ArgumentParser) -> list[CommandSummary]:
    """Return the commands of a parser."""
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in subparsers._choices_actions}
    return [_summary(name, helps.get(name, ""), subparser) for name, subparser in subparsers.choices.items()]


def _summary(name: str, help_text: str, parser: argparse.ArgumentParser) -> CommandSummary:
    flags: list[CommandFlag] = []
    words: list[str] = []
    if isinstance(parser, OptionsParser):
        parser.add_pending()
    for action in parser._actions:
        choices = tuple(map(str, action.choices or ()))
        if action.option_strings:
            takes_value = action.nargs != 0
            flags.append(CommandFlag(tuple(action.option_strings), action.help or "", choices, takes_value))
        else:
            words += choices
    return CommandSummary(name, help_text, tuple(flags), tuple(words))


def _bash(summaries: list[CommandSummary]) -> str:
    lines = [
        "# Completion of mirlo for bash: source this file, or write it to the folder bash-completion/completions.",
        "_mirlo() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"',
        "  if [ $COMP_CWORD -eq 1 ]; then",
        f'    COMPREPLY=($(compgen -W "{" ".join(each.name for each in summaries)}" -- "$word")); return',
        "  fi",
        '  case "$command $before" in',
    ]
    for each in summaries:
        for flag in each.flags:
            if flag.choices:
                patterns = "|".join(f'"{each.name} {name}"' for name in flag.names)
                lines.append(
                    f'    {patterns}) COMPREPLY=($(compgen -W "{" ".join(flag.choices)}" -- "$word")); return;;'
                )
    lines += ["  esac", '  case "$command" in']
    for each in summaries:
        names = " ".join([*each.words, *(name for flag in each.flags for name in flag.names)])
        lines.append(f'    {each.name}) COMPREPLY=($(compgen -W "{names}" -- "$word"));;')
    lines += ["  esac", '  COMPREPLY+=($(compgen -f -- "$word"))', "}", "complete -o filenames -F _mirlo mirlo"]
    return "\n".join(lines) + "\n"


def _zsh(summaries: list[CommandSummary]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(summaries).replace("for bash: ", "for zsh: ", 1)


def _fish(summaries: list[CommandSummary]) -> str:
    lines = ["# Completion of mirlo for fish: write this to ~/.config/fish/completions/mirlo.fish."]
    for each in summaries:
        lines.append(f"complete -c mirlo -n __fish_use_subcommand -a {each.name} -d {_quoted(each.help)}")
        inside = f"-n '__fish_seen_subcommand_from {each.name}'"
        if each.words:
            lines.append(f"complete -c mirlo {inside} -a '{' '.join(each.words)}'")
        for flag in each.flags:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
            values = f" -x -a '{' '.join(flag.choices)}'" if flag.choices else " -r" if flag.takes_value else ""
            lines.append(f"complete -c mirlo {inside} {names}{values} -d {_quoted(flag.help)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as one argument of fish, in single quotes."""
    plain = " ".join(text.replace("%%", "%").split())
    return "'" + plain.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, Callable[[list[CommandSummary]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
