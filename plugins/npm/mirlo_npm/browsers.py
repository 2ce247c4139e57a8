"""Headless browsers, which open a page for tests and measurements."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

PROGRAMS = {"chromium": ("chromium", "google-chrome"), "firefox": ("firefox", "firefox-esr")}
"""Names of a browser's executable."""
CHROMIUM_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
)  # fmt: skip


def find_browser(name: str) -> str | None:
    """Return the program of a browser, or None if it is not installed."""
    return next(filter(None, map(shutil.which, PROGRAMS[name])), None)


@contextmanager
def visit(name: str, address: str) -> Iterator[None]:
    """Open a page in a browser with a temporary profile."""
    program = find_browser(name)
    if program is None:
        raise FileNotFoundError(f"install {name}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [program, *CHROMIUM_FLAGS, f"--user-data-dir={profile}", address]
        if name == "firefox":
            words = [program, "--headless", "--no-remote", "--profile", profile, address]
        environment = {**os.environ, "HOME": profile}
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait()
