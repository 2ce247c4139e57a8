"""The heartbeat of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from commands import ENVIRONMENT

ENDING = """
import sys, time
from mirlo.runtime import heartbeat

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(4 * 0.25)

heartbeat.own_heartbeat()
sys.slow = Slow()  # deleted after what modules hold
"""


@pytest.mark.skipif(sys.platform == "win32", reason="memory is shared otherwise there")
def test_a_process_counts_while_its_modules_are_deleted() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
