"""Sparse constants, branches and loops of TensorFlow Lite's files, which the tests write."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mirlo_tflite.errors import TosaImportError
from mirlo_tflite.flatbuffer import Table, reading
from mirlo_tflite.sparse import densify
from models import (
    ADD,
    ADD_OPTIONS,
    DENSIFY,
    FULLY_CONNECTED,
    FULLY_CONNECTED_OPTIONS,
    IF,
    IF_OPTIONS,
    LESS,
    MUL,
    MUL_OPTIONS,
    NEG,
    WHILE,
    WHILE_OPTIONS,
    Graph,
    Level,
    Node,
    Sparsity,
    TensorSpec,
    model,
)

import mirlo

needs_converter = pytest.mark.skipif(
    shutil.which("tosa-converter-for-tflite") is None, reason="tosa-converter-for-tflite is not installed"
)


def encode(
    dense: np.ndarray, order: Sequence[int], blocks: dict[int, int], compressed: Sequence[bool], dtype: str = "i4"
) -> tuple[np.ndarray, Sparsity]:
    """Return the stored elements of a tensor whose levels are in this order, and how they are stored."""
    shape = [size // blocks.get(dim, 1) for dim, size in enumerate(dense.shape)]
    inner = [dim for dim in blocks]
    divided = dense.reshape([part for dim, size in enumerate(shape) for part in (size, blocks.get(dim, 1))])
    axes = [2 * dim for dim in range(dense.ndim)] + [2 * dim + 1 for dim in inner]
    unit = [axis for axis in range(divided.ndim) if axis not in axes]
    expanded = divided.transpose(axes + unit).reshape([*shape, *(blocks[dim] for dim in inner)]).transpose(order)
    entries: list[np.ndarray] = [expanded]
    levels = []
    for is_compressed in compressed:
        if not is_compressed:
            levels.append(Level(expanded.shape[len(levels)]))
            entries = [part for entry in entries for part in entry]
            continue
        kept = [[index for index, part in enumerate(entry) if np.any(part)] for entry in entries]
        segments = np.cumsum([0, *map(len, kept)])
        indices = np.array([index for each in kept for index in each])
        levels.append(Level(segments=segments.astype("i4"), indices=indices.astype(dtype)))
        entries = [entry[index] for entry, each in zip(entries, kept, strict=True) for index in each]
    return np.array(entries, dense.dtype), Sparsity(order, inner, levels)


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, Sparsity]:
    """Return a tensor, how it is stored, and the elements that are."""
    drawn = random.Random(seed)
    blocks: dict[int, int] = {}
    shape = [drawn.randint(1, 4) for _ in range(drawn.randint(1, 4))]
    for dim in range(len(shape)):
        if drawn.random() < 0.3:
            blocks[dim] = drawn.choice((1, 2, 4))
            shape[dim] *= blocks[dim]
    dtype = drawn.choice(("f4", "f2", "i1", "u1", "i2", "i4", "i8", "?"))
    numbers = np.random.default_rng(seed)
    dense = numbers.integers(1, 9, shape) * (numbers.random(shape) < drawn.choice((0.0, 0.2, 0.7, 1.0)))
    order = list(range(len(shape) + len(blocks)))
    drawn.shuffle(order)
    compressed = [dim < len(shape) and drawn.random() < 0.5 for dim in order]
    stored, sparsity = encode(dense.astype(dtype), order, blocks, compressed, drawn.choice(("u1", "u2", "i4")))
    return dense.astype(dtype), stored, sparsity


def written(dense: np.ndarray, stored: np.ndarray, sparsity: Sparsity) -> bytes:
    """Return a file with one sparse constant."""
    tensors = [TensorSpec(dense.shape, stored, sparsity=sparsity), TensorSpec(dense.shape, dtype=dense.dtype.str)]
    return model(Graph(tensors, [], [1], [Node(DENSIFY, [0], [1])]))


def constant(content: bytes) -> tuple[bool, bytes]:
    """Return of the first tensor of a file whether it is sparse, and its elements."""
    root = Table.root(content)
    tensor = root.tables(2)[0].tables(0)[0]
    return tensor.position(6) is not None, root.tables(4)[tensor.number(2, "<I")].vector(0, "u1").tobytes()


@pytest.mark.parametrize("seed", range(60))
def test_constants_become_dense(seed: int) -> None:
    dense, stored, sparsity = draw(seed)
    content = written(dense, stored, sparsity)
    result = densify(Table.root(content))
    assert constant(content)[0] and result is not None
    assert constant(result) == (False, dense.tobytes())


def test_a_model_without_sparse_constants_is_left_alone() -> None:
    assert densify(Table.root(model(Graph([TensorSpec([2])], [0], [0], [])))) is None
    assert densify(Table.root(model(Graph([], [], [], [])))) is None


LEVELS = [Level(2), Level(segments=np.array([0, 2, 5], "i4"), indices=np.array([0, 3, 1, 2, 3], "u1"))]
ROWS = Sparsity([0, 1], [], LEVELS)
ELEMENTS = np.arange(1, 6, dtype="f4")


def compressed(segments: Sequence[int], indices: Sequence[int]) -> Sparsity:
    """Return the format of two rows with these elements."""
    return Sparsity([0, 1], [], [Level(2), Level(segments=np.array(segments, "i4"), indices=np.array(indices, "i4"))])


MALFORMED = {
    "order": (replace(ROWS, order=[0, 0]), ELEMENTS, r"traversal order is \[0, 0\]"),
    "levels": (replace(ROWS, levels=LEVELS[:1]), ELEMENTS, "with 1 levels"),
    "block": (replace(ROWS, order=[0, 1, 2], blocks=[7], levels=[*LEVELS, Level(2)]), ELEMENTS, r"dims \[7\] of 2"),
    "size of a block": (replace(ROWS, order=[0, 1, 2], blocks=[1], levels=[*LEVELS, Level(3)]), ELEMENTS, "size 3"),
    "dense level": (replace(ROWS, levels=[Level(3), LEVELS[1]]), ELEMENTS, "3 indices in a dim of 2"),
    "segments": (compressed([0, 2], [0, 3, 1, 2, 3]), ELEMENTS, "2 segments for 2 entries"),
    "descending": (compressed([0, 5, 2], [0, 3, 1, 2, 3]), ELEMENTS, "overlap"),
    "overlapping": (compressed([1, 3, 5], [0, 3, 1, 2, 3]), ELEMENTS, "leave elements out"),
    "index": (compressed([0, 2, 5], [0, 4, 1, 2, 3]), ELEMENTS, "index 4 in a dim of 4"),
    "negative index": (compressed([0, 2, 5], [0, 3, -1, 2, 3]), ELEMENTS, "in a dim of 4"),
    "elements": (ROWS, ELEMENTS[:4], "stores 16 bytes, expected 5 elements of 4"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_formats_name_the_tensor(name: str) -> None:
    sparsity, elements, expected = MALFORMED[name]
    content = written(np.zeros((2, 4), "f4"), elements, sparsity)
    with pytest.raises(TosaImportError, match=rf"f is damaged: tensor 'main_0'.*{expected}"), reading("f"):
        densify(Table.root(content))


def test_a_tensor_without_a_buffer_is_refused() -> None:
    content = written(np.zeros((2, 0), "f4"), np.zeros(0, "f4"), Sparsity([0, 1], [], [Level(2), Level(0)]))
    assert constant(densify(Table.root(content)) or b"") == (False, b"")
    tensors = [TensorSpec((2, 0), sparsity=Sparsity([0, 1], [], [Level(2), Level(0)]))]
    with pytest.raises(TosaImportError, match="has a buffer without elements"), reading("f"):
        densify(Table.root(model(Graph(tensors, [], [0], []))))


def test_a_shape_larger_than_what_is_stored_is_refused() -> None:
    sparsity = Sparsity([0, 1], [], [Level(1 << 14), Level(1 << 14)])
    content = written(
        np.lib.stride_tricks.as_strided(np.zeros(1, "i1"), (1 << 14, 1 << 14), (0, 0)), ELEMENTS, sparsity
    )
    with pytest.raises(TosaImportError, match="more than the file's bytes"), reading("f"):
        densify(Table.root(content))


@pytest.mark.parametrize("seed", range(200))
def test_damaged_files_are_errors(seed: int) -> None:
    drawn = random.Random(seed)
    content = bytearray(written(*draw(seed)))
    for _ in range(drawn.choice((1, 4, 16))):
        content[drawn.randrange(len(content))] = drawn.choice((0, 1, 4, 127, 255))
    content = content[: drawn.choice((len(content), drawn.randrange(len(content))))]
    try:
        with reading("f"):
            densify(Table.root(bytes(content)))
    except TosaImportError as error:
        assert str(error).startswith("f is damaged: ")


def compiled(content: bytes, folder: Path) -> mirlo.Executable:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return mirlo.compile(path, cache=False)


@needs_converter
@pytest.mark.parametrize("is_explicit", [False, True])
def test_sparse_weights_of_a_layer(is_explicit: bool, tmp_path: Path) -> None:
    weight = np.array([[1, 0, 0, 2], [0, 3, 4, 5]], "f4")
    tensors = [TensorSpec([1, 4]), TensorSpec([2, 4], ELEMENTS, sparsity=ROWS), TensorSpec([1, 2]), TensorSpec([2, 4])]
    nodes = [Node(FULLY_CONNECTED, [0, 3 if is_explicit else 1, -1], [2], (FULLY_CONNECTED_OPTIONS, [0]))]
    if is_explicit:
        nodes.insert(0, Node(DENSIFY, [1], [3]))
    x = np.array([[1, 2, 3, 4]], "f4")
    np.testing.assert_array_equal(compiled(model(Graph(tensors, [0], [2], nodes)), tmp_path)(x), x @ weight.T)


@needs_converter
def test_a_branch_computes_its_graph(tmp_path: Path) -> None:
    both = [TensorSpec([2, 3]), TensorSpec([2, 3])]
    main = Graph([TensorSpec([1], dtype="?"), *both], [0, 1], [2], [Node(IF, [0, 1], [2], (IF_OPTIONS, [1, 2]))])
    factors = np.array([1, 2, 3], "f4")
    then = Graph(
        [both[0], TensorSpec([3], factors), both[0]], [0], [2], [Node(MUL, [0, 1], [2], (MUL_OPTIONS, [0]))], "then"
    )
    other = Graph(both, [0], [1], [Node(NEG, [0], [1])], "other")
    executable = compiled(model(main, then, other), tmp_path)
    x = np.arange(6, dtype="f4").reshape(2, 3)
    np.testing.assert_array_equal(executable(np.array([True]), x), x * factors)
    np.testing.assert_array_equal(executable(np.array([False]), x), -x)


@needs_converter
def test_a_loop_repeats_its_graph(tmp_path: Path) -> None:
    carried = [TensorSpec([], dtype="i4"), TensorSpec([3])]
    main = Graph([*carried, *carried], [0, 1], [2, 3], [Node(WHILE, [0, 1], [2, 3], (WHILE_OPTIONS, [1, 2]))])
    flag = TensorSpec([], dtype="?")
    goes_on = Graph([*carried, TensorSpec([], np.array(5, "i4")), flag], [0, 1], [3], [Node(LESS, [0, 2], [3])], "c")
    sums = [Node(ADD, [*x], [y], (ADD_OPTIONS, [0])) for x, y in (((0, 2), 3), ((1, 1), 4))]
    body = Graph([*carried, TensorSpec([], np.array(1, "i4")), *carried], [0, 1], [3, 4], sums, "body")
    count, values = compiled(model(main, goes_on, body), tmp_path)(np.array(2, "i4"), np.ones(3, "f4"))
    assert count == 5 and values.tolist() == [8, 8, 8]
