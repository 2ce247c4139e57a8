"""lit's configuration: `lit test` from the root of the repository, or lit on any file below it."""

# ruff: noqa: F821 (lit defines `config` and `lit_config`)

import importlib.util
import os
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

from mirlo.testing.tool_process import tool_substitutions  # noqa: E402 (of this checkout)

config.substitutions += tool_substitutions(config.environment)
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%root", ROOT))
