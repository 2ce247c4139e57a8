"""A host that seems to be an older processor: `pytest --host-cpu=x86-64-v3`.

Mirlo then compiles for that processor, in this process and in those that tests start, and refuses to load code for
what the processor lacks. Libraries that tests compare with, such as ONNX Runtime, still use all of the real one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mirlo.runtime.host_cpu import host_cpu, restrict_host_cpu
from mirlo.targets.llvm.cpus import CPUS, USED, X86

CHILD = """import contextlib
with contextlib.suppress(ImportError):
    from mirlo.runtime.host_cpu import restrict_host_cpu
    restrict_host_cpu({cpu!r}, {lacked!r})
"""
"""What Python runs when it starts, in a process that a test starts."""


def mask(cpu: str, folder: Path) -> None:
    """Show this process, and all that it starts, a processor with LLVM's name `cpu`; `folder` is for their start."""
    model = CPUS.get(cpu)
    if model is None or model.arch != X86:
        known = ", ".join(name for name, each in CPUS.items() if each.arch == X86)
        raise ValueError(f"--host-cpu {cpu}: expected one of {known}")
    lacked = sorted(USED[X86] - model.features)
    restrict_host_cpu(cpu, lacked)
    more = sorted(model.features - host_cpu().features)
    if more:
        raise ValueError(f"--host-cpu {cpu}: this machine lacks {', '.join(more)}")
    folder.mkdir(parents=True, exist_ok=True)
    text, path = CHILD.format(cpu=cpu, lacked=lacked), folder / "sitecustomize.py"
    if not path.exists() or path.read_text() != text:
        written = folder / f"{os.getpid()}.tmp"
        written.write_text(text)
        written.replace(path)
    # Tests start Python with one or the other.
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
