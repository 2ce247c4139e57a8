"""The descriptor of a model: LLVM IR for the declarations of `mirlo.h`, and for the functions that units call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.runtime.names import PARALLEL
from mirlo.targets.llvm.cpus import system_of
from mirlo.targets.llvm.library.description import Description, type_code

ABI = 3
"""Version of the structures in `mirlo.h`."""
POLL = "mirlo_poll"
WITHOUT_WEAK = ("windows", "darwin")
"""Systems whose object files cannot refer to a driver that may be missing: their programs register drivers."""

_TYPES = """
%dtype = type { i8, i8, i16 }
%value = type { ptr, %dtype, i32, ptr, i32, i32 }
%region = type { ptr, ptr, ptr, ptr, ptr, i64, i32, i32 }
%callee = type { ptr, ptr, ptr, ptr, ptr, i64, i64, i32, i32 }
%code = type { i32, i32, ptr, ptr, ptr, ptr, ptr, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32,
               ptr, ptr, ptr, ptr, ptr, i64, [2 x i64], i64 }
"""

_PARALLEL = """
@parallel = internal global ptr null
define internal void @set_parallel(ptr %function) {
  store atomic ptr %function, ptr @parallel release, align 8
  ret void
}
; Hands a job to the pool of the run time; without one it runs here.
define VISIBLE void @PARALLEL(ptr %function, ptr %arguments, i32 %chunks, i32 %threads) {
entry:
  %pool = load atomic ptr, ptr @parallel acquire, align 8
  %none = icmp eq ptr %pool, null
  br i1 %none, label %serial, label %shared
shared:
  tail call void %pool(ptr %function, ptr %arguments, i32 %chunks, i32 %threads)
  ret void
serial:
  %i = phi i32 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i32 %i, %chunks
  br i1 %more, label %body, label %out
body:
  call void %function(ptr %arguments, i32 %i, i32 %chunks)
  %next = add i32 %i, 1
  br label %serial
out:
  ret void
}
"""

_CALL = """
define internal i32 @call.NUMBER(ptr %tensors, i64 %count) {
  %last = getelementptr ptr, ptr %tensors, i64 %count
  %record = load ptr, ptr %last
  %word = getelementptr i64, ptr %record, i64 -2
  %regions = load ptr, ptr %word
  %region = getelementptr %region, ptr %regions, i64 NUMBER
  %driver = load ptr, ptr %region
  %code = tail call i32 %driver(ptr %region, ptr %tensors, i64 %count)
  ret i32 %code
}
"""

_POLL = """
; Signals are the caller's business.
define VISIBLE i1 @mirlo_poll() {
  ret i1 false
}
"""


class _Constants:
    """Private constants, each once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[str, str] = {}

    def add(self, content: str) -> str:
        """Return the name of a constant with this content: its type and value."""
        if content not in self._known:
            self._known[content] = f"@c{len(self._known)}"
            self.lines.append(f"{self._known[content]} = private constant {content}, align 8")
        return self._known[content]

    def text(self, text: str) -> str:
        """Return a string of C."""
        # Every byte is written as two digits: nothing in a name means anything here.
        raw = text.encode("utf-8", "surrogatepass").replace(b"\0", b"?") + b"\0"
        digits = "".join(f"\\{byte:02X}" for byte in raw)
        return self.add(f'[{len(raw)} x i8] c"{digits}"')

    def texts(self, texts: Iterable[str]) -> str:
        """Return an array of strings of C; null if there are none."""
        return self.array("ptr", [f"ptr {self.text(text)}" for text in texts])

    def array(self, kind: str, members: Sequence[str]) -> str:
        """Return an array; null if it is empty."""
        return self.add(f"[{len(members)} x {kind}] [{', '.join(members)}]") if members else "null"


def _values(constants: _Constants, description: Description) -> tuple[list[str], bool]:
    """Return the descriptions of inputs and outputs, and whether the shape of an output depends on data."""
    artifact = description.artifact
    late = set(artifact.late)
    is_late = [bool(late & set(map(str, spec.shape))) for spec in artifact.outputs]
    values = [_value(constants, description, spec, False, 0) for spec in artifact.inputs]
    values += [
        _value(constants, description, spec, each, description.in_place(spec))
        for spec, each in zip(artifact.outputs, is_late, strict=True)
    ]
    return values, any(is_late)


def _callees(constants: _Constants, description: Description) -> list[str]:
    """Return the descriptions of the functions that the model calls."""
    has_weak = system_of(str(description.artifact.metadata["triple"])) not in WITHOUT_WEAK
    rows = []
    for number, function in enumerate(description.functions):
        driver = f"@{function.symbol}" if function.driver and (function.is_defined or has_weak) else "null"
        call = f"@call.{number}" if description.passes_record else "null"
        fields = [
            f"ptr {constants.text(function.name)}",
            f"ptr {constants.text(function.driver) if function.driver else 'null'}", f"ptr {driver}", f"ptr {call}",
            f"ptr {constants.array('i64', [f'i64 {offset}' for offset in function.offsets])}",
            f"i64 {function.program}", f"i64 {function.program_bytes}",
            f"i32 {len(function.offsets)}", "i32 0",
        ]  # fmt: skip
        rows.append(f"%callee {{ {', '.join(fields)} }}")
    return rows


def descriptor(description: Description, entry: str, is_hidden: bool) -> str:
    """Return the LLVM IR of the descriptor; `is_hidden` is for units in object files of their own."""
    artifact, sizes = description.artifact, description.sizes
    result = _Constants()
    visible = "hidden" if is_hidden else ""  # linked units become internal together
    values, has_late_output = _values(result, description)
    allocates = bool(artifact.metadata.get("allocates")) or has_late_output
    packed = artifact.packed
    first, second = (int.from_bytes(description.digest[i : i + 8], "little") for i in (0, 8))
    is_threaded = artifact.threads > 1
    fields = [
        f"i32 {ABI}", f"i32 {int(sizes.is_dynamic)}",
        *(f"ptr {result.text(text)}" for text in (
            description.name, str(artifact.metadata["triple"]), " ".join(artifact.metadata["features"]),
        )),
        f"ptr @{entry}", f"ptr {'@set_parallel' if is_threaded else 'null'}",
        *(f"i32 {number}" for number in (
            len(artifact.inputs), len(artifact.outputs), len(artifact.params), len(packed), artifact.threads,
            int(allocates), sizes.words, sizes.arena_word, len(sizes.checks), 0,
        )),
        f"ptr {result.array('%value', values)}", f"ptr {result.texts(sizes.checks)}",
        f"ptr {result.array('%callee', _callees(result, description))}",
        f"ptr {result.array('i64', [f'i64 {offset}' for offset in description.offsets])}",
        f"ptr {f'@{description.weights_symbol}' if description.embedded else 'null'}",
        f"i64 {description.weights_bytes}", f"[2 x i64] [i64 {first}, i64 {second}]", f"i64 {artifact.arena_bytes}",
    ]  # fmt: skip
    lines = [_TYPES, *result.lines]
    if description.embedded:
        lines.append(f"@{description.weights_symbol} = external hidden constant i8, align 64")
    lines.append(f"declare {'hidden ' if is_hidden else ''}void @{entry}(ptr, ptr, ptr, ptr)")
    lines.append(f"@{description.symbol} = constant %code {{ {', '.join(fields)} }}, align 16")
    lines += _calls(description)
    if is_threaded:
        lines.append(_PARALLEL.replace("VISIBLE", visible).replace("PARALLEL", PARALLEL))
    if artifact.metadata.get("polls"):
        lines.append(_POLL.replace("VISIBLE", visible))
    return "\n".join(lines) + "\n"


def _calls(description: Description) -> list[str]:
    """Return the declarations of drivers, and for each function that the model calls a function that calls its driver.

    The call record follows the tensors of a call, and the address of the model's regions is two words before it.
    """
    lines = []
    has_weak = system_of(str(description.artifact.metadata["triple"])) not in WITHOUT_WEAK
    declared: dict[str, bool] = {}
    for function in description.functions:
        if function.driver and (function.is_defined or has_weak):
            declared[function.symbol] = declared.get(function.symbol, False) or function.is_defined
    for symbol, is_defined in declared.items():
        lines.append(f"declare {'hidden' if is_defined else 'extern_weak'} i32 @{symbol}(ptr, ptr, i64)")
    for number in range(len(description.functions) if description.passes_record else 0):
        lines.append(_CALL.replace("NUMBER", str(number)))
    return lines


def _value(constants: _Constants, description: Description, spec: TensorSpec, is_late: bool, in_place: int) -> str:
    kind = ELEMENT_TYPES[spec.dtype]
    dims = []
    for dim in spec.shape:
        word = description.sizes.word(dim) if isinstance(dim, str) else None
        assert isinstance(dim, int) or word is not None  # `Executable` checks it too
        dims.append(f"i64 {dim if word is None else -word}")
    dtype = f"%dtype {{ i8 {type_code(spec.dtype)}, i8 {kind.dlpack_bits}, i16 1 }}"
    return (
        f"%value {{ ptr {constants.text(spec.name)}, {dtype}, i32 {len(dims)}, ptr {constants.array('i64', dims)}, "
        f"i32 {int(is_late)}, i32 {in_place} }}"
    )
