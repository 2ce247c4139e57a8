"""The decorator whose methods are compiled late declares the classes that the standard library's declares."""

import abc
import copy
import dataclasses
import inspect
import pickle
from dataclasses import KW_ONLY, InitVar, field
from typing import ClassVar

import pytest

from mirlo.runtime.lazy_dataclass import dataclass

METHODS = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__lt__")
OPTIONS = [
    {},
    {"frozen": True},
    {"eq": False},
    {"order": True},
    {"unsafe_hash": True},
    {"frozen": True, "slots": True, "order": True},
    {"kw_only": True, "repr": False},
    {"repr": False, "match_args": False},
]


def declare(decorate, options):
    @decorate(**options)
    class Shape:
        """A shape."""

        rows: int
        cols: int = 2
        names: list[str] = field(default_factory=list, compare=False, metadata={"unit": "none"})
        count: ClassVar[int] = 7
        _: KW_ONLY
        scale: InitVar[int] = 3
        last: str = field(default="x", repr=False)

        def __post_init__(self, scale):
            assert scale == 3

    return Shape


def outcome(function, *args, **kwargs):
    """Return what a call returns as text, or what it raises."""
    try:
        return repr(function(*args, **kwargs))
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def behaviour(cls):
    """Return what is seen of a class and its instances."""
    one, other = cls(rows=1), cls(rows=1, names=["a"])
    yield from (
        inspect.signature(cls),
        cls.__init__.__annotations__,
        cls.__doc__,
        cls.__mro__[1:],
        cls.__hash__ is None,
    )
    yield from ((f.name, f.type, f.metadata, f.kw_only) for f in dataclasses.fields(cls))
    yield from (repr(cls.__dataclass_params__), cls.__dict__.get("__match_args__"), cls.count)
    yield from (outcome(cls), outcome(cls, 1, 2, [], 3), outcome(cls, rows=1, wrong=2), one == other, one != other)
    yield from (outcome(hash, one) == outcome(hash, other), outcome(lambda: one < other), one == 3)
    yield from (outcome(setattr, one, "rows", 1), outcome(delattr, one, "rows"), outcome(setattr, one, "new", 1))
    for name in METHODS:
        method = getattr(cls, name)
        yield (
            name,
            getattr(method, "__qualname__", None),
            getattr(method, "__name__", None),
            inspect.isfunction(method),
        )
    yield from (
        repr(dataclasses.replace(cls(rows=4), rows=5)),
        dataclasses.asdict(cls(rows=6)),
        copy.copy(other).names,
    )


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "default")
def test_classes_are_those_of_the_standard_library(options):
    texts = [
        [str(fact) for fact in behaviour(declare(decorate, options))] for decorate in (dataclass, dataclasses.dataclass)
    ]
    hidden = [[line.split(" object at ")[0] for line in lines] for lines in texts]
    assert hidden[0] == hidden[1]


@dataclass(frozen=True)
class Base:
    """A class that another one extends."""

    x: int


@dataclass(frozen=True)
class Derived(Base):
    """A class whose instances are pickled."""

    y: int = 1


def test_methods_are_compiled_when_they_are_looked_up():
    shape = declare(dataclass, {"frozen": True})
    lazy = {name for name in METHODS if name in vars(shape) and not inspect.isfunction(vars(shape)[name])}
    assert lazy == {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"}
    shape(1)
    assert inspect.isfunction(vars(shape)["__init__"])


def test_derived_classes():
    one = Derived(1)
    assert repr(one) == "Derived(x=1, y=1)" and pickle.loads(pickle.dumps(one)) == one
    assert Derived(1) != Base(1) and len({one, Derived(1, 1), Base(1)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2
    assert "__init__" not in vars(type("Sub", (Base,), {}))
    assert type("Sub", (Base,), {})(3).x == 3
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Wrong", (Base,), {"__annotations__": {}}))
    with pytest.raises(TypeError, match="non-default argument 'b' follows default argument"):
        dataclass(type("Wrong", (), {"__annotations__": {"a": int, "b": int}, "a": 1}))


def test_methods_that_a_class_has_stay():
    @dataclass
    class Own:
        """A class with methods of its own."""

        x: int = 0

        def __repr__(self):
            return "own"

        def __hash__(self):
            return 5

    @dataclass
    class Recursive:
        """A class that contains itself."""

        inner: object = None

    assert repr(Own()) == "own" and hash(Own()) == 5 and Own(1) != Own()
    value = Recursive()
    value.inner = value
    assert repr(value).endswith("Recursive(inner=...)")


def test_abstract_classes_stay_abstract():
    @dataclass
    class Abstract(abc.ABC):
        """A class that has no instances."""

        x: int = 0

        @abc.abstractmethod
        def method(self): ...

    with pytest.raises(TypeError, match="abstract"):
        Abstract()
    assert type("Concrete", (Abstract,), {"method": lambda self: self.x})(3).method() == 3
