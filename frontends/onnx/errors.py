"""What goes wrong with a model: one error for users, and how several problems are told in it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mirlo.runtime.errors import MirloError


class OnnxImportError(MirloError, ValueError):
    """A model that cannot be imported; the message names the file, node, tensor or input and what to do."""


class NodeError(OnnxImportError):
    """What is wrong with one node, before it is put into words with the node's name and inputs."""


@dataclass(frozen=True)
class Unsupported:
    """A node whose operator has no converter, in the version that the model asks for."""

    domain: str
    operator: str
    opset: int
    node: str
    supported_since: tuple[int, ...] = ()
    """Versions of this operator that are supported; empty where it is not known at all."""


SHOWN_NODES = 5
"""How many node names of one group are told before the rest is counted."""


def unsupported_report(model: str, found: Sequence[Unsupported], known: Iterable[tuple[str, str]]) -> str:
    """One message for all nodes that have no converter, grouped by operator."""
    groups: dict[tuple[str, str, int], list[Unsupported]] = {}
    for item in found:
        groups.setdefault((item.domain, item.operator, item.opset), []).append(item)
    total, kinds = len(found), len(groups)
    lines = [f"{model}: {plural(total, 'node')} of {plural(kinds, 'operator')} cannot be imported:"]
    names = sorted(f"{domain_name(domain)}.{operator}" for domain, operator in known)
    for (domain, operator, opset), nodes in sorted(groups.items()):
        lines.append(
            f"  {operator} (domain {domain_name(domain)}, opset {opset}): {list_names([n.node for n in nodes])}"
        )
        lines.append(f"    {_what_is_supported(domain, operator, nodes[0].supported_since, names)}")
    lines.append("Rewrite these nodes with supported operators, or give each operator a function body in the model.")
    return "\n".join(lines)


def _what_is_supported(domain: str, operator: str, since: tuple[int, ...], names: list[str]) -> str:
    if since:
        return f"supported from opset {' and '.join(map(str, since))}"
    near = difflib.get_close_matches(f"{domain_name(domain)}.{operator}", names, n=3, cutoff=0.7)
    if near:
        return f"supported and of a similar name: {', '.join(near)}"
    domains = sorted({name.rsplit(".", 1)[0] for name in names})
    if domain_name(domain) not in domains:
        return f"no operator of this domain is supported; domains: {', '.join(domains)}"
    return "no version of it is supported"


def domain_name(domain: str) -> str:
    """The domain as people write it: the default one has a name too."""
    return domain or "ai.onnx"


def list_names(names: Sequence[str], shown: int = SHOWN_NODES) -> str:
    text = ", ".join(f"'{name}'" for name in names[:shown])
    return text if len(names) <= shown else f"{text} and {len(names) - shown} more"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that does not exist: the nearest that does, or some of them."""
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are: {list_names(choices, 8) or 'none'}"
