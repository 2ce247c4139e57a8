"""Hostile names: valid models whose texts hold what ends comments, quotes, tags and lines.

Each seed puts a payload into some of the places where a model holds text, and passes the file to one command.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mirlo.runtime.files import write_regular
from mirlo.runtime.names import terminal
from mirlo.tools.cli import main
from mirlo.tools.fuzz.verdict import FAILED, REFUSED, SeedVerdict

if TYPE_CHECKING:
    import onnx

SAFE, UNSAFE = "safe", "unsafe"
STATES = {
    SAFE: "nothing of the name acts where it is written",
    REFUSED: "an error that tells what is wrong",
    UNSAFE: "a name acts where it is written: a bug",
    FAILED: "an error that is not the user's: a bug",
}
PAYLOADS = (
    "*/ int PWNED = 1; /*",
    "*\\\n/ int PWNED = 1; /*",
    "*??/\n/ int PWNED = 1; /*",
    "??/\nint PWNED = 1;",
    "\\\nint PWNED = 1;",
    "\nint PWNED = 1; //",
    "\r\nINJECTED",
    "\nINJECTED",
    "\x0bINJECTED\x0cINJECTED\x85INJECTED\u2028INJECTED\u2029",
    "<!--<script",
    "</script><x-pwned>",
    "</title><x-pwned>",
    '"><x-pwned onload="x">',
    "'><x-pwned>&lt;",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[31m",
    "\x9b31m",
    "\x7f\x08\x08",
    "\u202egnp.exe\u2066\u200f",
    "\u200b\ufeff\u00ad",
    "\x00tail",
    "'; touch PWNED; '",
    '"; touch PWNED; "',
    "$(touch PWNED)",
    "`touch PWNED`",
    "-rf",
    "--debug",
    "%s%n{0}{name}",
    "../../PWNED",
    "/PWNED",
    'a"b\\',
    "int",
    "float",
    "é漢字 🙂",
    "a" * 3000,
    "@main",
    "main",
    "%0",
    "// -----",
    "// configuration: --load-pass-plugin=PWNED",
)
TEXT_FIELDS = (
    "node", "value", "input", "output", "dim", "initializer", "graph", "function", "function_domain", "function_value",
    "operator", "domain", "attribute", "attribute_text", "producer", "doc", "metadata", "value_info", "denotation",
    "subgraph",
)  # fmt: skip
"""Where a model holds text."""


def hostile_model(seed: int) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Return the ONNX model of a seed, and the payload of each field that has one."""
    rng = np.random.default_rng([seed, 2])
    count = 1 if rng.random() < 0.6 else int(rng.integers(2, len(TEXT_FIELDS)))
    fields = rng.choice(len(TEXT_FIELDS), count, replace=False)
    chosen = {TEXT_FIELDS[int(field)]: PAYLOADS[int(rng.integers(len(PAYLOADS)))] for field in fields}
    if rng.random() < 0.2:  # two at once
        chosen = {field: text + PAYLOADS[int(rng.integers(len(PAYLOADS)))] for field, text in chosen.items()}
    return model_with(chosen), chosen


def model_with(texts: dict[str, str]) -> onnx.ModelProto:
    """Return a small model with these texts in these fields: all operators of it, functions and dims are valid."""

    def text(field: str, plain: str) -> str:
        return plain + texts[field] if field in texts else plain

    x, y, dim = text("input", "x"), text("output", "y"), text("dim", "batch")
    weight, domain = text("initializer", "w"), text("function_domain", "own")
    inner, function = text("function_value", "t"), text("function", "Twice")
    body = [
        helper.make_node("Relu", ["a"], [inner], name=text("node", "r")),
        helper.make_node("Add", [inner, "a"], ["b"]),
    ]
    graph = helper.make_graph(
        _nodes(text, texts), text("graph", "g"),
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [dim, 4]),
         helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [dim, 4])],
        [numpy_helper.from_array(np.ones((1, 4), np.float32), weight)],
        value_info=[helper.make_tensor_value_info(text("value_info", "d"), TensorProto.FLOAT, [dim, 4])],
        doc_string=text("doc", ""),
    )  # fmt: skip
    graph.input[0].type.denotation = text("denotation", "")
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(domain, 1)], ir_version=10,
        functions=[helper.make_function(domain, function, ["a"], ["b"], body, [helper.make_opsetid("", 20)])],
        producer_name=text("producer", "fuzz"), producer_version=text("producer", "1"),
    )  # fmt: skip
    if text("domain", ""):
        model.opset_import.append(helper.make_opsetid(text("domain", ""), 1))
    helper.set_model_props(model, {text("metadata", "key"): text("metadata", "value")})
    return model


def _nodes(text: Callable[[str, str], str], fields: Container[str]) -> list[onnx.NodeProto]:
    """Return the nodes of the graph; those whose operator or attribute is hostile compute nothing that is read."""
    value, domain = text("value", "v"), text("function_domain", "own")
    nodes = [
        helper.make_node("Add", [text("input", "x"), text("initializer", "w")], [value], name=text("node", "/add")),
        helper.make_node(text("function", "Twice"), [value], ["d"], name=text("node", "/twice"), domain=domain),
        helper.make_node(
            "If", ["c"], ["e"], name=text("node", "/if"), then_branch=_branch(text), else_branch=_branch()
        ),
        helper.make_node("Add", ["d", "e"], [text("output", "y")], name="/sum"),
    ]
    if "operator" in fields or "domain" in fields:
        nodes.append(helper.make_node(text("operator", "Relu"), [value], ["unused"], domain=text("domain", "")))
    if "attribute" in fields or "attribute_text" in fields:
        attribute = {text("attribute", "approximate"): text("attribute_text", "none")}
        nodes.append(helper.make_node("Gelu", [value], ["unread"], **attribute))
    return nodes


def _branch(text: Callable[[str, str], str] = lambda field, plain: plain) -> onnx.GraphProto:
    """Return the graph of a branch, which captures the value `d` of the surrounding graph."""
    name = text("subgraph", "inner")
    node = helper.make_node("Identity", ["d"], [name], name=text("subgraph", "copy"))
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])


def judge(seed: int) -> SeedVerdict:
    """Pass the model of a seed to a command, and check all of its output."""
    model, chosen = hostile_model(seed)
    commands = list(COMMANDS)
    name = commands[seed % len(commands)]
    state, text = judge_model(model, name)
    where = ", ".join(f"{place}={payload[:40]!a}" for place, payload in chosen.items())
    return SeedVerdict(state, f"{name}: {where}: {text}" if text else "", (name,))


COMMANDS: dict[str, tuple[str, ...]] = {
    "info": ("info", "m.onnx"),
    "check": ("check", "m.onnx", "-v"),
    "check-json": ("check", "m.onnx", "--json"),
    "import": ("import", "m.onnx"),
    "import-script": ("import", "m.onnx", "--script"),
    "compile": ("compile", "m.onnx", "-o", "m.mirlo", "--no-cache", "--jobs", "1", "--report", "--save-ir", "ir"),
    "run": ("run", "m.onnx", "--no-cache", "--jobs", "1", "--repeat", "1", "--profile", "--output-dir", "out",
            "--shape", "{x}=2x4"),
    "explain": ("explain", "m.onnx"),
    "partition": ("partition", "m.onnx", "--targets", "c,llvm", "--report", "page.html", "--report", "page.json"),
    "partition-attempts": ("partition", "m.onnx", "--targets", "c,llvm", "--attempts"),
    "source": ("compile", "m.onnx", "--targets", "c,llvm", "--emit", "source", "-o", "source"),
    "source-static": (
        "compile", "m.onnx", "--targets", "c,llvm", "--emit", "source", "-o", "source", "--shape", "{x}=2x4",
    ),
    "bisect": ("bisect", "m.onnx", "-o", "bundle", "--shape", "{x}=2x4"),
}  # fmt: skip
"""What is given the models: command lines of `mirlo`, run in a folder of their own."""


def judge_model(model: onnx.ModelProto, name: str) -> tuple[str, str]:
    """Run a command on a model in a temporary folder; return the state, and the reason."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="mirlo-fuzz-") as folder:
        os.chdir(folder)
        try:
            write_regular("m.onnx", model.SerializeToString())
            words = [word.replace("{x}", terminal(model.graph.input[0].name)) for word in COMMANDS[name]]
            out, err = io.StringIO(newline=""), io.StringIO(newline="")
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    code = main(words)
                except SystemExit as stop:  # of the command line's parser
                    code = int(stop.code or 0)
            problems = [*unsafe_text(out.getvalue()), *unsafe_text(err.getvalue()), *_unsafe_files(Path(folder))]
        finally:
            os.chdir(here)
    if problems:
        return UNSAFE, "; ".join(problems)
    if "internal error" in err.getvalue() or "Traceback" in err.getvalue():
        return FAILED, err.getvalue()[:300]
    return (REFUSED, "") if code else (SAFE, "")


def unsafe_text(text: str) -> Iterator[str]:
    """Yield characters that a terminal would not show unchanged, or that end a line."""
    odd = {char for char in text if not char.isprintable() and char not in "\n\t"}
    if odd:
        yield f"it prints {sorted(odd)!a}"
    if re.search(r"^\s*(INJECTED|int PWNED)", text, re.MULTILINE):
        yield "a name begins a line of its own"


def unsafe_c(source: str) -> Iterator[str]:
    """Yield the parts of a C source, outside of comments, that come from a name, as a compiler reads it."""
    for trigraph, char in {"??/": "\\", "??'": "^", "??(": "[", "??)": "]", "??<": "{", "??>": "}"}.items():
        source = source.replace(trigraph, char)
    code = re.sub(r"/\*.*?\*/", " ", source.replace("\\\n", ""), flags=re.DOTALL)
    if re.search(r"\bint\s+PWNED\b", code):
        yield "a name is code in the C source"
    if "/*" in code or "*/" in code or "//" in code:
        yield "a name ends or opens a comment of the C source"


def unsafe_html(text: str) -> Iterator[str]:
    """Yield the parts of a page that a name made."""
    if "<x-pwned" in text or "<!--" in text:
        yield "a name is a tag of the page"
    if len(re.findall("<script", text)) != len(re.findall("</script", text)) or text.count("<script") != 2:
        yield "a name opens or ends a script of the page"


def _unsafe_files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".c", ".h"):
            yield from unsafe_c(path.read_text(encoding="utf-8"))
        if path.suffix == ".html":
            yield from unsafe_html(path.read_text(encoding="utf-8"))
        if path.suffix == ".mlir" and re.search(r"^int PWNED|^INJECTED", path.read_text("utf-8"), re.MULTILINE):
            yield "a name begins a line of the IR"
    if (folder / "PWNED").exists() or (folder.parent / "PWNED").exists():
        yield "a name wrote a file"


def write(seed: int, folder: Path) -> None:
    """Write the model of a seed, and the command that it is passed to."""
    write_regular(folder / "model.onnx", hostile_model(seed)[0].SerializeToString())
    write_regular(folder / "command.txt", " ".join(list(COMMANDS.values())[seed % len(COMMANDS)]) + "\n")
