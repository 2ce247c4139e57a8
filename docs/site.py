"""Build the documentation site: `python docs/site.py [--out FOLDER]` (extra `[docs]`; `make docs`).

The pages are those of `docs` and of the root. The API reference comes from docstrings of `mirlo` and `mirlo.extend`.
A dead link ends the build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
API = """# Python API

## mirlo

::: mirlo
    options:
      members: [compile, load, legalize, onnx_operator, parse_script, prim_func, script, script_of]

::: mirlo.runtime.executable.Executable

::: mirlo_llm.caches.state.CacheState

::: mirlo.passes.pipeline.Pipeline

## mirlo.generate

::: mirlo_llm.generate.model

::: mirlo_llm.generate.generator.Generator

::: mirlo_llm.generate.search.SearchOptions

## mirlo.extend

::: mirlo.extend

::: mirlo.extend.ops

::: mirlo.extend.rules

::: mirlo.extend.schedules

::: mirlo.extend.target

::: mirlo.extend.codegen

::: mirlo.extend.frontend

::: mirlo.extend.runtime

::: mirlo.extend.gpu

::: mirlo.extend.nvidia

::: mirlo.extend.inspect

::: mirlo.extend.command

::: mirlo.extend.options

::: mirlo.extend.library

::: mirlo.extend.quantize

::: mirlo.extend.process

::: mirlo.extend.passes

::: mirlo.extend.compilation

::: mirlo.extend.ranks
"""
SETTINGS = """site_name: Mirlo
docs_dir: {pages}
site_dir: {out}
strict: true
theme:
  name: material
  font: false
  features: [navigation.instant, navigation.sections, toc.follow, content.code.copy, search.highlight]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      toggle: {{icon: material/weather-night, name: Use dark mode}}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      toggle: {{icon: material/weather-sunny, name: Use light mode}}
plugins:
  - search
  - mkdocstrings:
      handlers:
        python:
          paths: [{source}, {source}/../plugins/llm]
          options: {{show_source: false, show_root_heading: true, docstring_style: google, show_if_no_docstring: false}}
markdown_extensions:
  - toc: {{permalink: true}}
  - pymdownx.highlight
  - pymdownx.superfences
  - tables
nav:
{nav}
"""


def navigation() -> str:
    """Return the navigation: the sections of the index, then the other pages."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    lines = ["  - Home: index.md", "  - README: README.md"]
    listed: set[str] = set()
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        lines.append(f"  - {title}:")
        for page in dict.fromkeys(re.findall(r"\]\(([\w-]+\.md)", body)):
            if page not in listed:
                listed.add(page)
                lines.append(f"      - {page}")
    lines += ["  - Python API: api.md", *(f"  - {page}" for page in ROOT_PAGES[1:])]
    return "\n".join(lines)


def prepare(pages: Path) -> None:
    """Copy all pages to one folder; links to files that are no pages lead to copies of these."""
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py"))
    for name in ROOT_PAGES:
        shutil.copy(ROOT / name, pages / name)
    (pages / "api.md").write_text(API, encoding="utf-8")
    shutil.copytree(ROOT / "benchmarks" / "results", pages / "benchmarks" / "results")
    for page in (*pages.glob("decisions/*.md"), *pages.glob("benchmarks/results/*.md")):
        text = page.read_text(encoding="utf-8").replace("](../../benchmarks/", "](../benchmarks/")
        page.write_text(text.replace("](../../docs/", "](../../"), encoding="utf-8")
    for page in pages.glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("](docs/", "](").replace("](../", "](")
        for link in re.findall(r"\]\(((?:examples|test|benchmarks)/[\w./-]+)", text):
            copy = pages / link
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / link, copy)
        page.write_text(text, encoding="utf-8")


def link_package(package: Path) -> None:
    """Link the files that ship to a folder: the root, which holds a link to itself, cannot be searched for modules."""
    package.mkdir(parents=True)
    shipped = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name not in ("test", "benchmarks")]
    for path in (*shipped, *ROOT.glob("*.py")):
        (package / path.name).symlink_to(path)


def main() -> int:
    """Build the site; return the exit code of the generator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "site", help="the folder of the site")
    out = parser.parse_args().out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        prepare(pages)
        source = Path(folder) / "source"
        link_package(source / "mirlo")
        settings = Path(folder) / "mkdocs.yml"
        text = SETTINGS.format(pages=pages, out=out, source=source, nav=navigation())
        settings.write_text(text, encoding="utf-8")
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        code = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", str(settings)], env=environment
        ).returncode
    if code == 0:
        print(f"the site is in {out}")
    return code


if __name__ == "__main__":
    sys.exit(main())
