"""Compilation to code for inspection: an artifact that is not loaded, or the text of each kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.driver.build import build
from mirlo.driver.compiler import Compiler
from mirlo.driver.request import CompileRequest
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.code_forms import CodeForm, KernelText, with_comments
from mirlo.passes.locations import kernel_nodes
from mirlo.passes.targets import CompileOptions, TargetError, code_form, code_target, makes_libraries, makes_source
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass

SOURCE = "source"
"""The form of code that is the source of a whole model."""


class UnknownKernel(MirloError, KeyError):
    """The model has no kernel of this name."""

    error_code = "MIR0614"
    remedy = "Name a kernel that the message lists; `mirlo info` shows those of a model."

    __str__ = MirloError.__str__


@dataclass(frozen=True)
class KernelListing:
    """The code of a kernel, as it is written to a file."""

    symbol: str
    """What the code calls it."""
    function: str
    """What reports call it."""
    nodes: tuple[str, ...]
    """The nodes of the model that it computes."""
    form: CodeForm
    content: bytes
    """The code; in a form that is text after comments that name the kernel and its nodes."""


def compile_code(request: CompileRequest) -> tuple[Artifact, ParameterStore]:
    """Compile a model to an artifact of LLVM IR or C source, the form of the request; return it and its weights."""
    request = request.with_fixed_dims()
    compiler = Compiler(request, build)
    if request.form == SOURCE and not makes_source(compiler.target.name):
        raise TargetError(f"target '{compiler.target.name}' does not generate source of whole models: use target 'c'")
    if request.form not in ("", SOURCE) and not makes_libraries(compiler.target.name):
        raise TargetError(
            f"target '{compiler.target.name}' does not build libraries: use one that does, such as 'llvm'"
        )
    compiled, session = compiler.run()
    if not isinstance(compiled, Artifact):
        raise TargetError(
            "the model works on sequences, optional values or strings, which the run time computes in Python: there is "
            "no code of it as a whole; export the part that works on tensors"
        )
    return compiled, session.params


def kernel_listings(request: CompileRequest, form: str, kernel: str | None = None) -> list[KernelListing]:
    """Compile a request to the code of its kernels in a form of its target; with a name, of that kernel only."""
    compiler = Compiler(replace(request, form=form, kernel=kernel or ""), build)
    chosen = code_form(compiler.target, form)
    return _listings(compiler.list_kernels(), chosen, kernel, compiler.kernel_names)


def listings_of_module(module: ir.Module, target: str, form: str, kernel: str | None = None) -> list[KernelListing]:
    """Return the code of the kernels of a module that went through the pipeline of a target, which is consumed."""
    targets = Targets.parse(target or "llvm").or_host()
    host = targets.host_target
    assert targets.host is not None
    chosen, source = code_form(host, form), code_target(host)
    nodes = kernel_nodes(module)
    options = CompileOptions(host.name, target_options=targets.host.options, form=form, kernel=kernel or "")
    with module.context, ir.Location.unknown():
        texts = source.code(module, options)
    listings = [(text, nodes.get(text.function, [])) for text in texts]
    return _listings(listings, chosen, kernel, nodes)


def _listings(
    texts: Iterable[tuple[KernelText, Sequence[str]]], form: CodeForm, kernel: str | None, names: Iterable[str]
) -> list[KernelListing]:
    listings = [
        KernelListing(text.symbol, text.function, tuple(nodes), form, with_comments(text, nodes, form))
        for text, nodes in texts
    ]
    if kernel is None:
        return listings
    wanted = [listing for listing in listings if kernel in (listing.function, listing.symbol)]
    if not wanted:
        known = sorted(names)
        raise UnknownKernel(
            f"the model has no kernel '{kernel}'{nearest(kernel, known)}; its kernels: {', '.join(known) or 'none'}"
        )
    return wanted


def code_of_kernel(request: CompileRequest, kernel: str, form: str | None = None) -> str | bytes:
    """Return the code of a kernel in a form; by default in the last form of the target that is text."""
    if form is None:
        target = code_target(Targets.parse(request.target).host_target)
        forms = [known.name for known in target.forms if known.is_text]
        if not forms:
            raise TargetError(f"target '{target.name}' generates no code that is text")
        form = forms[-1]
    listings = kernel_listings(replace(request, save_ir=None), form, kernel)
    contents = [listing.content for listing in listings]
    if listings[0].form.is_text:
        return "\n".join(content.decode() for content in contents)
    if len(contents) > 1:
        symbols = ", ".join(listing.symbol for listing in listings)
        raise UnknownKernel(f"'{kernel}' runs several kernels, each with its own code: name one of {symbols}")
    return contents[0]
