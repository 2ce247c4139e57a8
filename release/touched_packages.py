"""Print the packages of `plugins` that a change touches: `python -m release.touched_packages BASE`.

The change is what git shows from the common ancestor with BASE to the working tree. Without that commit, in a shallow
clone say, nothing is printed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable

from mirlo.release.project import ROOT


def touched_packages(paths: Iterable[str]) -> list[str]:
    """Return the packages with files among paths, without those that have no tests of Python."""
    names = {match[1] for path in paths if (match := re.match(r"plugins/([^/]+)/", path))}
    return sorted(name for name in names if (ROOT / "plugins" / name / "pyproject.toml").exists())


def changed_paths(base: str) -> list[str]:
    """Return the paths that differ from the common ancestor with a commit; none if git does not know it."""
    command = ["git", "-C", str(ROOT), "diff", "--name-only", "--merge-base", base]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


if __name__ == "__main__":
    print("\n".join(touched_packages(changed_paths(sys.argv[1]))))
