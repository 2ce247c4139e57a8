"""What PyTorch does in place of a unit, where it is installed and has a GPU; its time on the device's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Call = Callable[[], Any]


def torch_on_gpu() -> Any:
    """The module, or None where it is not there or has no GPU."""
    try:
        import torch
    except (ImportError, OSError):
        return None
    return torch if torch.cuda.is_available() else None


def call_of(peer: Mapping[str, Any] | None, inputs: Sequence[np.ndarray]) -> tuple[Call | None, str]:
    """What PyTorch does, ready to be called, or why there is nothing."""
    if peer is None:
        return None, "nothing of PyTorch does the same"
    torch = torch_on_gpu()
    if torch is None:
        return None, "no PyTorch with a GPU"
    return PEERS[peer["name"]](torch, peer, [_tensor(torch, x) for x in inputs]), ""


def seconds(call: Call, repeat: int) -> float:
    """Of one call, on the device's clock: a graph of some calls, where they can be recorded."""
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
        with torch.cuda.graph(graph):
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


def _matmul(torch: Any, peer: Mapping[str, Any], given: Sequence[Any]) -> Call:
    a, b = given[:2]
    a = a.t() if "a" in peer["turned"] else a
    b = b.t() if "b" in peer["turned"] else b
    torch.backends.cuda.matmul.allow_tf32 = bool(peer.get("tf32"))
    if a.dtype == torch.int8:
        return lambda: torch._int_mm(a, b)
    if a.dtype.itemsize == 1:
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
    return lambda: torch.matmul(a, b)


def _attention(torch: Any, peer: Mapping[str, Any], given: Sequence[Any]) -> Call:
    q, k, v = given[:3]
    attend = torch.nn.functional.scaled_dot_product_attention
    facts = {"is_causal": peer["causal"], "enable_gqa": q.shape[1] != k.shape[1]}
    return _fastest_attention(torch, lambda: attend(q, k, v, **facts))


def _fastest_attention(torch: Any, call: Call) -> Call:
    """The best of PyTorch's own choice and of cuDNN's attention, which it does not always choose."""
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


def _conv(torch: Any, peer: Mapping[str, Any], given: Sequence[Any]) -> Call:
    x, w = given
    x = x.permute(0, 3, 1, 2)
    w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return lambda: torch.nn.functional.conv2d(x, w, stride=peer["strides"], padding=peer["padding"])


def _rows(torch: Any, peer: Mapping[str, Any], given: Sequence[Any]) -> Call:
    functions = torch.nn.functional
    x = given[0]
    return {
        "add": lambda: x + given[1],
        "copy": lambda: x.clone(),
        "gelu": lambda: functions.gelu(x, approximate="tanh"),
        "layer_norm": lambda: functions.layer_norm(x, x.shape[-1:], given[1], given[2]),
        "softmax": lambda: functions.softmax(x, -1),
        "sum": lambda: x.sum(-1),
    }[peer["function"]]


PEERS: dict[str, Callable[[Any, Mapping[str, Any], Sequence[Any]], Call]] = {
    "attention": _attention,
    "convolution": _conv,
    "product": _matmul,
    "rows": _rows,
}
