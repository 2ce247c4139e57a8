"""The tests of the package are run where it is installed: `test_package.py` installs it for them."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("mirlo_npu") else ["tests"]
