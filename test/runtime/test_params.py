"""The parameter store: one copy of each weight, mapped files, clear errors for damaged ones."""

from __future__ import annotations

import json
import struct
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mirlo.runtime import params, system
from mirlo.runtime.container import ALIGNMENT
from mirlo.runtime.dtypes import ELEMENT_TYPES, numpy_dtype
from mirlo.runtime.errors import ParameterError
from mirlo.runtime.params import PARAMETER_FILE, ParameterStore, register_reader


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def small_store() -> ParameterStore:
    store = ParameterStore()
    store.add("w", np.arange(12, dtype=np.float32).reshape(3, 4))
    store.add("scale", np.float32(2.5).reshape(()))
    store.add("empty", np.zeros((0, 7), np.int64))
    store.add("half", np.arange(5).astype(ml_dtypes.bfloat16))
    return store


def test_add_copies_nothing_and_gives_read_only_views():
    array = np.ones((2, 3), np.float32)
    store = ParameterStore()
    store.add("a", array)
    view = store.get("a")
    assert address(view) == address(array)
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 3
    array[0, 0] = 5  # the owner's own array stays writeable
    assert store.names() == ("a",) and "a" in store and "b" not in store and store.nbytes == 24


def test_arrays_that_cannot_be_held_as_they_are_become_row_major_and_native():
    store = ParameterStore()
    store.add("t", np.arange(6, dtype=np.float32).reshape(2, 3).T)
    store.add("big", np.arange(3, dtype=">i4"))
    assert store.get("t").flags.c_contiguous and store.get("t").tolist() == [[0, 3], [1, 4], [2, 5]]
    assert store.get("big").dtype == np.dtype("=i4") and store.get("big").tolist() == [0, 1, 2]


def test_name_clash():
    store = ParameterStore()
    store.add("a", np.array([1.0, np.nan], np.float32))
    store.add("a", np.array([1.0, np.nan], np.float32))
    with pytest.raises(ParameterError, match=r"parameter 'a' is in the store already with other values"):
        store.add("a", np.array([1.0, 2.0], np.float32))
    with pytest.raises(ParameterError, match=r"another type: f32 \[2\], now f32 \[1, 2\]"):
        store.add("a", np.array([[1.0, np.nan]], np.float32))
    assert store.add_unique("a", np.zeros(1, np.int8)) == "a_1"
    assert store.add_unique("a", np.zeros(1, np.int8)) == "a_2"


def test_unknown_name_and_type():
    store = small_store()
    with pytest.raises(ParameterError, match="no parameter 'scal' among the 4 of the store; did you mean 'scale'"):
        store.get("scal")
    with pytest.raises(ParameterError, match="'c': numpy type complex64 is not an element type; known: f64, f32"):
        store.add("c", np.zeros(2, np.complex64))


def test_save_and_open_round_trip_maps_aligned(tmp_path: Path):
    store = small_store()
    assert store.unsaved() == ("w", "scale", "empty", "half")
    store.save(tmp_path / "a.params", ["w", "scale", "empty"])
    assert store.unsaved() == ("half",)
    store.save(tmp_path / "b.params", store.unsaved())
    again = ParameterStore()
    again.open(tmp_path / "a.params")
    again.open(tmp_path / "b.params")
    assert again.names() == store.names() and again.unsaved() == () and again.nbytes == store.nbytes
    assert again.source("half") == tmp_path / "b.params"
    for name in store.names():
        left, right = store.get(name), again.get(name)
        assert left.dtype == right.dtype and left.shape == right.shape and np.array_equal(left, right)
        assert not right.flags.writeable
        assert right.size == 0 or address(right) % ALIGNMENT == 0
    # Both views are of one mapping: nothing was read into memory of its own.
    assert address(again.get("w")) == address(again.get("w"))


def test_every_element_type_round_trips(tmp_path: Path):
    store = ParameterStore()
    for name in ELEMENT_TYPES:
        store.add(name, np.array([0, 1, 1, 0]).astype(numpy_dtype(name)))
    store.save(tmp_path / "all")
    again = ParameterStore()
    again.open(tmp_path / "all")
    for name in ELEMENT_TYPES:
        assert again.spec(name) == (name, (4,))
        assert again.get(name).dtype == numpy_dtype(name)
        assert again.get(name).tobytes() == store.get(name).tobytes()


def test_saving_over_the_file_that_is_mapped_keeps_the_arrays(tmp_path: Path):
    path = tmp_path / "p"
    small_store().save(path)
    store = ParameterStore()
    store.open(path)
    before = store.get("w")
    store.add("new", np.ones(3, np.float32))
    store.save(path)
    assert before.sum() == 66 and [entry.name for entry in tmp_path.iterdir()] == ["p"]
    again = ParameterStore()
    again.open(path)
    assert again.get("w").sum() == 66 and again.get("new").sum() == 3


def test_range_of_a_file_is_mapped_once(tmp_path: Path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"xyz" + np.arange(6, dtype=np.float32).tobytes())
    store = ParameterStore()
    store.add_range("a", path, 3, "f32", [2, 2])
    store.add_range("b", path, 3 + 16, "f32", [2], source=tmp_path / "model.onnx")
    assert store.get("a").tolist() == [[0, 1], [2, 3]] and store.get("b").tolist() == [4, 5]
    assert address(store.get("b")) - address(store.get("a")) == 16
    assert store.source("a") == path and store.source("b") == tmp_path / "model.onnx" and store.unsaved() == ()
    with pytest.raises(ParameterError, match=r"model.bin: parameter 'c' .* takes bytes 3 to 31, the file has 27"):
        store.add_range("c", path, 3, "f32", [7])
    with pytest.raises(ParameterError, match="'c': 'float' is not an element type"):
        store.add_range("c", path, 3, "float", [1])
    with pytest.raises(ParameterError, match="gone.bin: cannot read the file: No such file"):
        store.add_range("c", tmp_path / "gone.bin", 0, "f32", [1])


def test_reader_by_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(params, "_READERS", {})
    path = tmp_path / "m.RAWF"
    path.write_bytes(np.arange(3, dtype=np.float32).tobytes())
    register_reader(".rawf", lambda file, store: store.add_range("raw", file, 0, "f32", [3]))
    store = ParameterStore()
    store.open(path)
    assert store.get("raw").tolist() == [0, 1, 2]
    small_store().save(path)  # the content decides before the suffix does
    store.open(path)
    assert "scale" in store
    with pytest.raises(ValueError, match="lower-case"):
        register_reader("onnx", lambda file, store: None)


@pytest.mark.parametrize("make", ["directory", "missing", "empty", "text"])
def test_what_is_not_a_parameter_file(tmp_path: Path, make: str):
    path = tmp_path / "p"
    if make == "directory":
        path.mkdir()
    elif make != "missing":
        path.write_bytes(b"" if make == "empty" else b"hello, this is not a parameter file" * 10)
    expected = "cannot read the file" if make in ("directory", "missing") else "not a parameter file"
    with pytest.raises(ParameterError, match=f"{path}: {expected}"):
        ParameterStore().open(path)


def test_cannot_write(tmp_path: Path):
    with pytest.raises(ParameterError, match="no/such/p: cannot write the parameter file"):
        small_store().save(tmp_path / "no/such/p")


def test_newer_version_and_truncation(tmp_path: Path):
    path = tmp_path / "p"
    small_store().save(path)
    data = path.read_bytes()
    path.write_bytes(data[:12] + struct.pack("<I", PARAMETER_FILE.version + 6) + data[16:])
    with pytest.raises(ParameterError, match="written in format 7 by a newer Mirlo; .* up to 1: upgrade"):
        ParameterStore().open(path)
    path.write_bytes(data[:-5])
    with pytest.raises(ParameterError, match=f"truncated: {len(data) - 5} bytes of {len(data)}"):
        ParameterStore().open(path)


def signed(header: dict | str | bytes, data: bytes = b"") -> bytes:
    """Return a file whose prefix and checksum are right, as an attacker would write it."""
    from mirlo.runtime import container

    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    start = container.aligned(ALIGNMENT + len(text))
    prefix = container._PREFIX.pack(container._MAGIC, b"PRMS", 1, len(text), 0, start + len(data))
    head = (prefix + container._digest(prefix, text, b"")).ljust(ALIGNMENT, b"\0") + text
    return head.ljust(start, b"\0") + data


ROW = {"name": "w", "dtype": "f32", "shape": [4], "offset": 0}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ([], r"header field '': expected an object, found \[\]"),
        ({}, r"header field 'tensors' \(a list\) is missing"),
        ({"tensors": 3}, "header field 'tensors': expected a list, found 3"),
        ({"tensors": [7]}, r"header field 'tensors\[0\]': expected an object"),
        ({"tensors": [{**ROW, "name": None}]}, r"'tensors\[0\].name': expected text"),
        ({"tensors": [{**ROW, "dtype": "f33"}]}, r"'tensors\[0\].dtype': expected one of f64, f32"),
        ({"tensors": [{**ROW, "shape": [-1]}]}, r"'tensors\[0\].shape': expected a list of dims"),
        ({"tensors": [{**ROW, "shape": [True]}]}, r"'tensors\[0\].shape': expected a list of dims"),
        ({"tensors": [{**ROW, "shape": [2**40, 2**40, 0]}]}, r"shape': expected at most 64 dims and 2\^60 elements"),
        ({"tensors": [{**ROW, "shape": [1] * 65}]}, r"shape': expected at most 64 dims"),
        ({"tensors": [{**ROW, "shape": [5]}]}, r"'tensors\[0\].offset': expected 20 bytes of 'w' inside the file"),
        ({"tensors": [{**ROW, "offset": -1}]}, r"offset': expected a count"),
        ({"tensors": [{**ROW, "offset": 10**30}]}, r"offset': expected a count"),
        ({"tensors": [{**ROW, "offset": 1, "shape": [1]}]}, r"offset': expected a multiple of 64"),
        ({"tensors": [ROW, ROW]}, r"'tensors\[1\].name': expected names that occur once, found 'w'"),
        (b"{", "its header is not JSON"),
        (b"\xff\xfe", "its header is not JSON"),
        (b"[" * 100_000, "its header is not JSON"),
        (b"9" * 10_000, "its header is not JSON"),
    ],
)
def test_hostile_headers(tmp_path: Path, header, message: str):
    path = tmp_path / "p"
    path.write_bytes(signed(header, bytes(16)))
    with pytest.raises(ParameterError, match=message):
        ParameterStore().open(path)


def test_signed_helper_writes_good_files(tmp_path: Path):
    path = tmp_path / "p"
    path.write_bytes(signed({"tensors": [ROW]}, np.arange(4, dtype=np.float32).tobytes()))
    store = ParameterStore()
    store.open(path)
    assert store.get("w").tolist() == [0, 1, 2, 3]


def test_flipped_bytes_and_truncations_are_errors(tmp_path: Path):
    path = tmp_path / "p"
    small_store().save(path)
    data = path.read_bytes()
    header_end = 64 + struct.unpack_from("<Q", data, 16)[0]
    mutations = [data[:length] for length in range(0, len(data), 7)]
    mutations += [data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :] for at in range(56) for flip in (1, 0x80, 0xFF)]
    mutations += [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in range(64, header_end, 3)]
    for mutated in mutations:
        path.write_bytes(mutated)
        with pytest.raises(ParameterError):
            ParameterStore().open(path)


def test_arrays_are_moved_to_cache_lines(tmp_path) -> None:
    buffer = np.zeros(4096, np.uint8)
    start = -buffer.ctypes.data % 64 + 4
    odd = buffer[start : start + 400].view(np.float32)
    odd[:] = np.arange(100)
    store = ParameterStore()
    store.add("odd", odd)
    np.arange(301, dtype=np.uint8).tofile(tmp_path / "weights")
    store.add_range("small", tmp_path / "weights", 1, "u8", [300])
    store.align(["odd", "small"])
    assert all(store.get(name).ctypes.data % 64 == 0 and not store.get(name).flags.writeable for name in store)
    assert np.array_equal(store.get("odd"), np.arange(100)) and store.get("small")[0] == 1
    large = ParameterStore()
    large.add_range("mapped", tmp_path / "weights", 1, "u8", [300])
    large.align(["mapped"], most=100)
    assert large.get("mapped").ctypes.data % 64 == 1


@pytest.mark.parametrize("with_mapped", (False, True))
def test_arrays_are_held_side_by_side(tmp_path, with_mapped: bool) -> None:
    """Arrays of files stay mapped unless requested otherwise; small arrays are not copied."""
    random = np.random.default_rng(0)
    values = {f"w{i}": random.integers(0, 256, 800_001, dtype=np.uint8) for i in range(6)}
    np.concatenate(list(values.values())[:3]).tofile(tmp_path / "weights")
    store = ParameterStore()
    for i, (name, array) in enumerate(values.items()):
        if i < 3:
            store.add_range(name, tmp_path / "weights", i * array.size, "u8", array.shape)
        else:
            store.add_deferred(name, "u8", array.shape, lambda array=array: array)
    store.add("small", np.arange(9))
    before = {name: store.get(name).ctypes.data for name in store}
    store.hold(store.names(), with_mapped)
    moved = [name for name in store if store.get(name).ctypes.data != before[name]]
    assert moved == (list(values) if with_mapped else ["w3", "w4", "w5"])
    for name, array in values.items():
        assert np.array_equal(store.get(name), array) and not store.get(name).flags.writeable
    addresses = [store.get(name).ctypes.data for name in moved]
    assert addresses == sorted(addresses) and not any(address % 64 for address in addresses)
    assert addresses[-1] - addresses[0] < len(moved) * 800_200
    assert store.source("w0") is not None


def test_memory_of_others_stays_shared():
    """An array that a caller allocated is not moved: its owner and the store share it."""
    store, others = ParameterStore(), [bytearray(1 << 21) for _ in range(2)]
    for i, memory in enumerate(others):
        store.add(f"w{i}", np.frombuffer(memory, np.float32))
    store.hold(store.names(), with_mapped=True)
    for i, memory in enumerate(others):
        assert np.shares_memory(store.get(f"w{i}"), np.frombuffer(memory, np.uint8))


def test_arrays_stay_where_there_is_no_room(monkeypatch):
    def refuse(nbytes: int) -> None:
        raise MemoryError(nbytes)

    monkeypatch.setattr(system, "map_memory", refuse)
    store, array = ParameterStore(), np.ones((1024, 1024), np.float32)
    store.add("w", array)
    store.hold(["w"])
    assert np.shares_memory(store.get("w"), array)


def test_arrays_that_are_computed_later():
    store, made = ParameterStore(), []

    def make() -> np.ndarray:
        made.append(1)
        return np.arange(6, dtype=np.float32).reshape(2, 3).T

    assert [store.add_deferred("w", "f32", (3, 2), make) for _ in range(2)] == ["w", "w_1"]
    assert store.spec("w") == ("f32", (3, 2)) and store.nbytes == 48 and not made
    read = store.reader("w_1")
    store.discard("w_1")
    store.hold(["w"])
    assert len(made) == 1
    array = store.get("w")
    assert array.flags.c_contiguous and not array.flags.writeable and array[2, 1] == 5
    assert store.get("w") is array and np.array_equal(read(), array) and len(made) == 2


def test_arrays_that_are_saved_stay_pending(tmp_path: Path):
    """They are computed one after the other in the same memory, the large after the small and before it."""
    store, filled = ParameterStore(), []
    values = {f"w{i}": np.arange(size, dtype=np.float32) for i, size in enumerate((1000, 900_000, 10, 600_000))}

    def fill(to: np.ndarray, name: str) -> None:
        filled.append(to.ctypes.data)
        to[...] = values[name]

    for name, array in values.items():
        store.add_deferred(name, "f32", array.shape, lambda: 1 / 0, fill=partial(fill, name=name))
    turned = np.arange(6, dtype=np.int64).reshape(2, 3)
    store.add_deferred("turned", "i64", (3, 2), lambda: turned.T)
    store.add("given", turned)
    store.save(tmp_path / "weights")
    assert store.pending_bytes(store.names()) == sum(array.nbytes for array in values.values()) + turned.nbytes
    assert len(set(filled[1:])) == 1 and len(filled) == len(values)
    saved = ParameterStore()
    saved.open(tmp_path / "weights")
    for name, array in {**values, "turned": turned.T, "given": turned}.items():
        assert np.array_equal(saved.get(name), array)


def test_a_reader_may_give_another_layout_until_there_is_the_usual_one():
    store, rows = ParameterStore(), np.arange(6, dtype=np.float32).reshape(2, 3)
    name = store.add_deferred("w", "f32", (3, 2), lambda: rows.T, rows.T)
    assert np.shares_memory(store.reader(name)(), rows)
    assert store.get(name).flags.c_contiguous
    assert store.reader(name)() is store.get(name)
    store.align([name])
    assert np.array_equal(store.get(name), rows.T)


@pytest.mark.parametrize("width", [1, 3, 7, 9])
def test_columns_are_read_without_the_others(width: int) -> None:
    store, array = ParameterStore(), np.arange(14, dtype=np.float32).reshape(2, 7)
    whole: list[int] = []

    def make() -> np.ndarray:
        whole.append(1)
        return array.copy()

    def columns(width: int):
        return (array[:, start : start + width] for start in range(0, 7, width))

    plain = store.add_deferred("w", "f32", (2, 7), make)
    computed = store.add_deferred("w", "f32", (2, 7), make, columns=columns)
    assert store.column_reader(plain) is None and store.column_reader(store.add_unique("known", array)) is None
    read = store.column_reader(computed)
    assert read is not None
    np.testing.assert_array_equal(np.concatenate(list(read(width)), axis=1), array)
    assert not whole
    store.get(computed)
    assert store.column_reader(computed) is None and whole == [1]
    store.discard(computed)
    np.testing.assert_array_equal(np.concatenate(list(read(width)), axis=1), array)
