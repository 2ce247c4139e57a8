"""Passes: definition, registration and lookup by name.

    @register_pass
    @dataclass(frozen=True)
    class FoldConstant(Pass):
        \"\"\"Evaluate operators whose inputs are constants.\"\"\"

        name = "fold-constant"
        limit: int = option(1024, "largest result folded, in elements")

        def run(self, op, session):
            ...

The docstring is the help: its first line in lists, all of it under `mirlo-opt --help fold-constant`. A module with
passes is imported when one of them is requested: the registry scans the source files of the packages in `SEARCHED`,
and of those that installed distributions declare in the entry point group `mirlo.passes`.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import warnings
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from mirlo.dialects.bindings import ir
from mirlo.passes.options import RegistrationError, options_of, print_options
from mirlo.runtime.entry_points import offered
from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.fresh_process import note_plugin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirlo.passes.session import Session

CONTAINED: tuple[str, ...] = tuple(
    """
affine-data-copy-generate affine-expand-index-ops affine-expand-index-ops-as-affine affine-fold-memref-alias-ops
affine-loop-coalescing affine-loop-fusion affine-loop-invariant-code-motion affine-loop-normalize affine-loop-tile
affine-loop-unroll affine-loop-unroll-jam affine-parallelize affine-pipeline-data-transfer affine-raise-from-memref
affine-scalrep affine-simplify-min-max affine-simplify-structures affine-simplify-with-bounds affine-super-vectorize
arith-emulate-unsupported-floats arith-emulate-wide-int arith-expand arith-int-range-narrowing
arith-unsigned-when-equivalent bubble-down-memory-space-casts buffer-deallocation-pipeline
buffer-deallocation-simplification buffer-hoisting buffer-loop-hoisting buffer-results-to-out-params
bufferization-lower-deallocations canonicalize control-flow-sink convert-affine-for-to-gpu convert-arith-to-llvm
convert-arith-to-spirv convert-bufferization-to-memref convert-cf-to-llvm convert-cf-to-spirv convert-complex-to-libm
convert-complex-to-llvm convert-complex-to-spirv convert-complex-to-standard convert-elementwise-to-linalg
convert-func-to-llvm convert-func-to-spirv convert-gpu-to-llvm-spv convert-gpu-to-nvvm convert-gpu-to-spirv
convert-index-to-llvm convert-index-to-spirv convert-linalg-to-affine-loops convert-linalg-to-loops
convert-linalg-to-parallel-loops convert-linalg-to-std convert-math-to-funcs convert-math-to-libm convert-math-to-llvm
convert-math-to-nvvm convert-math-to-spirv convert-memref-to-spirv convert-nvgpu-to-nvvm convert-nvvm-to-llvm
convert-parallel-loops-to-gpu convert-pdl-to-pdl-interp convert-scf-to-cf convert-scf-to-spirv convert-spirv-to-llvm
convert-tensor-to-linalg convert-tensor-to-spirv convert-to-llvm convert-ub-to-llvm convert-ub-to-spirv
convert-vector-to-gpu convert-vector-to-llvm convert-vector-to-scf convert-vector-to-spirv cse
drop-equivalent-buffer-results eliminate-empty-tensors empty-tensor-to-alloc-tensor
ensure-debug-info-scope-on-llvm-func expand-realloc expand-strided-metadata finalize-memref-to-llvm flatten-memref
fold-memref-alias-ops fold-tensor-subset-ops generate-runtime-verification gpu-decompose-memrefs
gpu-eliminate-barriers gpu-kernel-outlining gpu-launch-sink-index-computations gpu-map-parallel-loops gpu-to-llvm
int-range-optimizations lift-cf-to-scf linalg-block-pack-matmul linalg-fold-into-elementwise
linalg-fold-unit-extent-dims linalg-fuse-elementwise-ops linalg-generalize-named-ops linalg-inline-scalar-operands
linalg-morph-ops linalg-specialize-generic-ops llvm-add-comdats llvm-legalize-for-export llvm-optimize-for-nvvm-target
llvm-request-c-wrappers llvm-target-to-data-layout llvm-target-to-target-features llvm-use-default-visibility
loop-invariant-code-motion loop-invariant-subset-hoisting lower-affine lower-host-to-llvm lower-vector-mask
lower-vector-multi-reduction lower-vector-to-from-elements-to-shuffle-tree map-memref-spirv-storage-class
math-expand-ops math-extend-to-supported-types math-sincos-fusion math-uplift-to-fma mem2reg
memref-elide-reinterpret-cast memref-emulate-wide-int memref-expand normalize-memrefs nvgpu-optimize-shared-memory
one-shot-bufferize optimize-allocation-liveness ownership-based-buffer-deallocation promote-buffers-to-stack
raise-scf-to-affine reconcile-unrealized-casts reify-result-shapes remove-dead-values
resolve-ranked-shaped-type-result-dims resolve-shaped-type-result-dims sccp scf-for-loop-canonicalization
scf-for-loop-peeling scf-for-loop-range-folding scf-for-loop-specialization scf-for-to-while scf-forall-to-for
scf-forall-to-parallel scf-parallel-for-to-nested-fors scf-parallel-loop-fusion scf-parallel-loop-specialization
scf-parallel-loop-tiling set-llvm-module-datalayout simplify-depthwise-conv spirv-attach-target spirv-canonicalize-gl
spirv-lower-abi-attrs spirv-promote-to-replicated-constants spirv-rewrite-inserts spirv-unify-aliased-resource
spirv-update-vce spirv-webgpu-prepare sroa strip-debuginfo symbol-dce symbol-privatize topological-sort trivial-dce
""".split()  # noqa: SIM905 (a list of one name per line would fill a screen)
)
"""Passes that change nothing but the operation they run on: a pipeline that comes from a file may run these."""

CONTAINED_WITHOUT_OPTIONS = ("inline",)
"""Passes that are contained without options: those of `inline` are pipelines."""

_UNSAFE_PASSES = (
    "gpu-lower-to-nvvm-pipeline",
    "gpu-module-to-binary",
    "nvvm-attach-target",
    "print-ir",
    "print-op-stats",
    "snapshot-op-locations",
    "transform-dialect-check-uses",
    "transform-infer-effects",
    "transform-interpreter",
    "transform-preload-library",
    "view-op-graph",
)
"""Passes that write files, print, start programs, or interpret the module."""

UPSTREAM_NAMES: tuple[str, ...] = tuple(sorted((*CONTAINED, *CONTAINED_WITHOUT_OPTIONS, *_UNSAFE_PASSES)))


SEARCHED = ["mirlo.passes", "mirlo.targets"]
"""Packages whose modules may register passes. Add a directory of passes here or with the entry point group."""

PLUGINS = "mirlo.passes"
"""The entry point group in which other distributions declare their packages of passes."""

__all__ = [
    "Pass",
    "PassError",
    "RegistrationError",
    "find_pass",
    "load_all",
    "load_plugin",
    "option",
    "register_pass",
    "summary",
]

ROOT_ANCHOR = "builtin.module"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_REGISTERS = re.compile(rb"^@(?:\w+\.)*register_pass\b", re.MULTILINE)
_MENTIONS = re.compile(rb"""\bname\b[^\n]*=\s*['"]([a-z][a-z0-9-]*)['"]""")

Default = TypeVar("Default")
"""The type of an option: that of the field."""


class PassError(MirloError):
    """Raised by a pass that cannot proceed: a message for the user and, if known, the location in their model."""

    error_code = "MIR0401"
    remedy = "Correct the options of the pass, or the model at the location that the message names."

    def __init__(self, message: str, location: ir.Location | None = None):
        super().__init__(message)
        self.message = message
        self.location = location


class Pass:
    """A pass over operations of one kind. Subclasses are frozen dataclasses; their fields are the options."""

    name: ClassVar[str] = ""
    anchor: ClassVar[str] = ROOT_ANCHOR
    """The operation it runs on: `builtin.module`, or `func.func` to run on each function."""
    trusted: ClassVar[bool] = False
    """Whether a compilation may skip verifying its output: it runs no rules or code of users, and has tests."""

    keeps_layers: ClassVar[bool] = False
    """Whether it decides from an operator and what is around it, so that it changes a layer of a model in the same way
    if there are fewer equal layers before and after it."""

    contained: ClassVar[bool] = False
    """Whether it only changes the module: it writes no files, starts no processes, and neither runs nor reads
    anything that its options name. Only such passes may be run on behalf of a file."""

    def is_trusted(self, session: Session) -> bool:
        """Return `trusted`; overridden by passes for which it depends on rules of users."""
        return self.trusted

    def is_contained(self) -> bool:
        """Return `contained`; overridden by passes for which it depends on their options."""
        return self.contained

    def run(self, op: ir.OpView, session: Session) -> None:
        """Transform `op` in place. Raise `PassError` if that is impossible."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.name}{print_options(self)}"


def option(default: Default, help: str) -> Default:
    """Declare a field of a pass as an option, with its default and one line of help."""
    return dataclasses.field(default=default, metadata={"help": help})


RENAMED = {"turn-weights": "transpose-weights"}
"""Names of passes of the last version that were renamed; they still work in this one, with a warning."""
PassClass = TypeVar("PassClass", bound=type[Pass])
_REGISTERED: dict[str, type[Pass]] = {}


def register_pass(cls: PassClass) -> PassClass:
    """Register a pass by its name (class decorator)."""
    where = f"{cls.__module__}.{cls.__qualname__}"
    if not _NAME.fullmatch(cls.name):
        raise RegistrationError(f"{where}: a pass needs a name such as 'fold-constant', got '{cls.name}'")
    if not dataclasses.is_dataclass(cls):
        raise RegistrationError(f"{where}: put @dataclass(frozen=True) between @register_pass and the class")
    if cls.run is Pass.run:
        raise RegistrationError(f"{where}: the pass has no 'run' method")
    if not summary(cls):
        raise RegistrationError(f"{where}: the pass has no docstring; its first line is the help")
    if cls.name in UPSTREAM_NAMES:
        raise RegistrationError(f"{where}: '{cls.name}' is the name of a pass of MLIR")
    options_of(cls)
    known = _REGISTERED.get(cls.name)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise RegistrationError(f"pass '{cls.name}' is registered twice: in {known.__module__} and in {cls.__module__}")
    _REGISTERED[cls.name] = cls
    return cls


def forget_passes(module: str) -> None:
    """Remove the passes that a module registered."""
    for name in [name for name, cls in _REGISTERED.items() if cls.__module__ == module]:
        del _REGISTERED[name]


def summary(cls: type[Pass]) -> str:
    """Return the one-line help of a pass."""
    # The default docstring of a dataclass is its signature.
    doc = cls.__doc__ or ""
    return "" if doc.startswith(f"{cls.__name__}(") else doc.strip().split("\n")[0]


def find_pass(name: str) -> type[Pass] | None:
    """Return the pass with this name, or None. Imports only the modules that mention the name."""
    if name in RENAMED:
        warnings.warn(f"the pass '{name}' is now called '{RENAMED[name]}'", DeprecationWarning, stacklevel=2)
        name = RENAMED[name]
    if name in _REGISTERED:
        return _REGISTERED[name]
    if not _NAME.fullmatch(name) or name in UPSTREAM_NAMES:
        return None
    _warn_of_packages_without_passes(tuple(sys.path))
    for module, path in _nearest_first(name):
        if name not in (_passes_named(path) or ()):
            continue
        importlib.import_module(module)
        if name in _REGISTERED:
            return _REGISTERED[name]
    for package in _plugin_packages():
        for module in _pass_modules(package):
            importlib.import_module(module)
    return _REGISTERED.get(name)


def load_all() -> dict[str, type[Pass]]:
    """Return every pass by name, sorted; imports all modules that register passes."""
    for package in [*SEARCHED, *_plugin_packages()]:
        for module in _pass_modules(package):
            importlib.import_module(module)
    return dict(sorted(_REGISTERED.items()))


def load_plugin(name: str) -> None:
    """Import a module with passes that is not installed: a file `passes.py`, or a module's name.

    A file can import modules in its folder, as a program can. Processes that this one starts load it, too.
    """
    if not name.endswith(".py"):
        _import_plugin(name)
        note_plugin(name)
        return
    module_name = f"mirlo_plugin_{Path(name).stem}"
    spec = importlib.util.spec_from_file_location(module_name, name)
    if spec is None or spec.loader is None or not Path(name).is_file():
        beside = [str(path) for path in Path(name).parent.glob("*.py")]
        raise FileNotFoundError(f"no such file: '{name}'{nearest(name, beside)}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    folder = str(Path(name).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec.loader.exec_module(module)
    note_plugin(name)


def _import_plugin(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing != name and not name.startswith(f"{missing}."):
            raise  # a module that the plug-in imports
        package, dot, _ = missing.rpartition(".")
        spec = importlib.util.find_spec(package) if package else None
        beside = pkgutil.iter_modules(_folders(spec) if package else None)
        known = [f"{package}{dot}{module.name}" for module in beside]
        raise ModuleNotFoundError(f"no module named '{missing}'{nearest(missing, known)}", name=missing) from None


def _folders(spec: ModuleSpec | None) -> list[str]:
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _plugin_packages() -> list[str]:
    """Return the packages that provide passes; looked up again when the import path has changed."""
    return [entry.value for entry in offered(PLUGINS) if entry.value not in SEARCHED]


@cache
def _warn_of_packages_without_passes(path: tuple[str, ...]) -> None:
    """Warn about packages that are declared to have passes, and have none, once for an import path."""
    for entry in offered(PLUGINS):
        if entry.value not in SEARCHED and not _pass_modules(entry.value):
            warnings.warn(
                f"entry point '{entry.name}' of package '{entry.package}' in group {PLUGINS} has no pass, so that "
                f"nothing imports it: '{entry.value}' registers none with @register_pass. Modules with rules are in "
                "group mirlo.rules",
                stacklevel=2,
            )


def _pass_modules(package: str) -> list[str]:
    """Return the modules of a package that register passes, without importing them."""
    return [module for module, path in _modules(package).items() if _passes_named(path) is not None]


@cache
def _modules(package: str) -> dict[str, Path]:
    """Return all modules of a package, and their files."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise RegistrationError(f"package '{package}', named as holding passes, does not exist")
    if spec.submodule_search_locations is None:
        return {package: Path(spec.origin or "")}
    modules = {}
    for root in spec.submodule_search_locations:
        for folder, folders, files in os.walk(root):
            folders.sort()
            inside = os.path.relpath(folder, root).split(os.sep)
            parts = [package, *(part for part in inside if part != os.curdir)]
            for file in sorted(files):
                if file.endswith(".py"):
                    stem = file.removesuffix(".py")
                    modules[".".join(parts if stem == "__init__" else [*parts, stem])] = Path(folder, file)
    return modules


def _nearest_first(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules that may register a pass, with their files: those first whose names are near that of the pass.

    Reading all of them is slow, and most passes are where their names say.
    """
    files = _files_by_stem(tuple(SEARCHED))
    own = [stem for stem in dict.fromkeys([name.replace("-", "_"), *name.split("-")]) if stem in files]
    for stem in own:
        yield from files[stem]
    others = [row for stem, rows in files.items() if stem not in own for row in rows]
    yield from sorted(others, key=lambda row: _distance(name, row[0]))


@cache
def _files_by_stem(packages: tuple[str, ...]) -> dict[str, list[tuple[str, Path]]]:
    """Return all modules of packages, with their files, by the last parts of their names."""
    files: dict[str, list[tuple[str, Path]]] = {}
    for package in packages:
        for module, path in _modules(package).items():
            files.setdefault(module.rpartition(".")[2], []).append((module, path))
    return files


def _distance(name: str, module: str) -> int:
    """Return the distance of a module's name from a pass's."""
    *folders, stem = module.split(".")
    words = name.split("-")
    if any(word[:3] == stem[:3] for word in words):
        return 1
    return 3 if set(words).isdisjoint(folders) else 2


@cache
def _passes_named(path: Path) -> frozenset[str] | None:
    """Return the names in a source that registers passes; None for others. Cached per process."""
    source = path.read_bytes()
    if b"register_pass" not in source or not _REGISTERS.search(source):
        return None
    return frozenset(name.decode() for name in _MENTIONS.findall(source))
