"""The snippets of the README run unchanged."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import ROOT, benchmark_model, mirlo, output_of, run_script, shell_commands
from onnx import TensorProto, helper

from mirlo.runtime import known_packages
from mirlo.testing.pages import code_blocks
from mirlo.tools.cli import COMMANDS
from mirlo.tools.cli.arguments import make_parser

DOCS = ROOT / "docs"
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the model that the snippets are about."""
    (tmp_path / "mobilenetv2.onnx").symlink_to(benchmark_model("mobilenetv2"))
    return tmp_path


def test_blocks_are_those_that_are_tested() -> None:
    assert [len(code_blocks(TEXT, language)) for language in ("sh", "python")] == [2, 3]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_has_the_targets() -> None:
    for line in code_blocks(TEXT, "sh")[0].splitlines():
        command = line.partition("#")[0].split()
        planned = subprocess.run([*command, "-n"], capture_output=True, text=True, cwd=ROOT)
        assert planned.returncode == 0, planned.stderr
    for tool in ("ruff check", "mypy", "lit ", "pytest"):
        assert tool in planned.stdout
    assert "\nmake --keep-going test" in (ROOT / ".ci" / "run").read_text()


def test_commands(folder: Path, whole: bool) -> None:
    environment = shell_commands(folder, "mirlo", "mirlo-opt")
    commands = code_blocks(TEXT, "sh")[1]
    if not whole:  # a small model in place of the sample: test/tools/cli/test_sample.py has the option
        assert commands.count("--sample mobilenetv2") == 2
        (folder / "lenet.onnx").symlink_to(benchmark_model("lenet"))
        commands = commands.replace("--sample mobilenetv2", "lenet.onnx").replace("mobilenetv2", "lenet")
    done = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True, cwd=folder, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("latency: ") == 2 and "kernels: " in done.stdout
    assert (folder / "end.mlir").stat().st_size > 0


def test_python(folder: Path) -> None:
    out = output_of(run_script("-c", code_blocks(TEXT, "python")[0], cwd=folder))
    assert "pixel_values" in out and "GFLOP/s" in out


def _run_node(folder: Path, operator: str, plugin: str, names: str) -> tuple[np.ndarray, ...]:
    """Return the inputs and the output of a model of one node, run with a plug-in."""
    (folder / "plugin.py").write_text(plugin)
    node = helper.make_node(operator, list(names), ["y"], name="node", domain="com.mine")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 50]) for name in (*names, "y")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.mine", 1)]
    graph = helper.make_graph([node], "g", values[:-1], values[-1:])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "model.onnx")
    arrays = np.random.default_rng(0).standard_normal((len(names), 3, 50), np.float32)
    given: list[str] = []
    for name, array in zip(names, arrays, strict=True):
        np.save(folder / f"{name}.npy", array)
        given += ["--input", f"{name}={name}.npy"]
    output_of(mirlo("run", "model.onnx", "--plugin", "plugin.py", *given, "--output-dir", "out", cwd=folder))
    return *arrays, np.load(folder / "out" / "y.npy")


def test_own_operator(tmp_path: Path) -> None:
    x, gate, y = _run_node(tmp_path, "Swiglu", code_blocks(TEXT, "python")[1], "xg")
    np.testing.assert_allclose(y, gate * x / (1 + np.exp(-x)), rtol=1e-5, atol=1e-6)


def test_own_loops(tmp_path: Path) -> None:
    x, y = _run_node(tmp_path, "PeakNorm", code_blocks(TEXT, "python")[2], "x")
    np.testing.assert_allclose(y, x / np.abs(x).max(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_paths_exist() -> None:
    table = re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE)
    named = [path for row in table for path in re.findall(r"`([^`]+)`", row)]
    assert named
    for path in named:
        assert (ROOT / path).exists(), path
    folders = {path.split("/")[0] for path in named}
    shipped = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert shipped <= folders


@pytest.mark.parametrize("page", ["README.md", *sorted(str(path.relative_to(ROOT)) for path in DOCS.glob("**/*.md"))])
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link, section in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text):
        if link.startswith("https://"):
            continue
        other = (ROOT / page).parent.joinpath(link) if link else ROOT / page
        assert other.exists(), link
        assert not section or section in _anchors(other.read_text(encoding="utf-8")), f"{link}#{section}"


def _anchors(text: str) -> set[str]:
    """Return the anchors that headings of a page get on the web."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_index_lists_every_page() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    listed = set(links) - {"../README.md", "../CONTRIBUTING.md", "decisions/README.md"}
    notebooks = {f"../examples/notebooks/{path.name}" for path in (ROOT / "examples" / "notebooks").glob("*.py")}
    packages = {f"../plugins/{path.parent.name}/README.md" for path in (ROOT / "plugins").glob("*/README.md")}
    assert listed == notebooks | packages | {path.name for path in DOCS.glob("*.md")} - {"index.md"}


def test_page_of_the_command_lists_every_command() -> None:
    listed = re.findall(r"^\| `mirlo ([a-z-]+)", (DOCS / "mirlo.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(listed) == {*COMMANDS, *known_packages.COMMANDS}


def _command_lines() -> Iterator[tuple[str, str, bool]]:
    """Yield the commands of all pages: the page, the line, and whether it is one to type, not one in a sentence."""
    for page in (ROOT / "README.md", *DOCS.glob("*.md"), *ROOT.glob("plugins/*/README.md")):
        text = page.read_text(encoding="utf-8")
        yield from ((page.name, line, False) for line in re.findall(r"`(mirlo [^`]*)`", text))
        for block in code_blocks(text, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.match(r"(?:\w+=\S+ )*(mirlo .*)", line)
                if command:
                    yield page.name, command.group(1), True


def test_commands_of_all_pages_have_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Parse them without running them: in sentences, arguments may be missing or placeholders."""
    parser, wrong = make_parser(with_packages=True), []
    for page, line, is_whole in _command_lines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command = itertools.takewhile(lambda word: word.strip("|&;<>()"), words)
        with contextlib.suppress(SystemExit):
            parser.parse_args([*command][1:])
        error = capsys.readouterr().err
        if error and (is_whole or "unrecognized arguments" in error):
            wrong.append(f"{page}: {line}: {error.splitlines()[-1]}")
    assert not wrong, "\n".join(wrong)


def _is_tested_alone(example: Path) -> bool:
    return (ROOT / "test" / "examples" / f"test_{example.name}").exists()


@pytest.mark.parametrize(
    "example", sorted(path.name for path in (ROOT / "examples").glob("*.py") if not _is_tested_alone(path))
)
def test_example(example: str, tmp_path: Path) -> None:
    # Those that take a model are tested with one elsewhere.
    if "sys.argv[1]" in (ROOT / "examples" / example).read_text(encoding="utf-8"):
        pytest.skip("takes a model: test/targets/tutorial")
    if "from tokenizers" in (ROOT / "examples" / example).read_text(encoding="utf-8"):
        pytest.importorskip("tokenizers")
    output_of(run_script(ROOT / "examples" / example, cwd=tmp_path))
