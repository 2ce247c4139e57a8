"""A compiled function of JAX: an executable that is also called with the function's own arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.extend.frontend import CompiledModel, FrontendError, RankLayout
from mirlo.extend.ranks import require_place

if TYPE_CHECKING:
    import jax
    from jax import export


PathStep = object
"""A step of a path in a JAX tree: of a dictionary, a sequence or a class."""


@dataclass(frozen=True)
class FunctionSignature:
    """Arguments and results of an exported function: trees of arrays."""

    in_tree: jax.tree_util.PyTreeDef
    out_tree: jax.tree_util.PyTreeDef
    inputs: tuple[str, ...]
    """A name for each array among the arguments."""
    outputs: tuple[str, ...]
    kept: tuple[int, ...]
    """The arrays that the program uses; the others are no inputs."""
    dtypes: tuple[np.dtype, ...]
    """The element type of each array, or of a key; Python numbers in a call are converted to it."""
    results: tuple[np.dtype, ...]
    """The element type of each result; the program returns complex numbers as pairs, and keys as words."""

    @staticmethod
    def of(exported: export.Exported) -> FunctionSignature:
        """Return the signature of an exported function."""
        inputs = _leaf_names(exported.in_tree, _argument_name)
        outputs = _leaf_names(exported.out_tree, lambda path: _path_name("result", path))
        return FunctionSignature(
            exported.in_tree, exported.out_tree, inputs, outputs, tuple(exported.module_kept_var_idx),
            tuple(aval.dtype for aval in exported.in_avals),
            tuple(aval.dtype for aval in exported.out_avals),
        )  # fmt: skip

    def kept_names(self) -> tuple[str, ...]:
        """Return the names of the inputs that the program kept."""
        return tuple(self.inputs[i] for i in self.kept)

    def arrays(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[np.ndarray]:
        """Return the arrays of a call, in the order of the program's inputs."""
        import jax

        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        if tree != self.in_tree:
            raise FrontendError(f"the function was exported for arguments {self.in_tree}, found {tree}")
        return [_array(leaves[i], self.inputs[i], self.dtypes[i]) for i in self.kept]

    def result(self, arrays: list[np.ndarray]) -> object:
        """Return the function's result from the arrays of the program."""
        import jax

        outputs = [_value(array, dtype) for array, dtype in zip(arrays, self.results, strict=True)]
        return jax.tree_util.tree_unflatten(self.out_tree, outputs)


def is_key(dtype: object) -> bool:
    """Return whether an element type is that of JAX's typed keys."""
    import jax

    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def _array(leaf: object, name: str, dtype: np.dtype) -> np.ndarray:
    """Convert an argument for the program as `jax.jit` does: 64 bits to 32, unless JAX enables 64."""
    import jax

    if is_key(dtype):
        if getattr(leaf, "dtype", None) != dtype:
            raise FrontendError(f"input '{name}': expected keys of {dtype}, found {getattr(leaf, 'dtype', type(leaf))}")
        words: np.ndarray = np.asarray(jax.random.key_data(leaf))
        return words
    if isinstance(leaf, (bool, int, float, complex)):
        return _without_complex(np.asarray(leaf, dtype), name, dtype)
    array = np.asarray(leaf)
    narrow = jax.dtypes.canonicalize_dtype(array.dtype)
    return _without_complex(array if array.dtype == narrow else array.astype(narrow), name, dtype)


def _value(array: np.ndarray, dtype: np.dtype) -> jax.Array:
    """Convert a result of the program to a JAX array of an element type."""
    import jax

    if is_key(dtype):
        key_type: Any = dtype
        keys: jax.Array = jax.random.wrap_key_data(jax.numpy.asarray(array), impl=key_type._impl.name)
        return keys
    whole = _with_complex(array) if np.dtype(dtype).kind == "c" else array
    return jax.numpy.asarray(whole)


def _without_complex(array: np.ndarray, name: str, dtype: np.dtype) -> np.ndarray:
    """Convert an array for the program: complex numbers become pairs in a last dim of 2."""
    if np.dtype(dtype).kind != "c":
        return array
    if array.dtype != dtype:
        raise FrontendError(f"input '{name}': expected an array of {np.dtype(dtype)}, found {array.dtype}")
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype).reshape(*array.shape, 2)


def _with_complex(array: np.ndarray) -> np.ndarray:
    """Convert pairs in the last dim to complex numbers."""
    complex_type = np.result_type(array.dtype, np.complex64)
    return array.reshape(-1).view(complex_type).reshape(array.shape[:-1])


class CompiledFunction:
    """The executable of a function of JAX.

    `jax(...)` takes the arguments of the function and returns what it returns, trees of JAX's arrays. All else is the
    executable's: call it with arrays, `run`, `profile`, `save`.
    """

    def __init__(
        self, executable: CompiledModel, signature: FunctionSignature, layouts: Sequence[RankLayout | None] = ()
    ) -> None:
        self.executable = executable
        self.signature = signature
        self.layouts = layouts
        """How the inputs of the program are divided among ranks."""

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run the program on arrays and return arrays."""
        return self.executable(*arrays, out=out, **named)

    def jax(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on the arguments of the function; return its result, of JAX's arrays."""
        arrays = self.signature.arrays(args, kwargs)
        if any(layout is not None for layout in self.layouts):
            arrays = self._own_parts(arrays)
        results = self.executable(*arrays)
        return self.signature.result(list(results) if isinstance(results, tuple) else [results])

    def _own_parts(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Return this rank's parts of whole arrays."""
        splits = [split for layout in self.layouts if layout is not None for split in layout.dims if split is not None]
        rank = require_place(len(splits[0])).rank
        return [
            array if layout is None else np.ascontiguousarray(array[layout.part(array.shape, rank)])
            for array, layout in zip(arrays, self.layouts, strict=True)
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)

    def __repr__(self) -> str:
        return repr(self.executable)


def _leaf_names(tree: jax.tree_util.PyTreeDef, name: Callable[[tuple[PathStep, ...]], str]) -> tuple[str, ...]:
    """Return a name for each leaf of a tree."""
    import jax

    numbered = jax.tree_util.tree_unflatten(tree, list(range(tree.num_leaves)))
    paths, _ = jax.tree_util.tree_flatten_with_path(numbered)
    return tuple(name(path) for path, _ in paths)


def _argument_name(path: tuple[PathStep, ...]) -> str:
    """Return the name of an array among (args, kwargs): `arg0.kernel`, or `mask` for a keyword argument."""
    which, at, *rest = path
    first = _key(at) if getattr(which, "idx", 0) == 1 else f"arg{_key(at)}"
    return _path_name(first, tuple(rest))


def _path_name(first: str, path: tuple[PathStep, ...]) -> str:
    return ".".join([first, *map(_key, path)])


def _key(part: PathStep) -> str:
    """Return one step of a path: of a dictionary, a sequence or a class."""
    for name in ("key", "idx", "name"):
        if hasattr(part, name):
            return str(getattr(part, name))
    return str(part).strip(".[]'\"")
