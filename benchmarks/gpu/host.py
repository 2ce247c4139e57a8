"""What the host does in a call of a GPU model with dynamic dims: CPU time of the calling thread, without kernels.

    python -m benchmarks.gpu.host bert_base gpt2 --target spirv 'nvvm{chip=sm_80}'

Models are reduced to their first layer, and nothing is executed. For `spirv`, commands are recorded for the Vulkan
device of this machine, but not submitted. For `nvvm`, a driver that does nothing takes the place of CUDA's. Times are
the least and the median of calls, in milliseconds: with sizes that were not given before, and with those of the last
call.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from mirlo.benchmarks.dynamic import arrays_for
from mirlo.benchmarks.models import dynamic
from mirlo.tools import samples

MODELS = ["bert_base", "gpt2"]
LAST = "layer_norm_2"
"""The tensor that ends the first layer."""
LENGTHS = range(5, 60)
"""Lengths of sequences, which are called from the largest on: memory is allocated in the first call."""
REPEATS = 50
"""Calls with the same sizes."""
SUCCESS = SimpleNamespace(name="CUDA_SUCCESS")


class NullDriver:
    """A CUDA driver that executes nothing."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SUCCESS, CUDA_ERROR_UNSUPPORTED_PTX_VERSION=SimpleNamespace(name="PTX"))
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUjit_option = SimpleNamespace(CU_JIT_ERROR_LOG_BUFFER=5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES=6)
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=1,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=2,
    )  # fmt: skip
    CUstream = int
    _DONE = (SUCCESS,)
    _MADE = (SUCCESS, 1)

    def __init__(self) -> None:
        self._memory: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        makes = ("Create", "Get", "Load", "Retain", "Instantiate", "EndCapture")
        answer = self._MADE if any(word in name for word in makes) and name != "cuFuncLoad" else self._DONE
        setattr(self, name, lambda *arguments: answer)
        return getattr(self, name)

    def cuDeviceGetAttribute(self, kind: int, device: int) -> tuple[Any, int]:
        return SUCCESS, (8, 0, 108)[kind]

    def cuMemAlloc(self, size: int, flags: int = 0) -> tuple[Any, int]:
        self._memory.append((ctypes.c_char * (size + 256))())
        return SUCCESS, -(-ctypes.addressof(self._memory[-1]) // 256) * 256

    cuMemHostAlloc = cuMemAlloc

    def cuEventQuery(self, event: int) -> tuple[Any]:
        return self._DONE

    def cuLaunchKernel(self, *arguments: Any) -> tuple[Any]:
        return self._DONE


@contextmanager
def nothing_executed() -> Iterator[None]:
    """Make the devices of GPU targets execute nothing."""
    from mirlo.targets.nvvm import device
    from mirlo.targets.spirv.vulkan import VulkanDevice

    driver = NullDriver()
    with patch.object(device, "driver", lambda: driver), patch.object(VulkanDevice, "run", lambda *arguments: None):
        for known in (device.gpu, device.capability):
            known.cache_clear()
        yield
    for known in (device.gpu, device.capability):
        known.cache_clear()


def reduced(name: str) -> Any:
    """Return the first layer of a transformer with dynamic dims; no other layer gets its weights."""
    import onnx
    import onnx.utils

    model = dynamic.with_symbols(onnx.load(samples.GRAPHS / f"{name}.onnx"))
    shape = [dynamic.BATCH, dynamic.SEQUENCE, 768]
    model.graph.value_info.append(onnx.helper.make_tensor_value_info(LAST, onnx.TensorProto.FLOAT, shape))
    extractor = onnx.utils.Extractor(model)
    return samples.fill_weights(extractor.extract_model([value.name for value in model.graph.input], [LAST]))


def measure(name: str, target: str) -> None:
    """Print the times of a model on a target."""
    import mirlo

    model = reduced(name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.mirlo"
        mirlo.compile(model, target=target, cache=False).save(file)
        executable = mirlo.load(file)
        rng = np.random.default_rng(0)
        feeds = [arrays_for(model, 1, length, rng) for length in reversed(LENGTHS)]
        for arrays in feeds[:2]:
            executable.run(arrays)
        new = [_milliseconds(executable, arrays) for arrays in feeds[2:]]
        same = [_milliseconds(executable, feeds[-1]) for _ in range(REPEATS)]
        del executable
    texts = (f"{min(times):.3f} ({statistics.median(times):.3f})" for times in (new, same))
    print(f"{name:10s} {target:18s} new sizes {next(texts)}, same sizes {next(texts)} ms")


def _milliseconds(executable: Any, arrays: dict[str, np.ndarray]) -> float:
    start = time.thread_time()
    executable.run(arrays)
    return 1e3 * (time.thread_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--target", nargs="*", default=["spirv", "nvvm{chip=sm_80}"])
    options = parser.parse_args()
    for name in options.models:
        for target in options.target:
            with nothing_executed():
                measure(name, target)


if __name__ == "__main__":
    main()
