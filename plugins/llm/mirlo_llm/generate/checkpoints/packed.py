"""Quantized matrices in safetensors, as GPTQ, AWQ, MLX, compressed-tensors, DeepSeek and gpt-oss store them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.quantize import pack_fields, unpack_fields
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights, pack_codes, without_zero_scales
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import JsonObject, is_count

if TYPE_CHECKING:
    from mirlo.extend.runtime import Json

CONFIG = "quantization_config"
"""The key of `config.json` for the storage of quantized matrices."""
MLX_CONFIG = "quantization"
"""The same key in folders of MLX, which may also have `quantization_config`."""
WORD = 32
"""Bits of the integers that hold codes."""
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""AWQ's order of the eight columns in a word, lowest bits first."""
MIN_BLOCK = 16
"""Fewest elements with one scale in kernels; larger groups are divided into blocks of a power of two."""
FLOAT8 = "float8_e4m3fn"
"""The type of floats of 8 bits, as numpy calls it."""
MXFP4, MXFP4_BLOCK = "mxfp4", 32
"""The method of gpt-oss: floats of 4 bits, with a power of two as the scale of this number of elements."""
EXPONENT_BIAS, NO_NUMBER = 127, 255
"""What is subtracted from the exponents of scales of 8 bits, and the exponent that stands for no number."""
_GROUPS_MOST = 1 << 20
_SCALES = ("float16", "bfloat16", "float32")
_SWITCHED = re.compile(r"(.+)\.switch_mlp\.(\w+)\.(weight|scales|biases|bias)")
"""Tensor names of all experts of a layer in folders of MLX."""
_STACKED = re.compile(r"(.+)_(blocks|scales)")
"""Tensor names of all experts of a layer in folders of gpt-oss."""
_EXPERT = re.compile(r"(.+)\.experts\.\d+\.(\w+)")
_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
"""Mixtral's names of an expert's matrices."""
MAX_EXPERTS = 4096
"""A bound on dims, since tensors without elements may declare any."""
Tensors = dict[str, np.ndarray | BlockWeights]


def read_weights(path: Path, config: JsonObject) -> Tensors:
    """Read the tensors of a file, or of the files of an index; quantized matrices become `BlockWeights`."""
    tensors = read_checkpoint(path)
    key = next((each for each in (MLX_CONFIG, CONFIG) if config.has(each)), "")
    if not key:
        return dict(tensors)
    stored = config.object(key)
    if key == MLX_CONFIG:
        suffixes, read = _mlx(stored)
        tensors = dict(_separate_experts(tensors, _SWITCHED, 2, _name_in_switch))
    else:
        suffixes, read = _form(stored)
        if stored.text("quant_method") == MXFP4:
            tensors = dict(_separate_experts(tensors, _STACKED, 3, _name_in_stack))
    result: Tensors = {name: each for name, each in tensors.items()}
    for name in tensors:
        suffix = next((each for each in suffixes if name.endswith(each)), "")
        if suffix:
            matrix = _StoredMatrix(path, name.removesuffix(suffix), result, key)
            result[f"{matrix.name}.weight"] = read(matrix)
    return result


class _StoredMatrix:
    """The stored tensors of one matrix."""

    def __init__(self, path: Path, name: str, tensors: Tensors, key: str) -> None:
        """Store the tensors; `key` is the key of `config.json` that selects the storage, for errors."""
        self.path, self.name, self._tensors, self._key = path, name, tensors, key

    def has(self, part: str) -> bool:
        return f"{self.name}.{part}" in self._tensors

    def discard(self, part: str) -> None:
        """Mark a tensor as used, if there is one."""
        self._tensors.pop(f"{self.name}.{part}", None)

    def take(self, part: str, kinds: tuple[str, ...], *shape: int | None) -> np.ndarray:
        """Return a tensor with one of some numpy types and these dims; None stands for any size."""
        name = f"{self.name}.{part}"
        tensor = self._tensors.pop(name, None)
        expected = f"{' or '.join(kinds)}[{', '.join('any' if dim is None else str(dim) for dim in shape)}]"
        if not isinstance(tensor, np.ndarray):
            raise ModelFolderError(
                f"{self.path}: there is no tensor '{name}' ({expected}), which '{self._key}' requires"
            )
        fits = len(shape) == tensor.ndim and all(
            each in (None, dim) for each, dim in zip(shape, tensor.shape, strict=True)
        )
        if not fits or tensor.dtype.name not in kinds:
            actual = f"{tensor.dtype.name}{list(tensor.shape)}"
            raise ModelFolderError(f"{self.path}: tensor '{name}': expected {expected}, found {actual}")
        return tensor

    def scales(self, part: str, *shape: int) -> np.ndarray:
        """Return scales, of f16 or f32; they must be finite."""
        scales = self.take(part, _SCALES, *shape)
        if not np.isfinite(scales.astype(np.float32)).all():
            raise ModelFolderError(f"{self.path}: tensor '{self.name}.{part}': a scale is not a finite number")
        return scales.astype(np.float32) if scales.dtype.name == "bfloat16" else scales

    def tile_scales(self, part: str, rows: int, columns: int) -> np.ndarray:
        """Return f32 scales [rows, columns]; a single column may be stored without its dim."""
        name = f"{self.name}.{part}"
        tensor = self._tensors.get(name)
        if columns == 1 and isinstance(tensor, np.ndarray) and tensor.ndim < 2:
            self._tensors[name] = tensor.reshape((*tensor.shape, 1, 1)[:2])
        return self.scales(part, rows, columns).astype(np.float32)

    def groups(self, depth: int, group: int) -> int:
        """Return the number of groups in a row."""
        if depth == 0 or depth % group:
            what = f"rows of {depth} elements do not divide into groups of {group}, as '{self._key}' says"
            raise ModelFolderError(f"{self.path}: tensor '{self.name}': {what}")
        return depth // group


Reader = Callable[[_StoredMatrix], BlockWeights]
Form = tuple[tuple[str, ...], Reader]
"""Suffixes of tensor names that mark a quantized matrix, and the function that reads it."""


def _block_of(group: int) -> int:
    """Return the block size for a group: a power of two that divides it, unless that is too small."""
    power = group & -group
    return power if power >= MIN_BLOCK else group


@dataclass(frozen=True)
class _GroupedCodes:
    """The codes of a matrix, with a scale and a zero point per group."""

    codes: np.ndarray
    """u8[rows, bytes], packed."""
    scales: np.ndarray
    """[rows, groups]."""
    zeros: np.ndarray
    """u8[rows, groups]."""
    bits: int
    depth: int
    order: np.ndarray | None = None

    def blocks(self) -> BlockWeights:
        """Return the matrix in blocks of a power of two; other group sizes are divided into such blocks."""
        rows, groups = self.scales.shape
        group = self.depth // groups
        block = _block_of(group)
        scales, zeros = (np.ascontiguousarray(np.repeat(x, group // block, 1)) for x in (self.scales, self.zeros))
        first = int(zeros.flat[0]) if zeros.size else 0
        same = bool((zeros == first).all())
        return BlockWeights(
            (rows, self.depth), f"u{self.bits}", self.codes, scales, block, first if same else 0,
            zeros=None if same else zeros, order=self.order,
        )  # fmt: skip


def _bits(stored: JsonObject, key: str, known: tuple[int, ...]) -> int:
    bits = stored.count(key, least=1, most=WORD)
    if bits not in known:
        raise stored.refuse(key, f"expected {' or '.join(map(str, known))}, found {bits}")
    return bits


def _group_size(stored: JsonObject, key: str) -> int:
    """Return the number of elements with one scale; 0 for a whole row."""
    if stored.value(key) in (None, -1):
        return 0
    return stored.count(key, least=1, most=_GROUPS_MOST)


def _gptq(stored: JsonObject) -> Form:
    """Return the reader of GPTQ: words of codes of consecutive rows of K, qweight i32[K * bits / 32, columns]."""
    bits, group = _bits(stored, "bits", (2, 3, 4, 8)), _group_size(stored, "group_size")
    form = stored.text("checkpoint_format", "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise stored.refuse("checkpoint_format", f"expected gptq or gptq_v2, found {form!a:.40}")
    offset, kept = (1 if form == "gptq" else 0), 4 if bits == 3 else bits

    def read(matrix: _StoredMatrix) -> BlockWeights:
        words = matrix.take("qweight", ("int32",), None, None)
        depth, columns = len(words) * WORD // bits, words.shape[1]
        groups = matrix.groups(depth, group or depth)
        scales = matrix.scales("scales", groups, columns).T
        zeros = _fields(matrix.take("qzeros", ("int32",), groups, -(-columns * bits // WORD)), bits)[:, :columns].T
        order = _order(matrix, "g_idx", depth, groups)
        codes = _bytes_of(words.T)
        if bits == 3 or order is not None:
            fields = _fields(codes, bits)
            codes = pack_codes(np.ascontiguousarray(fields if order is None else fields[:, order]), f"u{kept}")
        # Before version 2 files hold what is one below the code of 0.
        zeros = zeros + np.uint8(offset) & np.uint8((1 << bits) - 1)
        return _GroupedCodes(codes, scales, zeros, kept, depth, order).blocks()

    return (".qweight",), read


def gptq_keys(bits: int, group: int, symmetric: bool, method: str) -> dict[str, Json]:
    """Return the `quantization_config` of matrices stored by `gptq_tensors`."""
    return {
        "quant_method": "gptq", "checkpoint_format": "gptq", "bits": bits, "group_size": group, "desc_act": False,
        "sym": symmetric, "lm_head": False, "meta": {"quantizer": ["mirlo"], "method": method},
    }  # fmt: skip


def gptq_tensors(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bits: int) -> dict[str, np.ndarray]:
    """Return the GPTQ tensors of a matrix: codes [columns, K], scales and zero points from 1, [columns, groups]."""
    (columns, depth), groups = codes.shape, scales.shape[1]
    words = np.ascontiguousarray(pack_fields(codes, bits)).view("<i4")
    padded = np.zeros((groups, -(-columns * bits // WORD) * WORD // bits), np.uint8)
    padded[:, :columns] = zeros.T - 1
    return {
        "qweight": np.ascontiguousarray(words.T), "qzeros": pack_fields(padded, bits).view("<i4"),
        "scales": np.ascontiguousarray(scales.T), "g_idx": np.arange(depth, dtype=np.int32) // (depth // groups),
    }  # fmt: skip


def _order(matrix: _StoredMatrix, part: str, depth: int, groups: int) -> np.ndarray | None:
    """Return the rows of K sorted by group; None if they are already sorted."""
    if not matrix.has(part):
        return None
    index = matrix.take(part, ("int32", "int64"), depth)
    order = np.argsort(index, kind="stable")
    if not np.array_equal(index[order], np.arange(depth) // (depth // groups)):
        what = f"expected each of {groups} groups {depth // groups} times"
        raise ModelFolderError(f"{matrix.path}: tensor '{matrix.name}.{part}': {what}")
    return None if np.array_equal(order, np.arange(depth)) else order.astype(np.int64)


def _awq(stored: JsonObject) -> Form:
    """Return the reader of AWQ's two layouts."""
    bits = _bits(stored, "bits" if stored.has("bits") else "w_bit", (4,))
    group = _group_size(stored, "group_size" if stored.has("group_size") else "q_group_size")
    version = stored.text("version", "gemm").lower()
    if version not in ("gemm", "gemv"):
        raise stored.refuse("version", f"expected gemm or gemv, found {version!a:.40}")
    has_zeros = stored.flag("zero_point", True)
    return _awq_rows(bits, group, has_zeros) if version == "gemv" else _awq_columns(bits, group, has_zeros)


def _awq_rows(bits: int, group: int, has_zeros: bool) -> Form:
    """Return the reader of words of codes of a row: qweight i32[columns, K / 8]; the rest of a row is unused."""

    def read(matrix: _StoredMatrix) -> BlockWeights:
        words = matrix.take("qweight", ("int32",), None, None)
        columns, depth = len(words), words.shape[1] * WORD // bits
        groups = matrix.groups(depth, group or depth)
        packed = matrix.take("qzeros", ("int32",), columns, None)
        wide = packed.shape[1] * WORD // bits
        if wide < groups:
            what = f"expected {groups} codes of 0 of each row, found {wide}"
            raise ModelFolderError(f"{matrix.path}: tensor '{matrix.name}.qzeros': {what}")
        scales = np.ascontiguousarray(matrix.scales("scales", columns, wide)[:, :groups])
        zeros = np.full((columns, groups), 1 << (bits - 1), np.uint8)
        if has_zeros:
            zeros = np.ascontiguousarray(_fields(packed, bits)[:, :groups])
        return _GroupedCodes(_bytes_of(words), scales, zeros, bits, depth).blocks()

    return (".qweight",), read


def _awq_columns(bits: int, group: int, has_zeros: bool) -> Form:
    """Return the reader of words of codes of eight columns: qweight i32[K, columns / 8]."""

    def read(matrix: _StoredMatrix) -> BlockWeights:
        words = matrix.take("qweight", ("int32",), None, None)
        depth, columns = len(words), words.shape[1] * WORD // bits
        groups = matrix.groups(depth, group or depth)
        scales = matrix.scales("scales", groups, columns).T
        if has_zeros:
            zeros = _in_columns(matrix.take("qzeros", ("int32",), groups, words.shape[1]), bits).T
        else:
            zeros = np.full((columns, groups), 1 << (bits - 1), np.uint8)
        codes = pack_codes(np.ascontiguousarray(_in_columns(words, bits).T), f"u{bits}")
        return _GroupedCodes(codes, scales, zeros, bits, depth).blocks()

    return (".qweight",), read


def _in_columns(words: np.ndarray, bits: int) -> np.ndarray:
    """Unpack words of AWQ to codes in column order, one per byte."""
    fields = _fields(words, bits).reshape(*words.shape, len(AWQ_ORDER))
    result = np.empty_like(fields)
    result[..., list(AWQ_ORDER)] = fields
    return result.reshape(len(words), -1)


def _compressed(stored: JsonObject) -> Form:
    """Return the reader of compressed-tensors, integers or floats."""
    form = stored.text("format")
    if form not in ("pack-quantized", "float-quantized"):
        raise stored.refuse("format", f"expected pack-quantized or float-quantized, found {form!a:.40}")
    groups_of = stored.object("config_groups")
    schemes = [groups_of.object(name).object("weights") for name in groups_of]
    if len(schemes) != 1:
        raise groups_of.refuse("", f"expected one group of layers, found {len(schemes)}")
    return _packed_integers(schemes[0]) if form == "pack-quantized" else _scheme_floats(schemes[0])


def _packed_integers(scheme: JsonObject) -> Form:
    """Return the reader of words of codes of a row: weight_packed i32[columns, K * bits / 32]."""
    kind, strategy = scheme.text("type", "int"), scheme.text("strategy", "group")
    if kind != "int" or strategy not in ("group", "channel"):
        raise scheme.refuse("strategy", f"expected integers by group or channel, found {kind!a:.20}, {strategy!a:.20}")
    bits = _bits(scheme, "num_bits", (4, 8))
    group = _group_size(scheme, "group_size") if strategy == "group" else 0

    def read(matrix: _StoredMatrix) -> BlockWeights:
        columns, depth = map(int, matrix.take("weight_shape", ("int64", "int32"), 2))
        words = matrix.take("weight_packed", ("int32",), columns, -(-depth * bits // WORD))
        groups = matrix.groups(depth, group or depth)
        scales = matrix.scales("weight_scale", columns, groups)
        zeros = np.full((columns, groups), 1 << (bits - 1), np.uint8)
        if not scheme.flag("symmetric", True):
            packed = matrix.take("weight_zero_point", ("int32",), -(-columns * bits // WORD), groups)
            zeros = np.ascontiguousarray(_fields(packed.T, bits)[:, :columns].T)
        order = _order(matrix, "weight_g_idx", depth, groups)
        codes = _bytes_of(words)[:, : depth * bits // 8]
        if order is not None:
            codes = pack_codes(np.ascontiguousarray(unpack_fields(codes, bits)[:, order]), f"u{bits}")
        return _GroupedCodes(np.ascontiguousarray(codes), scales, zeros, bits, depth, order).blocks()

    return (".weight_packed",), read


def _scheme_floats(scheme: JsonObject) -> Form:
    """Return the reader of 8-bit floats with a scale per tensor, row or tile."""
    kind, strategy, bits = scheme.text("type", "float"), scheme.text("strategy", "tensor"), scheme.count("num_bits", 8)
    tiles = {"tensor": (0, 0), "channel": (1, 0)}
    if strategy == "block":
        tiles[strategy] = _tile(scheme, "block_structure")
    if kind != "float" or bits != 8 or strategy not in tiles or not scheme.flag("symmetric", True):
        actual = f"{kind!a:.20}, {bits}, {strategy!a:.20}"
        raise scheme.refuse(
            "strategy", f"expected symmetric float of 8 bits by tensor, channel or block, found {actual}"
        )
    return _floats(*tiles[strategy])


def _fp8(stored: JsonObject) -> Form:
    """Return the reader of 8-bit floats with a scale per tile, as in DeepSeek-V3, or per tensor."""
    kind = stored.text("fmt", "e4m3")
    if kind not in ("e4m3", FLOAT8):
        raise stored.refuse("fmt", f"expected e4m3, found {kind!a:.40}")
    return _floats(*(_tile(stored, "weight_block_size") if stored.has("weight_block_size") else (0, 0)))


def _tile(keys: JsonObject, key: str) -> tuple[int, int]:
    """Return the rows and columns of a tile from a configuration."""
    value = keys.value(key)
    if not isinstance(value, list) or len(value) != 2 or not all(is_count(each, 1, _GROUPS_MOST) for each in value):
        raise keys.fail(key, "the rows and the columns of a block", value)
    rows, columns = (each for each in value if isinstance(each, int))
    return rows, columns


def _floats(tall: int, wide: int) -> Form:
    """Return the reader of f8e4m3fn with a scale per tile of this size; 0 stands for the whole dim.

    Activations stay f32, so their scales are not used.
    """
    ends = ("weight_scale_inv", "weight_scale")

    def read(matrix: _StoredMatrix) -> BlockWeights:
        codes = matrix.take("weight", (FLOAT8,), None, None)
        rows, depth = codes.shape
        matrix.groups(depth, 1)
        matrix.discard("input_scale")
        height, width = tall or max(rows, 1), wide or depth
        part = next(each for each in ends if matrix.has(each))
        scales = matrix.tile_scales(part, -(-rows // height), -(-depth // width))
        block = _block_of(math.gcd(width, depth))
        of_blocks = scales[:, np.arange(0, depth, block) // width]
        return BlockWeights((rows, depth), "f8e4m3fn", codes, of_blocks[np.arange(rows) // height], block)

    return tuple(f".{end}" for end in ends), read


def _mxfp4(stored: JsonObject) -> Form:
    """Return the reader of MXFP4: blocks u8[rows, groups, 16], two codes in a byte, and exponents u8[rows, groups]."""

    def read(matrix: _StoredMatrix) -> BlockWeights:
        blocks = matrix.take("blocks", ("uint8",), None, None, MXFP4_BLOCK // 2)
        rows, groups = blocks.shape[:2]
        depth = MXFP4_BLOCK * matrix.groups(MXFP4_BLOCK * groups, MXFP4_BLOCK)
        exponents = matrix.take("scales", ("uint8",), rows, groups)
        if (exponents == NO_NUMBER).any():
            raise ModelFolderError(f"{matrix.path}: tensor '{matrix.name}.scales': a scale is not a finite number")
        scales = np.ldexp(np.float32(1), exponents.astype(np.int32) - EXPONENT_BIAS)
        return BlockWeights((rows, depth), "f4e2m1", blocks.reshape(rows, -1), scales, MXFP4_BLOCK)

    return (".blocks",), read


def _mlx(stored: JsonObject) -> Form:
    """Return the reader of MLX: weight u32[columns, K * bits / 32], a continuous stream of bits.

    Each group has a scale and a bias, the value of code 0. Bits and group size may differ by layer.
    """
    common = _affine_numbers(stored, stored)
    own = {
        name: _affine_numbers(stored.object(name), stored) for name in stored if isinstance(stored.value(name), dict)
    }

    def read(matrix: _StoredMatrix) -> BlockWeights:
        bits, group = own.get(_switch_of(matrix.name), common)
        words = matrix.take("weight", ("uint32",), None, None)
        rows, depth = len(words), words.shape[1] * WORD // bits
        if words.shape[1] * WORD % bits:
            what = f"{words.shape[1]} words of a row hold no whole codes of {bits} bits"
            raise ModelFolderError(f"{matrix.path}: tensor '{matrix.name}.weight': {what}")
        groups = matrix.groups(depth, group)
        scales, offsets = (matrix.scales(part, rows, groups).astype(np.float32) for part in ("scales", "biases"))
        return _affine_blocks(_bytes_of(words), scales, offsets, bits, depth)

    return (".scales",), read


def _affine_numbers(keys: JsonObject, common: JsonObject) -> tuple[int, int]:
    """Return the bits of codes and the group size."""
    mode = keys.text("mode", common.text("mode", "affine"))
    if mode != "affine":
        raise keys.refuse("mode", f"expected affine, found {mode!a:.40}")
    bits = _bits(keys, "bits", (2, 3, 4, 5, 6, 8))
    return bits, keys.count("group_size", least=1, most=_GROUPS_MOST)


def _affine_blocks(packed: np.ndarray, scales: np.ndarray, offsets: np.ndarray, bits: int, depth: int) -> BlockWeights:
    """Return an affine-quantized matrix in types that kernels support."""
    rows, groups = scales.shape
    block = _block_of(depth // groups)
    scales, offsets = (np.repeat(x, depth // groups // block, 1) for x in (scales, offsets))
    kind = {2: "u2", 3: "u4", 4: "u4", 8: "u8"}.get(bits, "i8")
    if bits in (3, 5, 6) or not scales.all():
        codes, scales = without_zero_scales(_fields(packed, bits)[:, :depth], scales, block)
        packed = pack_codes(codes, kind)
    codes = packed.view(np.int8) if kind == "i8" else packed
    return BlockWeights((rows, depth), kind, codes, scales, block, offsets=offsets)


def _separate_experts(
    tensors: Mapping[str, np.ndarray],
    pattern: re.Pattern[str],
    least_rank: int,
    name: Callable[[re.Match[str], int], str],
) -> Iterator[tuple[str, np.ndarray]]:
    """Split tensors of all experts of a layer, whose names have a pattern, into one per expert with its own name."""
    for each, tensor in tensors.items():
        match = pattern.fullmatch(each)
        if match is None or tensor.ndim < least_rank or len(tensor) > MAX_EXPERTS:
            yield each, tensor
            continue
        for i, matrix in enumerate(tensor):
            yield name(match, i), matrix


def _name_in_stack(match: re.Match[str], expert: int) -> str:
    """Return the name of the tensor of an expert of gpt-oss."""
    return f"{match[1]}.{expert}.{match[2]}"


def _name_in_switch(match: re.Match[str], expert: int) -> str:
    """Return the name of the tensor of an expert of MLX, as the model's own code has it."""
    before, part, rest = match.groups()
    part = _MIXTRAL.get(part, part) if before.endswith("block_sparse_moe") else part
    return f"{before}.experts.{expert}.{part}.{rest}"


def _switch_of(name: str) -> str:
    """Return the file's name of the stacked matrix for the name of one expert's matrix; other names unchanged."""
    match = _EXPERT.fullmatch(name)
    if match is None:
        return name
    parts = {own: part for part, own in _MIXTRAL.items()}
    return f"{match[1]}.switch_mlp.{parts.get(match[2], match[2])}"


def _bytes_of(words: np.ndarray) -> np.ndarray:
    """Return the bytes of words, the lowest first."""
    return np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8)


def _fields(packed: np.ndarray, bits: int) -> np.ndarray:
    """Unpack rows of words or bytes to codes, one per byte; codes of 3, 5 and 6 bits may span two bytes."""
    packed = packed if packed.dtype == np.uint8 else _bytes_of(packed)
    if WORD % bits == 0:
        return unpack_fields(packed, bits)
    result = np.empty((len(packed), packed.shape[1] * 8 // bits), np.uint8)
    for i, row in enumerate(packed):  # row by row: each bit becomes a byte
        fields = np.unpackbits(row, bitorder="little")[: result.shape[1] * bits].reshape(-1, bits)
        result[i] = fields @ (1 << np.arange(bits, dtype=np.uint8))
    return result


def _form(stored: JsonObject) -> Form:
    """Return the reader for the method of `quantization_config`."""
    method = stored.text("quant_method")
    if method not in FORMS:
        raise stored.refuse("quant_method", f"expected {', '.join(FORMS)}, found {method!a:.40}")
    return FORMS[method](stored)


FORMS: Mapping[str, Callable[[JsonObject], Form]] = {
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    MXFP4: _mxfp4,
}
"""The reader of quantized matrices, by `quant_method`."""
