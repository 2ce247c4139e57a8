"""Calls of a model's function besides kernels: memory of data-dependent sizes, errors, packed functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.passes.memory.names import ALLOCATE, CHECK, GROW, POLL, SLOT, TICK
from mirlo.passes.memory.packed import PACKED, TYPES
from mirlo.runtime.dtypes import ELEMENT_TYPES

_ALLOCATE = f"""/* Memory of the run time, until the call's results are returned; NULL if there is none. */
static int8_t *{ALLOCATE}(int64_t *record, int64_t number, int64_t bytes) {{
  void *(*allocate)(int64_t *, int64_t, int64_t);
  memcpy(&allocate, record + WORD, sizeof allocate);
  return (int8_t *)allocate(record, number, bytes);
}}
"""
_CHECK = f"""/* Whether a size is not from 0 to `most`: the call ends, and the run time says why. */
static bool {CHECK}(int64_t *record, int64_t value, int64_t most, int64_t number) {{
  if (value >= 0 && value <= most) return false;
  record[0] = -1 - number;
  record[1] = value;
  return true;
}}
"""
_SLOT = f"""/* The memory of a slot: its address and its bytes. */
static int8_t *{SLOT}(const int64_t *slot) {{
  return (int8_t *)(intptr_t)slot[0];
}}
"""
_GROW = f"""/* The memory of a slot, replaced by memory of twice the size or more if it has fewer bytes. */
static int8_t *{GROW}(int64_t *record, int64_t *slot, int64_t bytes) {{
  int64_t wanted = bytes < 64 ? 64 : bytes, room = slot[1];
  int8_t *memory;
  if (wanted <= room) return (int8_t *)(intptr_t)slot[0];
  if (room <= INT64_MAX / 2 && wanted < 2 * room) wanted = 2 * room;
  memory = {ALLOCATE}(record, -1, wanted);
  slot[0] = (int64_t)(intptr_t)memory;
  slot[1] = wanted;
  return memory;
}}
"""


_POLL = f"/* Whether the call is to end, because of a signal. */\nextern bool {POLL}(void);\n"
_TICK = f"""/* Records the processor's counter in a profile, if there is one. */
static void {TICK}(int64_t *profile, int64_t slot) {{
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
  if (profile) profile[slot] = (int64_t)__builtin_ia32_rdtsc();
#elif defined(__GNUC__) && defined(__aarch64__)
  if (profile) __asm__ volatile("mrs %0, cntvct_el0" : "=r"(profile[slot]));
#elif defined(__GNUC__) && defined(__riscv) && __riscv_xlen == 64
  if (profile) __asm__ volatile("rdtime %0" : "=r"(profile[slot]));
#else
  if (profile) profile[slot] = 0;
#endif
}}
"""


_TEXTS = {CHECK: _CHECK, SLOT: _SLOT, GROW: _GROW, POLL: _POLL, TICK: _TICK}


def run_time_texts(declared: Collection[str], words: int) -> list[str]:
    """Return the functions that a module declares; the last word of the call record is the allocation function."""
    allocate = _ALLOCATE.replace("WORD", str(words - 1))
    texts = [allocate] if ALLOCATE in declared or GROW in declared else []
    return texts + [text for name, text in _TEXTS.items() if name in declared]


def packed_text(op: ir.Operation, symbol: str, names: Sequence[str]) -> str:
    """Return the function that calls a packed function with tensors on the stack, and returns whether it failed.

    The call record follows the tensors (`PASSES_RECORD`).
    """
    name = ir.StringAttr(ir.ArrayAttr(op.attributes[PACKED])[0]).value
    position = names.index(name)
    types = [TensorType.from_mlir(ir.TypeAttr(entry).value) for entry in ir.ArrayAttr(op.attributes[TYPES])]
    tensors = [tensor for tensor in types if tensor is not None]
    lines: list[str] = []
    dims = 0
    for i, tensor in enumerate(tensors):
        sizes = []
        for dim in tensor.shape:
            sizes.append(str(dim) if isinstance(dim, int) else f"dim{dims}")
            dims += not isinstance(dim, int)
        element = ELEMENT_TYPES[tensor.dtype.name]
        # DLPack packs types narrower than 8 bits; here each element is a byte, and is passed as one.
        code = element.dlpack_code if element.dlpack_code is not None else int(element.name.startswith("u"))
        lines.append(f"  int64_t shape{i}[] = {{{', '.join(sizes) or '0'}}};")
        lines.append(
            f"  DLTensor tensor{i} = {{data{i}, {{kDLCPU, 0}}, {tensor.rank}, {{{code}, {element.dlpack_bits}, 1}}, "
            f"shape{i}, NULL, 0}};"
        )
    listed = ", ".join([*(f"&tensor{i}" for i in range(len(tensors))), "(DLTensor *)record"])
    parameters = ["void **functions", "int64_t *record"]
    parameters += [f"void *data{i}" for i in range(len(tensors))] + [f"int64_t dim{i}" for i in range(dims)]
    body = "\n".join(lines)
    return f"""static bool {symbol}({", ".join(parameters)}) {{
{body}
  DLTensor *tensors[] = {{{listed}}};
  mirlo_packed_fn function;
  int code;
  memcpy(&function, &functions[{position}], sizeof function);
  code = function(tensors, {len(tensors)});
  if (!code) return false;
  record[0] = {position + 1};
  record[1] = code;
  return true;
}}
"""
