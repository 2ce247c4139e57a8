"""Random bits of the generators threefry and philox, with the bits that XLA computes on CPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from mirlo.extend.frontend import DTYPES, DType, Tensor, TensorType, UnsupportedOperation, concat, stack
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.registry import converter

U32, U64 = DTYPES["u32"], DTYPES["u64"]
THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
THREEFRY_PARITY = 0x1BD11BDA
PHILOX_FACTORS = (0xD2511F53, 0xCD9E8D57)
PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10
Words = list[Tensor]
"""Tensors of u32, least significant word first."""


@converter("rng_bit_generator")
def rng_bit_generator(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `rng_bit_generator`: the state is the key, then the counter; DEFAULT is philox, as in XLA on CPUs."""
    kind, declared, state = op.word("rng_algorithm"), op.declared(1), op.type(0)
    sizes = (2,) if kind == "THREE_FRY" else (2, 3)
    if state.dtype is not U64 or state.rank != 1 or state.shape[0] not in sizes:
        raise UnsupportedOperation(f"has a state of {state}: {kind} needs u64[{' or '.join(map(str, sizes))}]")
    if not declared.is_static or declared.dtype.bits not in (8, 16, 32, 64):
        raise UnsupportedOperation(f"makes {declared}: expected a static shape and 8 to 64 bits")
    bits, count = (_threefry if kind == "THREE_FRY" else _philox)(op, declared)
    return [_advanced(op, count), _as_declared(op, bits, declared)]


def _state(op: StablehloOperation, index: int) -> Tensor:
    return op.operands[0][index]


def _as_declared(op: StablehloOperation, drawn: Tensor, declared: TensorType) -> Tensor:
    """Return bits in the element type of the result; narrow types take the lowest of 32 bits."""
    bits, dtype = declared.dtype.bits, declared.dtype
    if drawn.dtype.bits != bits:
        drawn = drawn.cast(f"u{bits}")
    return drawn if drawn.dtype is dtype else drawn.bitcast(dtype)


def _advanced(op: StablehloOperation, count: int) -> Tensor:
    """Return the state after `count` steps of the counter."""
    parts = [_state(op, 0), *_counter(op, op.constant(count, U64))]
    size = op.type(0).shape[0]
    listed = [part.reshape((1,)) for part in parts[: size if isinstance(size, int) else None]]
    return concat(listed, 0)


def _counter(op: StablehloOperation, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the 128-bit counter after these steps: the low and the high half."""
    start = _state(op, 1)
    low = start + steps
    high = _state(op, 2 if op.type(0).shape[0] == 3 else 0)  # XLA takes the key where the state has no more
    carry = (low < start).cast("u64")
    return low, high + carry


def _halves(op: StablehloOperation, x: Tensor) -> Words:
    """Return the low and the high 32 bits."""
    high = x >> 32
    return [part.cast("u32") for part in (x, high)]


def _whole(op: StablehloOperation, low: Tensor, high: Tensor) -> Tensor:
    wide = [part.cast("u64") for part in (low, high)]
    return wide[0] | wide[1] << 32


def _arithmetic(op: StablehloOperation, dtype: DType) -> Callable[[str, Tensor, Tensor | int], Tensor]:
    return lambda name, x, y: x.elementwise(name, op.constant(y, dtype) if isinstance(y, int) else y)


def _threefry(op: StablehloOperation, declared: TensorType) -> tuple[Tensor, int]:
    """Return bits and the steps of the counter: each gives two 32-bit words, which are apart along one dim."""
    shape = declared.static_shape
    key = _halves(op, _state(op, 0))
    if declared.dtype.bits == 64:
        low, high = _threefry_words(op, _halves(op, _counter(op, _numbers(op, shape))[0]), key)
        return _whole(op, low, high), prod(shape)
    axis = _split_axis(shape)
    half = tuple(-(-size // 2) if i == axis else size for i, size in enumerate(shape)) or (1,)
    words = _threefry_words(op, _halves(op, _counter(op, _numbers(op, half))[0]), key)
    if not shape:
        return words[0].reshape(()), 1
    joined = stack(words, axis + 1)
    wide = tuple(2 * half[i] if i == axis else size for i, size in enumerate(shape))
    result = joined.reshape(wide)
    return result.slice(axis, 0, shape[axis]), prod(half)


def _split_axis(shape: tuple[int, ...]) -> int:
    """Return the dim along which the two words are placed: the first even one, or the largest."""
    even = [i for i, size in enumerate(shape) if size % 2 == 0]
    return even[0] if even else shape.index(max(shape)) if shape else 0


def _numbers(op: StablehloOperation, shape: tuple[int, ...]) -> Tensor:
    """Return the row-major index of each element."""
    count = TensorType((prod(shape),), U64)
    return op.positions(count, 0).reshape(shape)


def _threefry_words(op: StablehloOperation, counter: Words, key: Words) -> Words:
    """Return two 32-bit words after the 20 rounds of threefry."""
    do = _arithmetic(op, U32)
    parity = do("bitwise_xor", do("bitwise_xor", key[0], key[1]), THREEFRY_PARITY)
    keys = [*key, parity]
    x, y = (do("add", word, part) for word, part in zip(counter, key, strict=True))
    for group in range(5):
        for distance in THREEFRY_ROTATIONS[group % 2]:
            x = do("add", x, y)
            rotated = do("bitwise_or", do("shift_left", y, distance), do("shift_right", y, 32 - distance))
            y = do("bitwise_xor", x, rotated)
        x = do("add", x, keys[(group + 1) % 3])
        y = do("add", do("add", y, keys[(group + 2) % 3]), group + 1)
    return [x, y]


def _philox(op: StablehloOperation, declared: TensorType) -> tuple[Tensor, int]:
    """Return bits and the steps of the counter: each gives four adjacent 32-bit words."""
    shape = declared.static_shape
    per_step = 2 if declared.dtype.bits == 64 else 4
    count = -(-prod(shape) // per_step)
    low, high = _counter(op, op.positions(TensorType((count,), U64), 0))
    words = _philox_words(op, [*_halves(op, low), *_halves(op, high)], _halves(op, _state(op, 0)))
    if per_step == 2:
        words = [_whole(op, *words[:2]), _whole(op, *words[2:])]
    joined = stack(words, 1).reshape((count * per_step,))
    return joined[: prod(shape)].reshape(shape), count


def _philox_words(op: StablehloOperation, counter: Words, key: Words) -> Words:
    """Return four 32-bit words after the rounds of philox."""
    do = _arithmetic(op, U32)
    a, b, c, d = counter
    for round_ in range(PHILOX_ROUNDS):
        if round_:
            key = [do("add", part, step) for part, step in zip(key, PHILOX_STEPS, strict=True)]
        first, second = (_wide_product(op, x, factor) for x, factor in zip((a, c), PHILOX_FACTORS, strict=True))
        a = do("bitwise_xor", do("bitwise_xor", second[1], b), key[0])
        c = do("bitwise_xor", do("bitwise_xor", first[1], d), key[1])
        b, d = second[0], first[0]
    return [a, b, c, d]


def _wide_product(op: StablehloOperation, x: Tensor, factor: int) -> Words:
    wide = x.cast("u64") * factor
    return _halves(op, wide)
