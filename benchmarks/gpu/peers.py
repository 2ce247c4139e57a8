"""What PyTorch and ONNX Runtime do in place of a unit, where they are installed with a GPU, and how long it takes."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .graphs import open_graph
from .seeds import weight

Call = Callable[[], Any]
Timed = Callable[[], float]
REPEAT = 10
"""Calls that are timed together."""


def torch_on_gpu() -> Any:
    """Return the module, or None where it is not there or has no GPU."""
    try:
        import torch
    except (ImportError, OSError):
        return None
    return torch if torch.cuda.is_available() else None


def calls_of(
    peer: Mapping[str, Any] | None, names: Sequence[str], inputs: Sequence[np.ndarray], folder: Path, inductor: bool
) -> tuple[dict[str, Timed], str]:
    """Return the peers that compute the same, as functions to the seconds of a call; and why there are none, if so."""
    if peer is None:
        return {}, "nothing else does the same"
    torch = torch_on_gpu()
    calls: dict[str, Timed] = {}
    if peer["name"] == "graph":
        session = runtime_session(folder, peer)
        if session is not None:
            calls["ONNX Runtime CUDA"] = session_timer(session, dict(zip(names, inputs, strict=True)))
    if torch is None:
        return calls, "" if calls else "no PyTorch with a GPU"
    tensors = [_tensor(torch, x) for x in inputs]
    if peer["name"] != "graph":
        call = PEERS[peer["name"]](torch, peer, tensors)
        return {"PyTorch": lambda: seconds(call, REPEAT)}, ""
    graph = open_graph(torch, folder, peer, "cuda")
    named = dict(zip(names, (x.half() if peer["half"] and x.is_floating_point() else x for x in tensors), strict=True))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    calls["PyTorch"] = lambda: seconds(lambda: graph(named), 3)
    if inductor:
        compiled = torch.compile(lambda x: graph(x))
        calls["TorchInductor"] = lambda: seconds(lambda: compiled(named), 3)
    return calls, ""


def runtime_session(folder: Path, peer: Mapping[str, Any]) -> Any:
    """ONNX Runtime on a GPU with the model, where it is installed with that."""
    try:
        import onnxruntime
    except ImportError:
        return None
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers() or peer["half"]:
        return None
    with tempfile.TemporaryDirectory() as place:
        write_weights(folder / peer["file"], Path(place) / "weights.bin")
        shutil.copy(folder / peer["onnx"], Path(place) / "model.onnx")
        return onnxruntime.InferenceSession(str(Path(place) / "model.onnx"), providers=["CUDAExecutionProvider"])


def write_weights(graph: Path, file: Path) -> None:
    """Write the weights of a graph that are made of seeds, in the order of its ONNX file."""
    with open(file, "wb") as written:
        for row in json.loads(graph.read_text(encoding="utf-8"))["weights"]:
            if "initializer" in row:
                written.write(weight({**row, "dtype": "f32"}).astype("<f4").tobytes())


def session_timer(session: Any, named: Mapping[str, np.ndarray], calls: int = 20) -> Timed:
    """Return the timer of a call whose tensors stay on the device."""
    binding = session.io_binding()
    for name, array in named.items():
        import onnxruntime

        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")

    def timed() -> float:
        for _ in range(3):
            session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        start = time.perf_counter()
        for _ in range(calls):
            session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return (time.perf_counter() - start) / calls

    return timed


def seconds(call: Call, repeat: int) -> float:
    """Return the seconds of a call by the device's clock: in a graph of calls, where they can be recorded."""
    torch = torch_on_gpu()
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    run, calls = _recorded(torch, call, repeat)
    run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(1e-3 * start.elapsed_time(end) / calls)


def _recorded(torch: Any, call: Call, repeat: int) -> tuple[Call, int]:
    graph = torch.cuda.CUDAGraph()
    try:
        # In the stricter modes a finalizer that frees memory of something else meanwhile would end the recording.
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            for _ in range(repeat):
                call()
    except RuntimeError:
        torch.cuda.synchronize()
        return lambda: [call() for _ in range(repeat)], repeat
    return graph.replay, repeat


def _tensor(torch: Any, array: np.ndarray) -> Any:
    name = array.dtype.name
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        bits = torch.from_numpy(array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8))
        return bits.cuda().view(getattr(torch, name))
    return torch.from_numpy(array).cuda()


def _matmul(torch: Any, peer: Mapping[str, Any], tensors: Sequence[Any]) -> Call:
    a, b = tensors[:2]
    a = a.t() if "a" in peer["transposed"] else a
    b = b.t() if "b" in peer["transposed"] else b
    torch.backends.cuda.matmul.allow_tf32 = bool(peer.get("tf32"))
    if a.dtype == torch.int8:
        return lambda: torch._int_mm(a, b)
    if a.dtype.itemsize == 1:
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
    return lambda: torch.matmul(a, b)


def _attention(torch: Any, peer: Mapping[str, Any], tensors: Sequence[Any]) -> Call:
    q, k, v = tensors[:3]
    attend = torch.nn.functional.scaled_dot_product_attention
    facts = {"is_causal": peer["causal"], "enable_gqa": q.shape[1] != k.shape[1]}
    return _fastest_attention(torch, lambda: attend(q, k, v, **facts))


def _fastest_attention(torch: Any, call: Call) -> Call:
    """Return the best of PyTorch's own choice and of cuDNN's attention, which it does not always choose."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return call

    def by_cudnn() -> Any:
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            return call()

    try:
        by_cudnn()
        return min(call, by_cudnn, key=lambda c: min(seconds(c, 3) for _ in range(2)))
    except RuntimeError:
        return call


def _conv(torch: Any, peer: Mapping[str, Any], tensors: Sequence[Any]) -> Call:
    x, w = tensors
    x = x.permute(0, 3, 1, 2)
    w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return lambda: torch.nn.functional.conv2d(x, w, stride=peer["strides"], padding=peer["padding"])


def _rows(torch: Any, peer: Mapping[str, Any], tensors: Sequence[Any]) -> Call:
    functions = torch.nn.functional
    x = tensors[0]
    return {
        "add": lambda: x + tensors[1],
        "copy": lambda: x.clone(),
        "gelu": lambda: functions.gelu(x, approximate="tanh"),
        "layer_norm": lambda: functions.layer_norm(x, x.shape[-1:], tensors[1], tensors[2]),
        "softmax": lambda: functions.softmax(x, -1),
        "sum": lambda: x.sum(-1),
    }[peer["function"]]


PEERS: dict[str, Callable[[Any, Mapping[str, Any], Sequence[Any]], Call]] = {
    "attention": _attention,
    "convolution": _conv,
    "product": _matmul,
    "rows": _rows,
}
