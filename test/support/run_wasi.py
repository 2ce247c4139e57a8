"""python run_wasi.py PROGRAM ARGUMENTS...: run a WebAssembly program, which sees the folders of its files."""

from __future__ import annotations

import sys
from pathlib import Path

import wasmtime


def main(program: str, *arguments: str) -> int:
    """Run the program; return its exit code."""
    engine = wasmtime.Engine()
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    store = wasmtime.Store(engine)
    settings = wasmtime.WasiConfig()
    settings.argv = (program, *arguments)
    settings.inherit_stdout()
    settings.inherit_stderr()
    for folder in {str(Path(file).parent) for file in (program, *arguments) if "/" in file}:
        settings.preopen_dir(folder, folder)
    store.set_wasi(settings)
    instance = linker.instantiate(store, wasmtime.Module.from_file(engine, program))
    try:
        instance.exports(store)["_start"](store)  # type: ignore[operator]
    except wasmtime.ExitTrap as ended:
        return ended.code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
