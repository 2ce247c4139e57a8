"""External artifacts in the IR: the attribute `relax.external_artifacts` of a module.

relax.external_artifacts = {
  c = {format = "c", functions = ["c_0"], params = ["w"], data = dense<...> : tensor<16264xui8>, metadata = "{}"}}
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.runtime.names import unused_name

if TYPE_CHECKING:
    from mirlo.runtime.external import ExternalArtifact

ARTIFACTS = "relax.external_artifacts"


class ArtifactFormError(ValueError):
    """An external artifact in the IR is malformed."""


def attach_artifact(module: ir.Module | ir.Operation, artifact: ExternalArtifact) -> str:
    """Add an artifact to a module under a unique name made from its target; returns the name."""
    present = _entries(module)
    key = unused_name(artifact.target, present, ".")
    module.operation.attributes[ARTIFACTS] = ir.DictAttr.get({**present, key: _encode(artifact)})
    return key


def artifacts_of(module: ir.Module | ir.Operation) -> tuple[ExternalArtifact, ...]:
    """Return the external artifacts of a module."""
    return tuple(_decode(key, entry) for key, entry in _entries(module).items())


def params_of_artifacts(module: ir.Operation) -> list[str]:
    """Return the names of the constants that a module's artifacts need, without reading their data."""
    entries = [dict(_items(ir.DictAttr(entry))) for entry in _entries(module).values()]
    return [name for entry in entries if "params" in entry for name in _texts(entry, "params")]


def artifact_problem(attribute: ir.Attribute) -> str | None:
    """Return what is wrong with a value of the attribute, or None."""
    if not isinstance(attribute, ir.DictAttr):
        return f"it must be a dictionary of artifacts, got {attribute}"
    for key, entry in _items(attribute):
        try:
            _decode(key, entry)
        except ArtifactFormError as error:
            return f"its artifact '{key}' {error}"
    return None


def detach_artifacts(module: ir.Module) -> tuple[ExternalArtifact, ...]:
    """Remove the artifacts from a module and return them."""
    result = artifacts_of(module)
    if ARTIFACTS in module.operation.attributes:
        del module.operation.attributes[ARTIFACTS]
    return result


def _entries(module: ir.Module | ir.Operation) -> dict[str, ir.Attribute]:
    attributes = module.operation.attributes
    return dict(_items(ir.DictAttr(attributes[ARTIFACTS]))) if ARTIFACTS in attributes else {}


def _items(dictionary: ir.DictAttr) -> list[tuple[str, ir.Attribute]]:
    return [(named.name, named.attr) for named in (dictionary[i] for i in range(len(dictionary)))]


def _encode(artifact: ExternalArtifact) -> ir.Attribute:
    def strings(names: tuple[str, ...]) -> ir.Attribute:
        return ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])

    entry = {
        "target": ir.StringAttr.get(artifact.target),
        "format": ir.StringAttr.get(artifact.format),
        "functions": strings(artifact.functions),
        "params": strings(artifact.params),
        "metadata": ir.StringAttr.get(json.dumps(dict(artifact.metadata), sort_keys=True)),
    }
    if artifact.data:
        entry["data"] = _dense(artifact.data)
    return ir.DictAttr.get(entry)


def _dense(data: bytes) -> ir.Attribute:
    kind = ir.RankedTensorType.get([len(data)], ir.IntegerType.get_unsigned(8))
    return ir.DenseElementsAttr.get(np.frombuffer(data, np.uint8), type=kind)


def _decode(key: str, attribute: ir.Attribute) -> ExternalArtifact:
    if not isinstance(attribute, ir.DictAttr):
        raise ArtifactFormError(f"must be a dictionary, got {attribute}")
    entry = dict(_items(attribute))
    for name in ("format", "functions", "params"):
        if name not in entry:
            raise ArtifactFormError(f"lacks '{name}'")
    try:
        metadata = json.loads(_text(entry, "metadata", "{}"))
    except ValueError:
        raise ArtifactFormError("has 'metadata' that is not JSON") from None
    if not isinstance(metadata, dict):
        raise ArtifactFormError("has 'metadata' that is not a JSON object")
    from mirlo.runtime.external import ExternalArtifact  # few modules hold any

    return ExternalArtifact(
        format=_text(entry, "format"), functions=_texts(entry, "functions"), data=_bytes(entry),
        params=_texts(entry, "params"), metadata=metadata, target=_text(entry, "target", key),
    )  # fmt: skip


def _text(entry: dict[str, ir.Attribute], name: str, default: str | None = None) -> str:
    if name not in entry and default is not None:
        return default
    if not isinstance(entry[name], ir.StringAttr):
        raise ArtifactFormError(f"has a '{name}' that is not a string")
    return str(entry[name].value)


def _texts(entry: dict[str, ir.Attribute], name: str) -> tuple[str, ...]:
    value = entry[name]
    if not isinstance(value, ir.ArrayAttr) or not all(isinstance(item, ir.StringAttr) for item in value):
        raise ArtifactFormError(f"has '{name}' that is not a list of strings")
    return tuple(item.value for item in value)


def _bytes(entry: dict[str, ir.Attribute]) -> bytes:
    if "data" not in entry:
        return b""
    try:
        array = np.array(ir.DenseElementsAttr(entry["data"]))
    except (TypeError, ValueError, BufferError):
        raise ArtifactFormError("has 'data' that is not a dense attribute of ui8") from None
    if array.ndim != 1 or array.dtype.itemsize != 1:
        raise ArtifactFormError("has 'data' that is not a list of ui8")
    return array.tobytes()
