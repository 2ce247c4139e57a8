"""Folders of tiny language models, and ONNX Runtime driven by a plain loop."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
import onnx
import onnxruntime
from mirlo_llm import generate
from mirlo_llm.generate import LanguageModel
from mirlo_llm.generate.config import read_config
from mirlo_llm.generate.generator import Generator
from onnx import TensorProto, helper, numpy_helper
from repository import ROOT

from mirlo.extend.runtime import Executable

VOCABULARY = 320
Loaded = TypeVar("Loaded")


class OnDemand(dict[str, Loaded]):
    """What a function returns for names, called when a name is read first: a sample of tests reads some of them."""

    def __init__(self, load: Callable[[str], Loaded]) -> None:
        super().__init__()
        self._load = load

    def __missing__(self, name: str) -> Loaded:
        self[name] = self._load(name)
        return self[name]


def example() -> Any:
    """Return the module of the example that writes tiny models."""
    spec = importlib.util.spec_from_file_location("tiny_language_model", ROOT / "examples" / "tiny_language_model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_genai(folder: Path, bits: int = 0, seed: int = 0, paged: bool = False) -> Path:
    """Write the example's model, without a tokenizer."""
    module = example()
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(module.TinyModel(VOCABULARY, bits, seed, paged).build(), folder / "model.onnx")
    module.write_config(folder, VOCABULARY, paged)
    return folder


def exact(kind: str) -> dict[str, Any]:
    """Return the options with which weights of 4 bits are multiplied by f32; other models share what is compiled."""
    return {"activations": "exact"} if kind == "u4" else {}


def load(folder: Path, prefix_bytes: int | None = None, **options: Any) -> LanguageModel:
    """Load a folder of ONNX; the tests of a process share what they compile."""
    file = next(path for path in sorted(folder.rglob("*.onnx")))
    key = (crc32(file.read_bytes()), *sorted(options.items()))
    if key not in _COMPILED:
        _COMPILED[key] = generate.load(folder, **options).executable
    return LanguageModel(read_config(str(folder)), _COMPILED[key], prefix_bytes=prefix_bytes)


_COMPILED: dict[tuple[Any, ...], Executable] = {}
"""What `load` compiled, by checksums of models."""


def contiguous(models: dict[str, LanguageModel], kind: str) -> LanguageModel:
    """Return the model with the same weights whose caches are contiguous: the oracle of the one with pages."""
    return models["f32" if kind == "paged" else kind]


def write_windows(folder: Path, windows: Sequence[int] = (6, 0), bits: int = 0) -> Path:
    """Write the example's model with a sliding window in some layers; 0 stands for none."""
    module = example()
    model = module.TinyModel(VOCABULARY, bits, 0)
    plain, layers = model.node, iter(windows)

    def node(kind: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> Any:
        window = next(layers) if kind == "GroupQueryAttention" else 0
        return plain(kind, inputs, outputs, domain, **attributes, **({"local_window_size": window} if window else {}))

    model.node = node
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model.build(), folder / "model.onnx")
    module.write_config(folder, VOCABULARY)
    return folder


def hybrid_model(seed: int = 0) -> Any:
    """Return the example's model whose first layer has linear attention after a convolution, in place of keys."""
    module = example()
    model, c = module.TinyModel(VOCABULARY, 0, seed), module.CONFIG
    width, window = 3 * c["kv_heads"] * c["size"], 4
    attend = model.layer

    def layer(i: int, x: str) -> str:
        if i:
            return str(attend(i, x))
        names = {kind: (f"past_key_values.0.{kind}_state", f"present.0.{kind}_state") for kind in ("conv", "recurrent")}
        mixed = model.product("0.qkv", model.norm("0.norm", x), c["hidden"], width)
        transposed = model.node("Transpose", [mixed], ["0.transposed"], perm=[0, 2, 1])
        weight = model.constant("0.conv", model.random.standard_normal((width, 1, window)).astype(np.float32) / 2)
        past, after = names["conv"]
        convolved = model.node(
            "CausalConvWithState",
            [transposed, weight, "", past],
            ["0.convolved", after],
            "com.microsoft",
            activation="silu",
        )
        rows = model.node("Transpose", [convolved], ["0.rows"], perm=[0, 2, 1])
        sizes = model.constant("0.sizes", np.full(3, width // 3, np.int64))
        parts = [f"0.{part}" for part in "qkv"]
        model.nodes.append(helper.make_node("Split", [rows, sizes], parts, axis=2))
        decay = model.product("0.decay", mixed, width, c["kv_heads"])
        decay = model.node("Neg", [model.node("Softplus", [decay], ["0.soft"])], ["0.rate"])
        past, after = names["recurrent"]
        attended = model.node(
            "LinearAttention", [*parts, past, decay], ["0.attended", after], "com.microsoft",
            q_num_heads=c["kv_heads"], kv_num_heads=c["kv_heads"], update_rule="gated",
        )  # fmt: skip
        return str(model.node("Add", [x, model.product("0.o", attended, width // 3, c["hidden"])], ["0.out"]))

    model.layer = layer
    proto = model.build()
    graph, info = proto.graph, helper.make_tensor_value_info
    shapes = {"conv": [width, window - 1], "recurrent": [c["kv_heads"], c["size"], c["size"]]}
    for values, prefix in ((graph.input, "past_key_values"), (graph.output, "present")):
        others = [value for value in values if not value.name.startswith(f"{prefix}.0.")]
        del values[:]
        values.extend(others)
        for kind, shape in shapes.items():
            values.append(info(f"{prefix}.0.{kind}_state", TensorProto.FLOAT, ["batch", *shape]))
    return proto


def write_hybrid(folder: Path, seed: int = 0) -> Path:
    """Write the model with a layer of linear attention, without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(hybrid_model(seed), folder / "model.onnx")
    example().write_config(folder, VOCABULARY)
    return folder


MODULES = {"q": "q_proj", "v": "v_proj"}


def lora_name(layer: int, part: str, matrix: str) -> str:
    return f"model.layers.{layer}.self_attn.{MODULES[part]}.lora_{matrix}.weight"


def write_lora(folder: Path, bits: int = 0, is_optional: bool = True, paged: bool = False) -> Path:
    """Write the example's model with inputs for adapters of its products of queries and values."""
    module = example()
    folder.mkdir(parents=True, exist_ok=True)
    proto = module.TinyModel(VOCABULARY, bits, 0, paged).build()
    graph, made = proto.graph, []
    for node in graph.node:
        layer, _, part = node.output[0].removesuffix(".out").partition(".")
        if not layer.isdigit() or part not in MODULES:
            made.append(node)
            continue
        x, name = node.input[0], node.output[0]
        a, b = (lora_name(int(layer), part, matrix) for matrix in "AB")
        node.output[0] = f"{name}.base"
        made += [
            node, helper.make_node("MatMul", [x, a], [f"{name}.down"]),
            helper.make_node("MatMul", [f"{name}.down", b], [f"{name}.up"]),
            helper.make_node("Add", [f"{name}.base", f"{name}.up"], [name]),
        ]  # fmt: skip
        columns = module.CONFIG["heads" if part == "q" else "kv_heads"] * module.CONFIG["size"]
        for each, shape in ((a, [module.CONFIG["hidden"], "lora_r"]), (b, ["lora_r", columns])):
            graph.input.append(helper.make_tensor_value_info(each, TensorProto.FLOAT, shape))
            if is_optional:
                empty = np.zeros([dim if isinstance(dim, int) else 0 for dim in shape], np.float32)
                graph.initializer.append(numpy_helper.from_array(empty, each))
    del graph.node[:]
    graph.node.extend(made)
    onnx.save(proto, folder / "model.onnx")
    module.write_config(folder, VOCABULARY, paged)
    return folder


def lora_tensors(rank: int, seed: int, parts: str = "qv") -> dict[str, np.ndarray]:
    """Return the tensors of an adapter."""
    random, config = np.random.default_rng(seed), example().CONFIG
    made = {}
    for layer in range(config["layers"]):
        for part in parts:
            columns = config["heads" if part == "q" else "kv_heads"] * config["size"]
            for matrix, shape in (("A", (config["hidden"], rank)), ("B", (rank, columns))):
                array = random.standard_normal(shape) * (0.2 if matrix == "A" else 0.5)
                made[lora_name(layer, part, matrix)] = array.astype(np.float32)
    return made


def write_adapter(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    """Write a file `.onnx_adapter`."""
    made = onnxruntime.AdapterFormat()
    made.set_adapter_version(1), made.set_model_version(1)
    made.set_parameters({k: onnxruntime.OrtValue.ortvalue_from_numpy(v) for k, v in tensors.items()})
    made.export_adapter(str(path))
    return path


HEADS, SIZE, HIDDEN, LAYERS = 2, 8, 16, 2


def plain_model(seed: int = 0) -> Any:
    """Return a decoder as exporters of PyTorch write it: caches are concatenated, positions are inputs."""
    random = np.random.default_rng(seed)
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(array, name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def weight(name: str, *shape: int) -> str:
        return constant(name, (random.standard_normal(shape) * 1.5 / shape[0] ** 0.5).astype(np.float32))

    table = constant("table", random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32))
    places = constant("places", random.standard_normal((256, HIDDEN)).astype(np.float32))
    x = node("Gather", [table, "input_ids"], "words")
    x = node("Add", [x, node("Gather", [places, "position_ids"], "at")], "x0")
    # What a query sees: keys that are no padding, up to its own row.
    for name, array in {"one": np.array(1, np.int64), "axis1": np.array([1]), "axis12": np.array([1, 2])}.items():
        constant(name, array)
    shape = constant("split", np.array([0, 0, HEADS, SIZE]))
    joined = constant("join", np.array([0, 0, HIDDEN]))
    total = node("Gather", [node("Shape", ["attention_mask"], "sizes"), "one"], "total", axis=0)
    length = node("Gather", [node("Shape", ["input_ids"], "lengths"), "one"], "length", axis=0)
    constant("zero", np.array(0, np.int64))
    keys = node("Range", ["zero", total, "one"], "keys")
    rows = node("Range", [node("Sub", [total, length], "past"), total, "one"], "rows")
    seen = node("LessOrEqual", [keys, node("Unsqueeze", [rows, "axis1"], "column")], "causal")
    there = node("Cast", [node("Unsqueeze", ["attention_mask", "axis12"], "wide")], "there", to=TensorProto.BOOL)
    seen = node("And", [seen, there], "seen")
    constant("nothing", np.array(0, np.float32)), constant("hidden", np.array(-1e9, np.float32))
    mask = node("Where", [seen, "nothing", "hidden"], "mask")
    constant("scale", np.array(SIZE**-0.5, np.float32))
    for i in range(LAYERS):
        parts = {}
        for part in ("q", "k", "v"):
            made = node("MatMul", [x, weight(f"{part}{i}.w", HIDDEN, HIDDEN)], f"{part}{i}.flat")
            made = node("Reshape", [made, shape], f"{part}{i}.heads")
            parts[part] = node("Transpose", [made], f"{part}{i}.t", perm=[0, 2, 1, 3])
        for part, kind in (("k", "key"), ("v", "value")):
            past = f"past_key_values.{i}.{kind}"
            parts[part] = node("Concat", [past, parts[part]], f"present.{i}.{kind}", axis=2)
        transposed = node("Transpose", [parts["k"]], f"k{i}.transposed", perm=[0, 1, 3, 2])
        scores = node("Mul", [node("MatMul", [parts["q"], transposed], f"s{i}.raw"), "scale"], f"s{i}.scaled")
        weights = node("Softmax", [node("Add", [scores, mask], f"s{i}")], f"s{i}.weights", axis=-1)
        made = node("Transpose", [node("MatMul", [weights, parts["v"]], f"a{i}")], f"a{i}.t", perm=[0, 2, 1, 3])
        made = node(
            "MatMul", [node("Reshape", [made, joined], f"a{i}.flat"), weight(f"o{i}.w", HIDDEN, HIDDEN)], f"o{i}"
        )
        x = node("Add", [x, made], f"x{i + 1}")
    node("MatMul", [x, weight("head.w", HIDDEN, VOCABULARY)], "logits")
    info = helper.make_tensor_value_info
    names = [f"{i}.{kind}" for i in range(LAYERS) for kind in ("key", "value")]
    inputs = [
        *(info(name, TensorProto.INT64, ["batch", "length"]) for name in ("input_ids", "position_ids")),
        info("attention_mask", TensorProto.INT64, ["batch", "past + length"]),
        *(info(f"past_key_values.{name}", TensorProto.FLOAT, ["batch", HEADS, "past", SIZE]) for name in names),
    ]
    outputs = [info("logits", TensorProto.FLOAT, ["batch", "length", VOCABULARY])]
    outputs += [info(f"present.{name}", TensorProto.FLOAT, ["batch", HEADS, "past + length", SIZE]) for name in names]
    graph = helper.make_graph(nodes, "plain", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_plain(folder: Path, **config: Any) -> Path:
    """Write a folder as Optimum does."""
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    onnx.save(plain_model(), folder / "onnx" / "model.onnx")
    given = {"model_type": "tiny", "eos_token_id": 1, "vocab_size": VOCABULARY, "max_position_embeddings": 256}
    (folder / "config.json").write_text(json.dumps(given | config), encoding="utf-8")
    return folder


class Reference:
    """ONNX Runtime on the model of a folder, one sequence, with caches that grow."""

    def __init__(self, model: Path, constants: dict[str, np.ndarray] | None = None) -> None:
        self.constants = constants or {}
        self.session = onnxruntime.InferenceSession(str(model))
        self.inputs = {each.name: each for each in self.session.get_inputs()}
        self.outputs = [each.name for each in self.session.get_outputs()]
        self.past: dict[str, np.ndarray] = {}
        self.length = 0

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the logits after the last of these new tokens."""
        total = self.length + len(tokens)
        feeds: dict[str, Any] = {
            "input_ids": np.array([tokens], np.int64), "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(self.length, total)[None],
        }  # fmt: skip
        feeds |= self.constants
        for name, each in self.inputs.items():
            if name.startswith("past"):
                shape = [dim if isinstance(dim, int) else 0 for dim in each.shape]
                feeds[name] = self.past.get(name, np.zeros((1, *shape[1:]), np.float32))
        found = self.session.run(None, {name: feeds[name] for name in (*self.inputs, *self.constants)})
        made = dict(zip(self.outputs, found, strict=True))
        self.past = {
            name: made[name.replace("past_key_values", "present")] for name in feeds if name.startswith("past")
        }
        self.length = total
        logits: np.ndarray = made["logits"][0, -1]
        return logits


def continued(
    model: Path,
    prompt: Sequence[int],
    count: int,
    constants: dict[str, np.ndarray] | None = None,
    without: Sequence[int] = (),
) -> list[int]:
    """Return this many tokens that follow a prompt, the most probable ones but those of `without`."""
    reference, made, new = Reference(model, constants), list[int](), list(prompt)
    for _ in range(count):
        logits = reference.logits(new)
        logits[list(without)] = -np.inf
        token = int(np.argmax(logits))
        made.append(token)
        new = [token]
    return made


def require_same_logits(generator: Generator, reference: Generator, kind: str) -> None:
    """Compare the logits of generators of the same tokens, with caches of this kind."""
    # What differs in the last bit may be rounded to another integer of 8 bits.
    error = 0.03 if "i8" in kind else 1e-3
    np.testing.assert_allclose(generator.logits(), reference.logits(), rtol=error, atol=error)
