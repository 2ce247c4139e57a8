"""The container GGUF: tensors are those of the package `gguf` bit for bit, damaged files are refused with our error."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf_files import decode, write_gguf
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf import container as containers
from mirlo_llm.generate.gguf.blocks import TYPES
from mirlo_llm.generate.gguf.container import files_read_once, is_gguf, parse_gguf, read_gguf
from mirlo_llm.serve import loading
from mirlo_llm.serve.options import ModelSource, ServeOptions

gguf = pytest.importorskip("gguf")

F4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def values_of(weights: BlockWeights) -> np.ndarray:
    """Return what a matrix in blocks stands for, by the definition of its fields."""
    codes = weights.codes
    if weights.bits < 8:
        codes = np.stack([codes >> shift & ((1 << weights.bits) - 1) for shift in range(0, 8, weights.bits)], -1)
    codes = codes.reshape(weights.shape[0], -1, weights.block)
    table = np.array(weights.table, np.float32) if weights.table else np.concatenate([F4, -F4])
    plain = codes.astype(np.int32) - weights.zero
    numbers = table[codes] if weights.table or weights.dtype == "f4e2m1" else plain.astype(np.float32)
    result = numbers * weights.scales.astype(np.float32)[..., None]
    result = result if weights.offsets is None else result + weights.offsets[..., None]
    return np.asarray(result.reshape(weights.shape))


@pytest.mark.parametrize("code", [code for code, kind in TYPES.items() if kind.decode])
def test_blocks(code: int) -> None:
    """Blocks of any bytes have the values that the package `gguf` gives them, bit for bit."""
    kind, random = TYPES[code], np.random.default_rng(code)
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(code)] == (kind.elements, kind.nbytes)
    raw = random.integers(0, 256, (60, 3 * kind.nbytes), dtype=np.uint8)
    raw[:2], raw[2] = 0, 255
    found = kind.read(raw, (60, 3 * kind.elements))
    assert isinstance(found, BlockWeights)
    with np.errstate(all="ignore"):
        both = values_of(found), found.values()
    expected = decode(raw, kind.name)
    for values in both:
        same = (values.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(values) & np.isnan(expected))
        assert (same | ((values == 0) & (expected == 0))).all()


def test_large_tensors_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (7, 2 * 144), dtype=np.uint8)
    whole = TYPES[12].read(raw, (7, 512))
    monkeypatch.setattr("mirlo.generate.gguf.blocks.CHUNK", 1200)
    parts = TYPES[12].read(raw, (7, 512))
    for name in ("codes", "scales", "offsets"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


KEYS = {
    "a.count": 7, "a.flag": True, "a.number": 0.5, "a.text": "größer", "a.texts": ["a", "", "b" * 40, "日本語"],
    "a.numbers": [1, 2, 3], "a.floats": [0.5, -1.5],
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    tensors = {f"t{i}": random.standard_normal((3 + i, 64)).astype(np.float32) for i in range(3)}
    tensors |= {"vector": np.arange(5, dtype=np.float32), "cube": np.ones((2, 3, 32), np.float32)}
    others = {"t0": "Q4_0", "t1": "F16", "t2": "BF16"}
    return write_gguf(tmp_path / "model.gguf", "llama", KEYS, tensors, others=others)


def test_files(path: Path) -> None:
    """Keys and tensors are those that the package `gguf` reads."""
    found, expected = read_gguf(path), gguf.GGUFReader(path)
    assert is_gguf(path) and not is_gguf(path.parent) and not is_gguf(Path(__file__)) and not is_gguf(path / "no")
    for key, value in KEYS.items():
        read = found.metadata.value(key)
        assert (read.tolist() if isinstance(read, np.ndarray) else read) == value
    assert list(found.tensors) == [tensor.name for tensor in expected.tensors]
    for tensor in expected.tensors:
        ours = found.tensors[tensor.name]
        assert ours.shape == tuple(int(dim) for dim in tensor.shape[::-1]) and ours.kind.name == tensor.tensor_type.name
        np.testing.assert_array_equal(ours.data.reshape(-1), tensor.data.view(np.uint8).reshape(-1))


def test_a_file_is_read_once_where_that_is_asked_for(path: Path) -> None:
    with files_read_once():
        first = read_gguf(path)
        assert read_gguf(path) is first
        path.touch()
        assert read_gguf(path) is not first
    assert read_gguf(path) is not read_gguf(path)


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_a_server_reads_a_file_once(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What kind of model it has, and its configuration, are of one reading."""
    write_gguf(path, kind, {}, {"t": np.ones((3, 64), np.float32)})
    parsed: list[Path] = []
    monkeypatch.setattr(
        containers, "parse_gguf", lambda path, content: parsed.append(path) or parse_gguf(path, content)
    )
    for name in ("load_language_model", "load_embedding"):
        monkeypatch.setattr(loading, name, lambda path, **_: read_gguf(path))
    for name in ("LanguageBackend", "EmbeddingBackend"):
        monkeypatch.setattr(loading, name, lambda name, model, *_, **__: model)
    loader = loading.Loading(ServeOptions(), None, None, {})  # type: ignore[arg-type]
    assert loader.load(ModelSource("model", path)) is not None  # type: ignore[comparison-overlap]
    assert parsed == [path]


def refusal(path: Path, content: bytes) -> str:
    with pytest.raises(ModelFolderError) as caught:
        parse_gguf(path, np.frombuffer(content, np.uint8))
    assert str(path) in str(caught.value)
    return str(caught.value)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def container(keys: bytes = b"", key_count: int = 0, tensors: bytes = b"", count: int = 0, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, count, key_count) + keys + tensors
    return head + bytes(-len(head) % 32) + bytes(4096)


def entry(name: str = "t", dims: tuple[int, ...] = (32, 2), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


ARRAY = struct.Struct("<IQ")
REFUSED: dict[str, tuple[bytes, str]] = {
    "no signature": (b"GGML" + bytes(60), "is no GGUF file"),
    "an empty file": (b"", "the signature takes 4 bytes at 0: the file ends"),
    "another version": (container(version=1), "version 1 of GGUF is not read"),
    "big-endian": (container(version=3 << 24), "(of a big-endian machine) of GGUF is not read"),
    "keys that are missing": (container(key_count=1 << 60), "key '' is there twice"),
    "tensors that are missing": (container(count=1 << 60), "expected 1 to 4 dims, found 0"),
    "a key twice": (container(key("k", 0, b"1") * 2, 2), "key 'k' is there twice"),
    "an unknown type": (container(key("k", 13, b"1"), 1), "key 'k': type 13 is unknown"),
    "a truth value of 2": (container(key("k", 7, b"\2"), 1), "expected 0 or 1 for a truth value, found 2"),
    "a long text": (container(key("k", 8, struct.pack("<Q", 1 << 63)), 1), "key 'k' takes 9223372036854775808 bytes"),
    "a long array": (container(key("k", 9, ARRAY.pack(12, 1 << 61)), 1), "key 'k' takes 18446744073709551616 bytes"),
    "a long array of texts": (container(key("k", 9, ARRAY.pack(8, 1 << 61)), 1), "key 'k' takes"),
    "texts that are cut off": (
        container(key("k", 9, ARRAY.pack(8, 2) + text("a") + struct.pack("<Q", 9999)), 1), "element 1 of key 'k'"
    ),
    "arrays of arrays": (
        container(key("k", 9, ARRAY.pack(9, 1) + ARRAY.pack(9, 1)), 1), "expected an array of texts or numbers"
    ),
    "a name that is no text": (container(struct.pack("<Q", 2) + b"\xff\xff", 1), "the name of key 0 is no UTF-8 text"),
    "an alignment of 24": (
        container(key("general.alignment", 4, struct.pack("<I", 24)), 1),
        "'general.alignment': expected a power of two from 8, found 24",
    ),
    "an alignment of 0": (container(key("general.alignment", 4, bytes(4)), 1), "'general.alignment': expected"),
    "no dims": (container(tensors=entry(dims=()), count=1), "tensor 't': expected 1 to 4 dims, found 0"),
    "five dims": (container(tensors=entry(dims=(1,) * 5), count=1), "expected 1 to 4 dims, found 5"),
    "a dim of 0": (container(tensors=entry(dims=(0, 2)), count=1), "expected dims from 1 to 1048576, found [2, 0]"),
    "large dims": (container(tensors=entry(dims=(1 << 20,) * 4), count=1), "the file is cut off"),
    "a type that is not read": (container(tensors=entry(kind=16), count=1), "type 16 (IQ2_XXS) is not read, only F32"),
    "an unknown type of tensor": (container(tensors=entry(kind=99), count=1), "type 99 (unknown) is not read"),
    "a part of a block": (container(tensors=entry(dims=(48,), kind=2), count=1), "whole blocks of 32 elements"),
    "an offset that is not aligned": (container(tensors=entry(offset=8), count=1), "a multiple of 32, found 8"),
    "an offset behind the file": (container(tensors=entry(offset=1 << 60), count=1), "the file is cut off"),
    "tensors that overlap": (
        container(tensors=entry("a") + entry("b", offset=32), count=2), "tensor 'b' begins at 32, within tensor 'a'"
    ),
    "a tensor twice": (container(tensors=entry("a") + entry("a", offset=256), count=2), "tensor 'a' is there twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    content, expected = REFUSED[name]
    assert expected in refusal(tmp_path / "model.gguf", content)


def test_metadata_are_bounded(tmp_path: Path) -> None:
    content = container(key("k", 9, ARRAY.pack(0, 70 << 20)) + bytes(70 << 20), 1)
    assert "metadata of more than 64 MiB are not read" in refusal(tmp_path / "model.gguf", content)


def test_damaged_files(path: Path) -> None:
    """A file cut short, or with any field of its beginning changed, is read or refused with our error at once."""
    whole, random = path.read_bytes(), np.random.default_rng(0)
    header = len(whole) - sum(tensor.data.size for tensor in read_gguf(path).tensors.values())
    extremes = (0, 1, 0xFF, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)

    def changed(at: int, value: bytes) -> bytes:
        return whole[:at] + value + whole[at + len(value) :]

    damages: list[Callable[[], bytes]] = [lambda: whole[: random.integers(len(whole))] for _ in range(100)]
    for at in range(4, header):
        value = int(random.choice(np.array(extremes, np.uint64)))
        damages.append(lambda at=at, value=value: changed(at, struct.pack("<Q", value)))  # type: ignore[misc]
        damages.append(lambda at=at: changed(at, bytes([random.integers(256)])))  # type: ignore[misc]
    refused = 0
    for damage in damages:
        try:
            parse_gguf(path, np.frombuffer(damage(), np.uint8))
        except ModelFolderError as error:
            refused += 1
            assert str(path) in str(error)
    assert len(damages) / 2 < refused < len(damages)
