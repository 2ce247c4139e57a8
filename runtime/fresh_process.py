"""The command of a process with a new interpreter, with the import path and the plug-ins of this one.

It has this process's import path and its plug-ins: the modules with rules, passes and targets that were loaded by name
(`--plugin`, `load_plugin`). All processes that compile for this one, or run its models, are started so.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

_START = """
import json, runpy, sys
state = json.loads(sys.argv.pop(1))
sys.path[:] = state["path"]
sys.argv[0] = state["module"]
if state["plugins"]:
    from mirlo.passes.registry import load_plugin
    for name in state["plugins"]:
        load_plugin(name)
runpy.run_module(state["module"], run_name="__main__")
"""
_plugins: dict[str, None] = {}


def note_plugin(name: str) -> None:
    """Record a plug-in that is loaded: a module, or a file."""
    _plugins[os.path.abspath(name) if name.endswith(".py") else name] = None


def fresh_command(module: str, *arguments: str, plugins: Sequence[str] = (), runs_rules: bool = True) -> list[str]:
    """Return the command that runs a module as a program: with this process's plug-ins, and with `plugins`.

    Without `runs_rules` it loads no plug-ins: for processes after the passes, which apply no rules.
    """
    loaded = list(dict.fromkeys((*_plugins, *plugins))) if runs_rules else []
    state = {"path": sys.path, "module": module, "plugins": loaded}
    return [sys.executable, "-c", _START, json.dumps(state), *arguments]
