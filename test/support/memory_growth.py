"""How much memory a function takes, whatever the tests before it in the same process took."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable

from mirlo.runtime.processes import run_forked
from mirlo.runtime.system import peak_memory


def peak_growth(work: Callable[[], object]) -> int:
    """Return the growth of a process's peak memory by a function, in bytes, in a fork; exceptions fail the test.

    The peak of this process hides what takes less than an earlier test; that of a fork begins with what is in use.
    """

    def measured() -> bytes:
        before, problem = peak_memory(), ""
        try:
            work()
        except BaseException:
            problem = traceback.format_exc()
        return json.dumps([problem, peak_memory() - before]).encode()

    done = run_forked(measured)
    assert done.code == 0, f"the fork ended with {done.code}"
    problem, growth = json.loads(done.content)
    assert not problem, problem
    return int(growth)
