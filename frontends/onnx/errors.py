"""Errors of the import: one error for users, and the report of several problems."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass


class OnnxImportError(MirloError, ValueError):
    """A model that cannot be imported; the message names the file, node, tensor or input and what to do."""

    error_code = "MIR0301"
    remedy = "Correct the model as the message says; `onnx.checker` finds invalid ones."


class DamagedModelError(OnnxImportError):
    """A file or bytes that are no ONNX model, or that are truncated or damaged."""

    error_code = "MIR0302"
    remedy = "Copy or export the file again: it is not complete."


class UnsupportedOperatorError(OnnxImportError):
    """A model with nodes whose operators have no converter."""

    error_code = "MIR0303"
    remedy = (
        "Attach a converter or a prim function to the operator (`mirlo.onnx_operator`), or export the model without it."
    )


class NodeError(OnnxImportError):
    """A problem with one node, before the node's name and inputs are added."""

    error_code = "MIR0304"
    remedy = "Correct the attributes or inputs of the node that the message names."


class ConverterError(OnnxImportError):
    """A converter or shape function of a node raised an exception by mistake."""

    error_code = "MIR0305"
    remedy = "Correct the converter at the file and line that the message names."

    internal = True
    bug_of = "converter or shape function"


@dataclass(frozen=True)
class Unsupported:
    """A node whose operator has no converter in the model's opset."""

    domain: str
    operator: str
    opset: int
    node: str
    supported_since: tuple[int, ...] = ()
    """Opsets in which this operator is supported; empty if it is unknown."""


SHOWN_NODES = 5
"""Node names per group that are listed before the rest is counted."""


def unsupported_report(model: str, unsupported: Sequence[Unsupported], known: Iterable[tuple[str, str]]) -> str:
    """Return one message for all nodes without a converter, grouped by operator; `known` are the supported ones."""
    groups: dict[tuple[str, str, int], list[Unsupported]] = {}
    for item in unsupported:
        groups.setdefault((item.domain, item.operator, item.opset), []).append(item)
    names = by_domain(known)
    lines = [f"{model}: {plural(len(unsupported), 'node')} of {plural(len(groups), 'operator')} cannot be imported:"]
    for (domain, operator, opset), nodes in sorted(groups.items()):
        version = f"opset {opset}" if opset else "which the model does not import"
        listed = list_names([item.node for item in nodes])
        lines.append(f"  {operator} (domain {domain_name(domain)}, {version}): {listed}")
        lines.append(f"    {what_is_supported(domain, operator, nodes[0].supported_since, names)}")
    lines.append("Rewrite these nodes with supported operators, or give each operator a function body in the model.")
    return "\n".join(lines)


def by_domain(known: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names of operators by domain."""
    names: dict[str, list[str]] = {}
    for domain, operator in known:
        names.setdefault(domain, []).append(operator)
    return names


def what_is_supported(domain: str, operator: str, since: tuple[int, ...], names: dict[str, list[str]]) -> str:
    """Return the list of supported operators that the error for an unsupported one contains."""
    if since:
        return f"not supported in this version of the operator set, but from opset {' and '.join(map(str, since))}"
    if domain not in names:
        domains = ", ".join(sorted(map(domain_name, names)))
        return (
            f"no operator of this domain is supported; domains that are: {domains}; define it with "
            f"mirlo.onnx_operator('{domain}', '{operator}', ...), on the command line in a file: --plugin FILE.py"
        )
    near = difflib.get_close_matches(operator, names[domain], n=3, cutoff=0.7)
    if near:
        return f"supported, and of a similar name: {', '.join(near)}"
    return "no version of it is supported, nor is anything of a similar name"


def domain_name(domain: str) -> str:
    """Return the domain's display name; the default one has a name too."""
    return domain or "ai.onnx"


def list_names(names: Sequence[str], shown: int = SHOWN_NODES) -> str:
    text = ", ".join(f"'{name}'" for name in names[:shown])
    return text if len(names) <= shown else f"{text} and {len(names) - shown} more"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest one, or some of those that exist."""
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are: {list_names(choices, 8) or 'none'}"
