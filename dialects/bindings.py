"""The only module that names the package of MLIR's Python bindings.

Other modules use `from mirlo.dialects.bindings import ir, arith`. Upstream dialect modules are imported on first
use, because each adds start-up time and most commands need few of them.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mirlo.dialects import wheel
from mirlo.runtime import system

if TYPE_CHECKING:
    # Under their own names, which says that they are imported for others.
    from mirlo.dialects.stubs import affine as affine
    from mirlo.dialects.stubs import arith as arith
    from mirlo.dialects.stubs import func as func
    from mirlo.dialects.stubs import gpu as gpu
    from mirlo.dialects.stubs import ir as ir
    from mirlo.dialects.stubs import memref as memref
    from mirlo.dialects.stubs import passmanager as passmanager
    from mirlo.dialects.stubs import rewrite as rewrite
    from mirlo.dialects.stubs import scf as scf
    from mirlo.dialects.stubs import tensor as tensor

CORE_MODULES = ("ir", "passmanager", "rewrite", "execution_engine")
DIALECT_MODULES = (
    *("affine", "arith", "bufferization", "builtin", "cf", "func", "gpu", "index", "irdl", "linalg", "llvm", "math"),
    *("memref", "nvgpu", "nvvm", "scf", "spirv", "tensor", "transform", "ub", "x86"),
)

BUILT_DIALECTS = (
    *("affine", "arith", "cf", "func", "gpu", "index", "llvm", "math", "memref", "nvgpu", "nvvm", "scf", "tensor"),
    *("ub", "vector", "x86"),
)
"""Dialects whose operations Mirlo builds itself. Other dialects are loaded by parsed text or by passes."""


def _find_package() -> str:
    problems = []
    for name in wheel.MODULES:
        try:
            module = importlib.import_module(f"{name}.ir")
        except ImportError:
            continue
        missing = wheel.lacks(module)
        if not missing:
            return name
        problems.append(f"'{name}' ({wheel.installed() or 'of no known package'}) lacks {', '.join(missing)}")
    why = f": {'; '.join(problems)}" if problems else ""
    raise ImportError(
        f"the MLIR Python bindings are missing{why}: install the wheel that Mirlo depends on with "
        f"'pip install {wheel.REQUIREMENT}' (it needs no torch)"
    )


PACKAGE = _find_package()
if not TYPE_CHECKING:
    ir = importlib.import_module(f"{PACKAGE}.ir")


system.register_code(Path(importlib.import_module(f"{PACKAGE}._mlir_libs").__file__ or "").parent)


def _leave_views_out(namespace: str) -> None:
    """Mark a dialect as imported, so that the bindings do not import its classes.

    Its operations are generic views until a caller that needs the classes imports the module.
    """
    name = f"{PACKAGE}.dialects.{namespace}"
    if name in sys.modules:
        return
    sys.modules[name] = types.ModuleType(name)
    try:
        importlib.import_module(f"{PACKAGE}._mlir_libs._mlir").globals._check_dialect_module_loaded(namespace)
    finally:
        del sys.modules[name]


# Creating their classes takes 70 and 20 ms per compiling process, which uses none of them.
_leave_views_out("llvm")
_leave_views_out("vector")


def __getattr__(name: str) -> ModuleType:
    if name in CORE_MODULES:
        module: ModuleType = importlib.import_module(f"{PACKAGE}.{name}")
    elif name in DIALECT_MODULES:
        module = importlib.import_module(f"{PACKAGE}.dialects.{name}")
    elif name == "_cext":
        module = importlib.import_module(f"{PACKAGE}.dialects._ods_common")._cext
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = module
    return module


def new_context(dialects: tuple[str, ...] = BUILT_DIALECTS) -> ir.Context:
    """Return a context with these upstream dialects; others are loaded when text or a pass needs them.

    Loading all of them eagerly, as the bindings do, makes context creation and every pass several times slower.
    """
    context = ir.Context(load_on_create_dialects=())
    # Python verifiers called from MLIR's pool threads deadlock on the interpreter lock.
    context.enable_multithreading(False)
    for name in dialects:
        context.get_dialect_descriptor(name)
    return context


def load_irdl(module: ir.Module) -> None:
    """Load the dialects that an IRDL module defines into its context."""
    # Importing the dialect's module would also create the classes of IRDL operations, which are slow and unused.
    importlib.import_module(f"{PACKAGE}._mlir_libs._mlirDialectsIRDL").load_dialects(module)


def translate_to_llvm_ir(module: ir.Operation) -> str:
    """Return the LLVM IR of a module of the LLVM dialect, without importing the classes of its operations."""
    library = importlib.import_module(f"{PACKAGE}._mlir_libs._mlirDialectsLLVM")
    text: str = library.translate_module_to_llvmir(module)
    return text


def claim_dialect_module(namespace: str) -> None:
    """Stop the bindings from searching for a module of this dialect at each operation they wrap (40 times faster)."""
    name = f"{PACKAGE}.dialects.{namespace}"
    sys.modules.setdefault(name, types.ModuleType(name))


def stablehlo() -> ModuleType:
    """Return the bindings of StableHLO: attributes, portable bytecode, registration of its dialect."""
    try:
        return importlib.import_module(f"{PACKAGE}._mlir_libs._stablehlo")
    except ImportError:
        raise ImportError(
            f"these MLIR bindings have no StableHLO: install the wheel that Mirlo depends on, {wheel.REQUIREMENT}"
        ) from None
