"""A headless browser that shows a page in a window of some width, and says what a script measures in it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt install chromium")
_WRAPPER = """<!doctype html><meta charset="utf-8"><pre id="measured"></pre>
<iframe src="{page}" style="width:{width}px;height:{height}px;border:0"></iframe>
<script>addEventListener("message", (event) => {{
  document.getElementById("measured").textContent = JSON.stringify(event.data);
}});</script>"""
_SENDER = """<script>addEventListener("load", () => {{
  let found;
  try {{ found = (() => {{ {script} }})(); }} catch (error) {{ found = {{ error: String(error.stack) }}; }}
  parent.postMessage(found, "*");
}});</script>"""


def measured(text: str, script: str, folder: Path, width: int, height: int = 700, dark: bool = False) -> Any:
    """Return what the body of a function in JavaScript returns once the page is loaded."""
    assert BROWSER is not None
    page, wrapper = folder / "page.html", folder / "wrapper.html"
    page.write_text(text.replace("</body>", _SENDER.format(script=script) + "</body>"), encoding="utf-8")
    wrapper.write_text(_WRAPPER.format(page=page.name, width=width, height=height), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={folder / 'profile'}"]
    flags += ["--virtual-time-budget=20000", "--window-size=1400,900"]
    flags += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    done = subprocess.run([BROWSER, *flags, wrapper.as_uri()], capture_output=True, text=True, timeout=120)
    match = re.search(r'<pre id="measured">(.+?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr[-2000:]
    result = json.loads(html.unescape(match.group(1)))
    assert not (isinstance(result, dict) and "error" in result), result["error"]
    return result
