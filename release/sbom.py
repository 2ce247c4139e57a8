"""The bill of materials of a release, as CycloneDX: `python -m release.sbom dist/mirlo-VERSION-*.whl -o FILE.json`.

Its components are the packages that a plain installation of the wheel brings, in the versions of this environment, with
their licenses and the digests that the index gives files. The weights of models are no part of Mirlo.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import uuid
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import Any

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"\bextra\s*==")


def bill_of_materials(wheel: Path) -> dict[str, Any]:
    """Return the bill of a wheel; its serial number follows from the wheel's digest, so that it can be made again."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    own = _metadata_of(wheel)
    root = f"pkg:pypi/{own['Name']}@{own['Version']}"
    packages = {name: metadata.distribution(name) for name in sorted(_closure(own.get_all("Requires-Dist") or []))}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": own["Name"],
                "version": own["Version"],
                "purl": root,
                "licenses": _licenses(own),
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": [_component(name, distribution) for name, distribution in packages.items()],
        "dependencies": [
            {"ref": root, "dependsOn": sorted(_purl(name) for name in _names(own.get_all("Requires-Dist") or []))},
            *(
                {"ref": _purl(name), "dependsOn": sorted(_purl(each) for each in _names(distribution.requires or []))}
                for name, distribution in packages.items()
            ),
        ],
    }


def _metadata_of(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return Parser().parsestr(archive.read(name).decode("utf-8"))


def _names(requirements: list[str]) -> Iterator[str]:
    """Yield the installed packages that requirements name, those of extras left out."""
    for text in requirements:
        match = _NAME.match(text)
        if match is None or _EXTRA.search(text.partition(";")[2]):
            continue
        name = re.sub(r"[-_.]+", "-", match[0]).lower()
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if ";" not in text:
                raise SystemExit(f"'{name}' is not installed here: the bill lists what this environment has") from None
            continue  # of another system or version of Python
        yield name


def _closure(requirements: list[str]) -> set[str]:
    names: set[str] = set()
    pending = list(_names(requirements))
    while pending:
        name = pending.pop()
        if name not in names:
            names.add(name)
            pending += _names(metadata.distribution(name).requires or [])
    return names


def _purl(name: str) -> str:
    return f"pkg:pypi/{name}@{metadata.version(name)}"


def _component(name: str, distribution: metadata.Distribution) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": _purl(name),
        "name": name,
        "version": distribution.version,
        "purl": _purl(name),
        "licenses": _licenses(distribution.metadata),
    }


def _licenses(fields: Any) -> list[dict[str, Any]]:
    """Return the license of a package: an expression of SPDX, or what its older metadata say."""
    expression = fields.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    named = [text.rpartition(" :: ")[2] for text in fields.get_all("Classifier") or [] if text.startswith("License")]
    text = (fields.get("License") or "").strip().split("\n")[0]
    names = named or ([text] if text else [])
    return [{"license": {"name": name}} for name in names]


def main() -> None:
    """Write the bill of a wheel."""
    parser = argparse.ArgumentParser(
        prog="python -m release.sbom", description=__doc__.split("\n")[0] if __doc__ else ""
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.write_text(json.dumps(bill_of_materials(arguments.wheel), indent=2) + "\n", encoding="utf-8")
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
