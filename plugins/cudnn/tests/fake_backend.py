"""The backend of a fake cuDNN in numpy: it checks descriptors as far as documented, and executes their graphs."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

TYPES = {0: np.float32, 2: np.float16, 9: ml_dtypes.bfloat16, 4: np.int32, 11: np.bool_}
ELEMENTS = {
    0: ctypes.c_void_p, 1: ctypes.c_int, 2: ctypes.c_bool, 3: ctypes.c_int64, 6: ctypes.c_void_p, 8: ctypes.c_int,
    14: ctypes.c_int, 15: ctypes.c_void_p, 18: ctypes.c_int,
}  # fmt: skip
"""The ctypes of attribute types."""
ATTRIBUTES = {
    0: {0: 14, 1: 1, 9: 3}, 4: {200: 8, 201: 15}, 5: {400: 0, 401: 15}, 15: {800: 0, 801: 15},
    13: {750: 15, 751: 15, 752: 15, 753: 15, 758: 15}, 16: {1000: 3, 1001: 6, 1003: 6},
    17: {900: 3, 901: 1, 902: 3, 903: 3, 906: 3, 907: 2, 908: 2}, 18: {1500: 1},
    19: {1520: 15, 1521: 15, 1522: 15, 1523: 15}, 21: {1600: 18, 1601: 1}, 22: {1610: 15, 1611: 15, 1612: 15},
}  # fmt: skip
"""By kind of descriptor, the types of its attributes, by the library's header."""
POINTWISE = {
    0: np.add, 1: np.multiply, 6: np.divide, 9: np.subtract, 13: np.exp, 15: np.log, 303: np.greater_equal,
}  # fmt: skip


class Refused(Exception):
    """A call that the library rejects."""


class FakeBackend:
    """The backend part of `FakeCudnn`: descriptors, engines, and their execution."""

    driver: Any
    stream: int

    def begin(self) -> None:
        """Set the state of a new library."""
        self.descriptors: dict[int, dict[str, Any]] = {}
        self.engines = [(3, 1 << 30), (3, 4096), (2, 0)]
        """The mode that names an engine, and the scratch memory that it wants."""
        self.graphs: list[list[int]] = []
        """The kinds of the operations that were executed."""
        self._count = 1000

    def cudnnGetVersion(self) -> int:
        return 92800

    def cudnnBackendCreateDescriptor(self, kind: int, out: Any) -> int:
        self._count += 1
        self.descriptors[self._count] = {"kind": kind, "set": {}, "final": False}
        out._obj.value = self._count
        return 0

    def cudnnBackendDestroyDescriptor(self, made: Any) -> int:
        del self.descriptors[made.value]
        return 0

    def cudnnBackendSetAttribute(self, made: Any, attribute: int, form: int, count: Any, value: Any) -> int:
        row = self.descriptors[made.value]
        assert not row["final"] and ATTRIBUTES[row["kind"]][attribute] == form, (row, attribute, form)
        array = value._obj
        assert ctypes.sizeof(array) == count.value * ctypes.sizeof(ELEMENTS[form])
        held = (ELEMENTS[form] * count.value).from_buffer_copy(array)
        row["set"][attribute] = list(held)
        return 0

    def cudnnBackendFinalize(self, made: Any) -> int:
        row = self.descriptors[made.value]
        row["final"] = True
        if row["kind"] == 5:
            config = self.descriptors[row["set"][401][0]]
            row["memory"] = config["engine"][1]
        for attribute, values in row["set"].items():
            if ATTRIBUTES[row["kind"]][attribute] == 15:
                assert all(self.descriptors[v]["final"] or self.descriptors[v]["kind"] == 3 for v in values)
        return 0

    def cudnnBackendGetAttribute(self, made: Any, attribute: int, form: int, room: Any, count: Any, value: Any) -> int:
        row = self.descriptors[made.value]
        if (row["kind"], attribute) == (5, 402):
            assert form == 3 and room.value == 1
            value._obj.value, count._obj.value = row["memory"], 1
            return 0
        assert (row["kind"], attribute, form) == (4, 202, 15) and row["final"]
        engines = [engine for engine in self.engines if engine[0] == row["set"][200][0]]
        # As the library does: it says how many there may be, and gives those that pass its own checks.
        count._obj.value = len(engines) + 1 if value is None else len(engines)
        for i, engine in enumerate(engines if value is not None else []):
            config = self.descriptors[value._obj[i]]
            assert config["kind"] == 3
            config["engine"], config["graph"] = engine, row["set"][201][0]
        return 0

    def cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> int:
        given = self.descriptors[pack.value]["set"]
        held = self.descriptors[plan.value]
        places = dict(zip(given[1000], given[1001], strict=True))
        assert bool(given[1003][0]) == bool(held["memory"]), "scratch memory where it is wanted"
        graph = self.descriptors[self.descriptors[held["set"][401][0]]["graph"]]
        operations = [self._operation(number) for number in graph["set"][801]]
        self.graphs.append([kind for kind, *_ in operations])
        host = {
            tensor["number"]: self._array(tensor, places[tensor["number"]]).copy()
            for _, _, ends in operations for tensor in ends if tensor["host"]
        }  # fmt: skip
        self.driver._now(self.stream, lambda: self._compute(operations, places, host))
        return 0

    def _operation(self, number: int) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
        row = self.descriptors[number]
        kind, values = row["kind"], row["set"]
        how, ends = {13: (750, (751, 752, 758, 753)), 19: (1523, (1520, 1521, 1522)), 22: (1612, (1610, 1611))}[kind]
        tensors = [self._tensor(values[end][0]) for end in ends if end in values]
        return kind, self.descriptors[values[how][0]]["set"], tensors

    def _tensor(self, number: int) -> dict[str, Any]:
        values = self.descriptors[number]["set"]
        assert values[900] == [16] and len(values[902]) == len(values[903]) == 4
        return {"number": values[906][0], "kind": TYPES[values[901][0]], "dims": values[902], "strides": values[903],
                "virtual": values[907][0], "host": values[908][0]}  # fmt: skip

    def _array(self, tensor: dict[str, Any], address: int) -> np.ndarray:
        dtype = np.dtype(tensor["kind"])
        reach = 1 + sum((dim - 1) * step for dim, step in zip(tensor["dims"], tensor["strides"], strict=True))
        flat = np.frombuffer((ctypes.c_char * (reach * dtype.itemsize)).from_address(address), dtype)
        return np.lib.stride_tricks.as_strided(flat, tensor["dims"], [s * dtype.itemsize for s in tensor["strides"]])

    def _compute(self, operations: list[Any], places: dict[int, int], host: dict[int, np.ndarray]) -> None:
        made = dict(host)

        def value(tensor: dict[str, Any]) -> np.ndarray:
            number = tensor["number"]
            return made[number] if number in made else self._array(tensor, places[number])

        for kind, how, (*inputs, output) in operations:
            with np.errstate(all="ignore"):
                found = self._result(kind, how, [value(tensor) for tensor in inputs]).astype(output["kind"])
            assert list(found.shape) == output["dims"], (kind, found.shape, output)
            if output["virtual"]:
                made[output["number"]] = found
            else:
                self._array(output, places[output["number"]])[...] = found

    def _result(self, kind: int, how: dict[int, Any], inputs: list[np.ndarray]) -> np.ndarray:
        wide = [x.astype(np.float64) if x.dtype.kind not in "ib" else x for x in inputs]
        if kind == 19:
            a, b = wide
            share = a.shape[1] // b.shape[1]
            return a @ np.repeat(b, share, axis=1)
        if kind == 22:
            reduce = {0: np.sum, 3: np.max}[how[1600][0]]
            return reduce(wide[0], axis=3, keepdims=True)
        mode = how[0][0]
        if mode == 501:
            axis = how[9][0]
            shape = [-1 if i == axis else 1 for i in range(4)]
            return np.broadcast_to(np.arange(wide[0].shape[axis]).reshape(shape), wide[0].shape)
        if mode == 601:
            return np.where(wide[2], wide[0], wide[1])
        return POINTWISE[mode](*wide)
