"""Options of target `llvm`: the processor that code is made for.

    llvm{cpu=neoverse-n1 triple=aarch64-linux-gnu features=+i8mm,-dotprod threads=4 l2=1MiB}

Without options it is the processor of this machine. The same text is the value of the option `machine` of passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo.runtime.cache import digest_of
from mirlo.runtime.errors import nearest, nearest_name
from mirlo.runtime.host_cpu import AMX
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.cpus import (
    ARM,
    BASE,
    BF16_DOTS_OF_INTEL,
    CPUS,
    EXCHANGED_ON_MESH,
    EXPOSED_LOADS_OF_MESH,
    HEXAGON,
    L3_OF_MESH,
    PREFETCH_LEVEL_OF_MESH,
    RISCV,
    RISCV32,
    STREAMING_OF_MESH,
    SVE,
    USED,
    WASM,
    X86,
    Cpu,
    arch_of,
)
from mirlo.targets.llvm.machine import PRESETS, Machine, MachineError, stored_rates
from mirlo.targets.llvm.processor import Processor, host_processor

if TYPE_CHECKING:
    from mirlo.passes.targets import CompileOptions

NATIVE = "native"
OPTIONS = (
    "cpu", "triple", "features", "threads", "thread_work", "memory", "reduce_range", "winograd", "l1", "l2", "l3",
    "tiles", "denormals", "invariant",
)  # fmt: skip
_NOT_OF_PROCESSORS = ("threads", "thread_work", "memory", "reduce_range", "winograd")
MOST_BYTES = 1 << 40
"""Largest cache that options may describe."""
_TRIPLES = {
    X86: "x86_64-unknown-linux-gnu", ARM: "aarch64-unknown-linux-gnu", RISCV: "riscv64-unknown-linux-gnu",
    RISCV32: "riscv32-unknown-elf", WASM: "wasm32-unknown-unknown", HEXAGON: "hexagon-unknown-linux-musl",
}  # fmt: skip
"""The systems that code is for where options name a processor of another kind than this machine's."""
_TRIPLE = re.compile(r"[a-z0-9_]+(-[A-Za-z0-9_.]+){1,3}")
_FEATURE = re.compile(r"[+-][a-z0-9][a-z0-9._-]*")
_BYTES = re.compile(r"(\d{1,12})(B|K|M|G|KB|MB|GB|KiB|MiB|GiB)?")


@dataclass(frozen=True)
class LlvmOptions:
    """The processor that code is made for, and the properties that schedules assume."""

    processor: Processor
    machine: Machine
    threads: int | None = None
    """The threads of a call; None for those of `mirlo.compile`."""
    thread_work: int | None = None
    """The least work that threads share, in floating-point operations; None for the default of `outline-parallel`."""
    saves_memory: bool = False
    """Whether memory is worth more than time, to compile and to run."""
    reduces_range: bool = False
    """Whether int8 weights may be rounded where that permits faster instructions."""
    winograd: int | None = None
    """The largest tile of results of Winograd's algorithm; None for the default of the pass `winograd`."""

    @property
    def identity(self) -> str:
        """Return all that code depends on, as text."""
        return f"{self.processor} {self.machine}"


@cache
def parse_options(text: str = "") -> LlvmOptions:
    """Parse the options in braces; without any, describe this machine."""
    options = _split(text)
    cpu = options.get("cpu", NATIVE)
    triple = options.get("triple", "")
    if triple and not _TRIPLE.fullmatch(triple):
        raise MachineError(f"option triple of target 'llvm': expected one such as '{_TRIPLES[ARM]}', found '{triple}'")
    if cpu == NATIVE:
        if triple and triple != host_processor().triple:
            raise MachineError(
                f"option cpu of target 'llvm': the processor of this machine is not known to run code for '{triple}'; "
                f"name one: {', '.join(_of_arch(arch_of(triple)))}"
            )
        processor, machine = host_processor(), host_machine()
    else:
        model = _find_cpu(cpu, triple)
        processor = Processor(triple or _triple_for(model.arch), model.name, tuple(sorted(model.features)))
        machine = machine_of(processor, model)
    if "features" in options:
        processor = _with_features(processor, options["features"].split(","))
        machine = _with_caches(machine_of(processor), machine)
    if "tiles" in options:
        processor = _with_tiles(processor, options["tiles"])
        machine = replace(machine, tiles=processor.tiles)
    if "denormals" in options:
        processor = _with_denormals(processor, options["denormals"])
    sizes = {f"{name}_bytes": _bytes(name, options[name]) for name in ("l1", "l2", "l3") if name in options}
    threads = _number(options, "threads", 4096)
    work, saves_memory = _number(options, "thread_work", MOST_BYTES), _is_small(options.get("memory"))
    reduces_range = _is_true("reduce_range", options.get("reduce_range"))
    winograd = _tile("winograd", options.get("winograd"))
    machine = replace(machine, **sizes)  # type: ignore[arg-type]
    if _is_true("invariant", options.get("invariant")):
        machine = replace(machine, invariant=True)
    return LlvmOptions(processor, machine, threads, work, saves_memory, reduces_range, winograd)


def invariant_options(text: str) -> str:
    """Return the options with `invariant`, unless they have it already."""
    parts = [part for part in text.split() if not part.startswith("invariant=")]
    return " ".join([*parts, "invariant=true"])


def planning_options(text: str) -> str:
    """Return the options that passes plan for: those that describe a processor other than this machine's."""
    options = _split(text)
    for name in _NOT_OF_PROCESSORS:
        options.pop(name, None)
    if options.get("cpu") == NATIVE and len(options) == 1:
        return ""
    return " ".join(f"{name}={value}" for name, value in sorted(options.items()))


def threads_of(options: CompileOptions | None) -> int:
    """Return the threads of a call: those in braces, else those of the compilation."""
    return parse_options(getattr(options, "target_options", "")).threads or int(getattr(options, "threads", 1))


def thread_work_of(options: CompileOptions | None) -> int | None:
    """Return the least work that threads share; None for the default."""
    return parse_options(getattr(options, "target_options", "")).thread_work


def saves_memory(options: CompileOptions | None) -> bool:
    """Return whether options prefer little memory to speed."""
    return parse_options(getattr(options, "target_options", "")).saves_memory


def reduces_range(options: CompileOptions | None) -> bool:
    """Return whether int8 weights may be rounded where that permits faster instructions."""
    return parse_options(getattr(options, "target_options", "")).reduces_range


def largest_winograd_tile(options: CompileOptions | None) -> int | None:
    """Return the largest tile of results of Winograd's algorithm; None for the default."""
    return parse_options(getattr(options, "target_options", "")).winograd


def is_invariant(options: CompileOptions | None) -> bool:
    """Return whether the results of a row of a batch may not depend on other rows, nor on how many there are."""
    return machine_for(options).invariant


def machine_for(options: CompileOptions | tuple[str, ...] | None) -> Machine:
    """Return the machine that the options of a compilation describe."""
    return parse_options(getattr(options, "target_options", "")).machine


def find_machine(name: str | Machine | None) -> Machine:
    """Return the machine of a preset, or of options such as `cpu=x86-64-v3`; None and `host` are this one's."""
    if isinstance(name, Machine):
        return name
    if name is None or name in ("", "host"):
        return host_machine()
    if "=" in name:
        return parse_options(name).machine
    if name not in PRESETS:
        raise MachineError(
            f"unknown machine '{name}'; known: host, {', '.join(sorted(PRESETS))}, and options of target 'llvm', such "
            "as 'cpu=x86-64-v3'"
        )
    return PRESETS[name]


@cache
def host_machine() -> Machine:
    """Return the machine that the compiler runs on, with the rates that `mirlo doctor --measure` found."""
    rates: dict[str, Any] = dict(stored_rates(host_identity()).known)
    return replace(described_machine(), **rates)


def described_machine() -> Machine:
    """Return the machine that the compiler runs on, as the processor and the system report it."""
    base = machine_of(host_processor(), CPUS.get(host_processor().cpu))
    caches = linux_caches()
    l1_bytes, l1_associativity = caches.get(1, (base.l1_bytes, base.l1_associativity))
    l2_bytes, _ = caches.get(2, (base.l2_bytes, 0))
    l3_bytes, _ = caches.get(3, (0 if caches else base.l3_bytes, 0))
    return replace(
        base, name="host", l1_bytes=l1_bytes, l1_associativity=l1_associativity, l2_bytes=l2_bytes, l3_bytes=l3_bytes
    )


def host_identity() -> str:
    """Return the identity of this machine for measured rates: its processor and its caches."""
    return digest_of(f"{host_processor()} {sorted(linux_caches().items())}".encode())


def machine_of(processor: Processor, model: Cpu | None = None) -> Machine:
    """Return the machine of a processor: its vectors, and the caches of a model."""
    base = replace(PRESETS[_preset(processor)], name=processor.cpu, dots=_dots(processor), tiles=processor.tiles)
    if processor.arch == X86 and not processor.is_amd:
        base = replace(base, bf16_dot_rate=BF16_DOTS_OF_INTEL)
    if processor.sve_bits:
        base = replace(base, vector_bytes=processor.sve_bits // 8, dots=())
    if processor.arch == RISCV:
        base = replace(base, vector_bytes=max(16, _riscv_bits(processor) // 8))
    if processor.has_mesh:
        base = replace(
            base,
            l3_bytes_per_cycle=L3_OF_MESH,
            exchanged_bytes_per_cycle=EXCHANGED_ON_MESH,
            streaming_instructions=STREAMING_OF_MESH,
            prefetch_level=PREFETCH_LEVEL_OF_MESH,
            exposed_loads=EXPOSED_LOADS_OF_MESH,
        )
    if model is None:
        return base
    return replace(base, l1_bytes=model.l1_bytes or base.l1_bytes, l2_bytes=model.l2_bytes or base.l2_bytes)


def _preset(processor: Processor) -> str:
    if processor.arch == WASM:
        return "wasm-fma" if processor.has("relaxed-simd") else "wasm"
    if processor.has("hvx-length128b"):
        return "hvx"
    if processor.arch != X86:
        return "neon"
    if processor.has("avx512f", "avx512vl", "avx512bw", "avx512dq"):
        return "avx512"
    return "avx2" if processor.has("avx2", "fma") else "sse"


def _dots(processor: Processor) -> tuple[str, ...]:
    """Return the dot products of a processor for vectors of its machine's size."""
    if processor.arch == ARM:
        named = {"bfmmla": "bf16", "i8mm": "i8mm", "i8xi8": "dotprod"}
        return tuple(name for name, feature in named.items() if processor.has(feature))
    if processor.has("hvx-length128b"):
        return ("vrmpy",)
    if processor.arch != X86:
        return ()
    narrow = _preset(processor) == "avx2"
    dots = set()
    if _preset(processor) != "sse":
        dots.add("i16")
    if processor.has("avx512vnni", "avx512vl") or (narrow and processor.has("avxvnni")):
        dots.add("u8xi8")
    if processor.has("avx512bf16", "avx512vl"):
        dots.add("bf16")
    return tuple(sorted(dots))


def _riscv_bits(processor: Processor) -> int:
    """Return the length of vectors that every processor with these features has."""
    lengths = [int(name[3:-1]) for name in processor.features if re.fullmatch(r"zvl\d{1,5}b", name)]
    return max(lengths, default=0)


def _split(text: str) -> dict[str, str]:
    result: dict[str, str] = {}
    for part in text.split():
        key, equals, value = part.partition("=")
        if key not in OPTIONS:
            hint = nearest(key, OPTIONS)
            raise MachineError(f"target 'llvm' has no option '{key}'; it has: {', '.join(OPTIONS)}{hint}")
        if not equals or not value:
            raise MachineError(f"option {key} of target 'llvm' has no value: write '{key}=...'")
        if key in result:
            raise MachineError(f"option {key} of target 'llvm' is given twice: '{result[key]}' and '{value}'")
        result[key] = value
    return result


def _find_cpu(name: str, triple: str) -> Cpu:
    arch = arch_of(triple) if triple else None
    if name == "generic" and arch is not None:
        name = BASE[arch]
        if arch == WASM:
            return Cpu(name, WASM, frozenset())
    model = CPUS.get(name)
    known = _of_arch(arch) if arch else list(CPUS)
    if model is None:
        near = nearest_name(name, known)
        hint = f"did you mean '{near}'? " if near else ""
        raise MachineError(f"option cpu of target 'llvm': unknown '{name}'; {hint}known: native, {', '.join(known)}")
    if arch not in (None, model.arch):
        raise MachineError(
            f"options of target 'llvm': '{name}' is a processor for {model.arch}, the triple is '{triple}'; known "
            f"there: {', '.join(known)}"
        )
    return model


def _of_arch(arch: str) -> list[str]:
    return [name for name, cpu in CPUS.items() if cpu.arch == arch] or ["generic"]


def _triple_for(arch: str) -> str:
    """Return the triple of this machine, or of Linux for processors of another kind."""
    own = host_processor()
    return own.triple if own.arch == arch else _TRIPLES[arch]


def _with_features(processor: Processor, changes: Iterable[str]) -> Processor:
    """Return a processor with features added and removed: `+avxvnni`, `-fma`."""
    features = set(processor.features)
    known = USED[processor.arch]
    for change in changes:
        name = change[1:]
        if not _FEATURE.fullmatch(change):
            raise MachineError(
                f"option features of target 'llvm': expected features such as '+avx2,-fma', found '{change}'"
            )
        if name not in known:
            near = nearest_name(name, known)
            hint = f"did you mean '{near}'? " if near else ""
            raise MachineError(
                f"option features of target 'llvm': no code for {processor.arch} uses '{name}'; {hint}it uses: "
                f"{', '.join(sorted(known)) or 'those of its models'}"
            )
        features = features | {name} if change[0] == "+" else features - {name}
    if len(features & set(SVE)) > 1:
        raise MachineError(
            f"option features of target 'llvm': vectors have one length, found {', '.join(sorted(features & set(SVE)))}"
        )
    return replace(processor, features=tuple(sorted(features)))


def _with_tiles(processor: Processor, text: str) -> Processor:
    """Return a processor without AMX, or with functions in place of its instructions."""
    if text not in ("emulated", "none") or text == "emulated" and not processor.has("avx2", "fma"):
        raise MachineError(
            f"option tiles of target 'llvm': expected none, or emulated with AVX2 and FMA, found '{text}'"
        )
    features = tuple(feature for feature in processor.features if feature not in AMX)
    return replace(processor, features=features, emulates_tiles=text == "emulated")


def _with_denormals(processor: Processor, text: str) -> Processor:
    """Return a processor that computes with subnormal numbers, or with zeros in their place."""
    if text not in ("exact", "flush") or text == "flush" and processor.arch not in (X86, ARM):
        raise MachineError(
            f"option denormals of target 'llvm': expected exact, or flush on x86 and AArch64, found '{text}'"
        )
    return replace(processor, flushes_denormals=text == "flush")


def _with_caches(machine: Machine, other: Machine) -> Machine:
    return replace(
        machine,
        l1_bytes=other.l1_bytes,
        l1_associativity=other.l1_associativity,
        l2_bytes=other.l2_bytes,
        l3_bytes=other.l3_bytes,
        l2_bytes_per_cycle=other.l2_bytes_per_cycle,
        l3_bytes_per_cycle=other.l3_bytes_per_cycle,
        memory_bytes_per_cycle=other.memory_bytes_per_cycle,
        exchanged_bytes_per_cycle=other.exchanged_bytes_per_cycle,
    )


def _bytes(name: str, text: str) -> int:
    match = _BYTES.fullmatch(text)
    size = int(match[1]) * 1024 ** "BKMG".index((match[2] or "B")[0]) if match else 0
    if not 0 < size <= MOST_BYTES and not (match and name == "l3"):
        raise MachineError(f"option {name} of target 'llvm': expected a size such as 512KiB or 1MiB, found '{text}'")
    return size


def _is_small(text: str | None) -> bool:
    if text not in (None, "small", "large"):
        raise MachineError(f"option memory of target 'llvm': expected small or large, found '{text}'")
    return text == "small"


def _is_true(name: str, text: str | None) -> bool:
    if text not in (None, "true", "false"):
        raise MachineError(f"option {name} of target 'llvm': expected true or false, found '{text}'")
    return text == "true"


def _tile(name: str, text: str | None) -> int | None:
    if text not in (None, "0", "2", "4"):
        raise MachineError(f"option {name} of target 'llvm': expected 0, 2 or 4, found '{text}'")
    return None if text is None else int(text)


def _number(options: dict[str, str], name: str, most: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18 or not 1 <= int(text) <= most:
        raise MachineError(f"option {name} of target 'llvm': expected 1 to {most}, found '{text}'")
    return int(text)


def linux_caches() -> dict[int, tuple[int, int]]:
    """Return bytes and associativity of the first core's data caches by level, where Linux reports them."""
    caches: dict[int, tuple[int, int]] = {}
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            names = ("level", "type", "size", "ways_of_associativity")
            level, kind, size, ways = ((entry / name).read_text().strip() for name in names)
        except OSError:
            continue
        unit = {"K": 1024, "M": 1024 * 1024}.get(size[-1:])
        if kind != "Instruction" and unit and size[:-1].isdigit() and ways.isdigit() and int(ways):
            caches[int(level)] = int(size[:-1]) * unit, int(ways)
    return caches
