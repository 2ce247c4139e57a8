"""Dependencies of a traced model, versions and files, found without importing PyTorch or transformers."""

from __future__ import annotations

from functools import cache
from importlib import metadata, util
from pathlib import Path

from mirlo.extend.runtime import digest_of_sources
from mirlo_llm.generate.checkpoints.architectures import has_architecture, unread_keys
from mirlo_llm.generate.checkpoints.image_options import own_config, read_image_options
from mirlo_llm.generate.code_options import AUTO, TRANSFORMERS, CodeOptions
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import JsonObject

CONVERTERS = "mirlo_torch"
"""The package that builds graphs of exported programs."""
PACKAGES = ("mirlo-torch", "torch", "transformers")
LEAST = {"torch": (2, 9), "transformers": (5, 24)}
"""The oldest supported versions."""
INSTALL = "pip install 'mirlo-llm[transformers]'"


def is_traced(root: JsonObject, code: CodeOptions) -> bool:
    """Return whether a model is compiled from the code of transformers instead of Mirlo's graphs.

    That is the default if Mirlo lacks the architecture or does not know a key that may change results.

    Mirlo's does not, where a configuration has a key that may change what is computed, and that Mirlo does not know.
    """
    if code.model_impl == TRANSFORMERS:
        return True
    config, has_images = own_config(root), read_image_options(root) is not None
    if not has_architecture(config):
        return code.model_impl == AUTO and not has_images
    of_images = root.read if config is root else set()
    unread = [key for key in unread_keys(config) if key not in of_images]
    if not unread:
        return False
    if code.model_impl == AUTO and not has_images and versions() is not None:
        return True
    what = f"Mirlo's definition of '{config.text('model_type'):.40}' does not know this key"
    raise config.refuse(unread[0], f"{what}: use the code of transformers (--model-impl transformers): {INSTALL}")


def traced_sources(root: JsonObject, code: CodeOptions) -> tuple[list[Path], str]:
    """Return the code files that a model depends on, and a text with the versions of packages."""
    kind = root.text("model_type", "unknown")
    found = require_versions(root.path, kind)
    own = folder_code(root.path.parent) if code.trust_remote_code else []
    use = " ".join(f"{name} {version}" for name, version in found.items())
    use += f" {_converters_digest()}" + (" trusted" if code.trust_remote_code else "")
    return [*modeling_files(kind), *own], use


@cache
def _converters_digest() -> str:
    """Return a digest of the package that builds graphs of exported programs."""
    spec = util.find_spec(CONVERTERS)
    return "" if spec is None or spec.origin is None else digest_of_sources([Path(spec.origin).parent])


def versions() -> dict[str, str] | None:
    """Return the versions of the packages; None if one is not installed."""
    try:
        return {name: metadata.version(name) for name in PACKAGES}
    except metadata.PackageNotFoundError:
        return None


def require_versions(path: Path, kind: str) -> dict[str, str]:
    """Return the versions of the packages; raise an error if one is missing or too old."""
    found = versions()
    if found is None:
        what = f"'{kind:.40}' is not an architecture that Mirlo has itself: it needs transformers' code: {INSTALL}"
        raise ModelFolderError(f"{path}: 'model_type': {what}; or export the model to ONNX")
    for name, least in LEAST.items():
        parts = tuple(int(part) for part in found[name].split("+")[0].split(".")[:2] if part.isdigit())
        if parts < least:
            wanted = ".".join(map(str, least))
            raise ModelFolderError(f"{path}: {name} {found[name]} is too old: expected {wanted} or newer: {INSTALL}")
    return found


def modeling_files(kind: str) -> list[Path]:
    """Return the code files of an architecture in transformers.

    Text-only architectures may be in the folder of a model with images: `qwen3_5_text` in `qwen3_5`.
    """
    spec = util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return []
    root, name = Path(spec.origin).parent / "models", kind.replace("-", "_")
    while name:
        if (root / name).is_dir():
            return sorted((root / name).glob("*.py"))
        name = name.rpartition("_")[0]
    return []


def folder_code(folder: Path) -> list[Path]:
    """Return the Python files in a model's folder."""
    return sorted(folder.glob("*.py"))
