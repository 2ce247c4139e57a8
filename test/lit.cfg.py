"""lit's configuration: `lit test` from the root of the repository, or lit on any file below it."""

# ruff: noqa: F821 (lit defines `config` and `lit_config`)

import importlib.util
import os
import re
import sys

import lit.formats

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

config.name = "mirlo"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = os.path.join(ROOT, "build", "test")

if os.path.basename(ROOT) == "mirlo":
    # The folder is the package: this checkout is tested, whatever is installed.
    sys.path.insert(0, os.path.dirname(ROOT))
    config.environment["PYTHONPATH"] = os.path.dirname(ROOT)
    importlib.invalidate_caches()
found = importlib.util.find_spec("mirlo")
if found is None or os.path.dirname(os.path.realpath(found.origin)) != os.path.realpath(ROOT):
    lit_config.fatal(f"'import mirlo' would not give the checkout in {ROOT}: install it with 'pip install -e .'")

# Threads of the numeric libraries cost each tool more to start than they save.
config.environment["OPENBLAS_NUM_THREADS"] = "1"
config.environment["XDG_CACHE_HOME"] = os.path.join(ROOT, ".cache", "tests")

TOOLS = {
    "mirlo-opt": "mirlo.tools.opt:command",
    "mirlo": "mirlo.tools.cli:command",
    "FileCheck": "filecheck.main:main",
}
if hasattr(os, "fork"):
    # Commands run in forks of a process that has imported the tools; it ends when lit does.
    support = os.path.join(ROOT, "test", "support")
    sys.path.append(support)
    from tool_process import start

    path = start({**os.environ, **config.environment})
    commands = {
        tool: f"{sys.executable} -I -S {os.path.join(support, 'tool_client.py')} {path} {function}"
        for tool, function in TOOLS.items()
    }
else:
    commands = {tool: f"{sys.executable} -m {function.partition(':')[0]}" for tool, function in TOOLS.items()}
for tool, command in commands.items():
    config.substitutions.append((rf"(?<![-\w./%]){re.escape(tool)}(?![-\w./])", command))
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%root", ROOT))
