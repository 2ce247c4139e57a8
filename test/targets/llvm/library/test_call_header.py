"""`mirlo_call.h` on hostile specs, shapes and sizes, compared with Python: on 64 bits, 32 bits and WebAssembly."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from c_compiler import needs_c_compiler, sanitizer_flags
from library_models import compiler

from mirlo.targets.llvm.library.sources import RUN_TIME_FOLDER

SOURCE = Path(__file__).parents[3] / "support" / "call_cases.c"
WASI = SOURCE.with_name("run_wasi.py")
FLAGS = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{RUN_TIME_FOLDER}", str(SOURCE)]
FIRST, UNBOUND, MAX_RANK = 2, -1, 64
MIN, MAX = -(1 << 63), (1 << 63) - 1
CASES = 20_000
EDGES = (0, 1, 2, 3, 7, 64, 65, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 62, MAX, -1, -2, MIN)


def _expected_spec(
    rank: int, words: int, item: int, most: int, dims: list[int], shape: list[int], strides: list[int]
) -> str:
    if not 0 <= rank <= MAX_RANK or words < 0 or any(dim < 0 and not FIRST <= -dim < words for dim in dims[:rank]):
        return "refused"
    record = [0 if w < FIRST else UNBOUND for w in range(words)]
    bound = rank
    for d in range(rank):
        known = record[-dims[d]] if dims[d] < 0 else dims[d]
        fits = shape[d] >= 0 and known in (shape[d], UNBOUND) if dims[d] < 0 else known == shape[d]
        if not fits:
            bound = d
            break
        if dims[d] < 0:
            record[-dims[d]] = shape[d]
    sizes = [record[-dim] if dim < 0 else dim for dim in dims[:rank]]
    counted = _count(sizes, item, most)
    scalar = _count([], item, most)
    whole = "" if counted is None else f" {counted}"
    numbers = f"{int(counted is not None)} {int(scalar is not None)}{whole}"
    contiguous, stride = 1, 1
    for size, found in reversed(list(zip(shape[:rank], strides[:rank], strict=True))):
        if size != 1 and found % (1 << 64) != stride:
            contiguous = 0
            break
        stride = stride * size % (1 << 64)
    return f"{' '.join(map(str, [bound, *record]))} | {numbers} | {contiguous} 1"


def _count(sizes: list[int], item: int, most: int) -> int | None:
    """Count the bytes of a tensor; None for a negative dim, and for more than `most`."""
    if any(size < 0 for size in sizes):
        return None
    if 0 in sizes:
        return 0
    product = item
    for size in sizes:
        product *= size
    return product if product <= most and item <= most else None


def _draw(rng: random.Random, words: int) -> int:
    """Draw a dim or size: usually small, of the record, or at an edge."""
    return rng.choice(
        [rng.choice(EDGES), rng.randint(0, 5), rng.randint(1, 3), -rng.randint(0, words + 1), rng.randint(MIN, MAX)]
    )


def _spec_case(rng: random.Random) -> tuple[bytes, str]:
    rank = rng.choice([*range(7)] * 4 + [MAX_RANK, MAX_RANK + 1, -1, MIN, MAX])
    length = rank if 0 <= rank <= MAX_RANK else 0
    words = rng.choice([0, 1, 2, 3, 4, 6, 9])
    is_tame = rng.random() < 0.7
    symbols = [-w for w in range(FIRST, words)]
    dims = [rng.choice([rng.randint(0, 4), *symbols]) if is_tame else _draw(rng, words) for _ in range(length)]
    known = {dim: rng.choice([*EDGES, 1, 2, 3]) for dim in symbols}
    shape = [_draw(rng, words) if rng.random() < 0.05 else known.get(dim, dim) for dim in dims]
    strides, stride = [], 1
    for size in reversed(shape):
        strides.insert(0, stride if rng.random() < 0.97 else _draw(rng, words))
        stride = (stride * size + (1 << 63)) % (1 << 64) - (1 << 63)
    item = rng.choice([0, 1, 2, 4, 8, 16, 1 << 32, MAX])
    most = rng.choice([0, 1, 64, (1 << 32) - 4097, 1 << 30, MAX - 1, MAX])
    numbers = [0, rank, length, words, item, most, *dims, *shape, *strides]
    return struct.pack(f"<{len(numbers)}q", *numbers), _expected_spec(rank, words, item, most, dims, shape, strides)


def _block_case(rng: random.Random) -> tuple[bytes, str]:
    blocks = [(rng.choice([0, 1, 64, 100, 1 << 16, MAX]), rng.randint(0, 1)) for _ in range(rng.randint(0, 6))]
    wanted, most = rng.choice([0, 1, 64, 101, MAX]), rng.choice([64, 200, MAX])
    fitting = [size for size, used in blocks if not used and wanted <= size <= most]
    numbers = [1, len(blocks), wanted, most, *(number for block in blocks for number in block)]
    return struct.pack(f"<{len(numbers)}q", *numbers), str(min(fitting, default=-1))


def _cases() -> Iterator[tuple[bytes, str]]:
    rng = random.Random(83)
    for i in range(CASES):
        yield _block_case(rng) if i % 10 == 9 else _spec_case(rng)


def _require_equal(command: list[str], folder: Path) -> None:
    """Compile the program, and compare its output with the expected one."""
    program, file = folder / "cases", folder / "cases.bin"
    cases = list(_cases())
    file.write_bytes(b"".join(content for content, _ in cases))
    done = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = [sys.executable, str(WASI)] if any("wasm" in word for word in command) else []
    done = subprocess.run([*run, str(program), str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert len(found) == len(cases)
    for i, (line, (_, expected)) in enumerate(zip(found, cases, strict=True)):
        assert line == expected, i


@needs_c_compiler
@pytest.mark.sample(0)
@pytest.mark.parametrize("sanitizer", ["address,undefined", ""])
def test_hostile_specs(sanitizer: str, tmp_path: Path) -> None:
    flags = sanitizer_flags(compiler(), sanitizer, tmp_path / "probe") if sanitizer else []
    _require_equal([compiler(), *FLAGS, *flags], tmp_path)


@needs_c_compiler
def test_hostile_specs_on_32_bits(tmp_path: Path) -> None:
    probe = tmp_path / "probe.c"
    probe.write_text("#include <stdio.h>\nint main(void) { return 0; }\n")
    how = [compiler(), "-m32"]
    if subprocess.run([*how, str(probe), "-o", str(tmp_path / "probe")], capture_output=True, check=False).returncode:
        pytest.skip("there is no C library of 32 bits")
    _require_equal([*how, *FLAGS], tmp_path)


@pytest.mark.skipif(find_spec("ziglang") is None, reason="there is no ziglang")
@pytest.mark.parametrize("target", ["x86-linux-musl", "x86_64-linux-musl", "wasm32-wasi"])
def test_hostile_specs_by_zig(target: str, tmp_path: Path) -> None:
    if "wasm" in target and find_spec("wasmtime") is None:
        pytest.skip("there is no wasmtime")
    if "x86" in target and (sys.platform != "linux" or os.uname().machine != "x86_64"):
        pytest.skip("its programs run on Linux of x86-64")
    # Zig's own checks of undefined behaviour end the program.
    _require_equal([sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS], tmp_path)


def test_the_python_run_time_agrees() -> None:
    """The words and limits are those of the Python run time."""
    from mirlo.runtime import sizes

    text = (RUN_TIME_FOLDER / "mirlo_call.h").read_text()
    assert f"#define MIRLO_FIRST_WORD {sizes.FIRST} " in text
    assert f"#define MIRLO_MAX_RANK {MAX_RANK}\n" in text
