"""The decorator without generated text declares the classes that the standard library's declares."""

import abc
import copy
import dataclasses
import inspect
import pickle
from dataclasses import KW_ONLY, InitVar, field
from typing import ClassVar

import pytest

from mirlo.runtime.records import dataclass

METHODS = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__lt__")
OPTIONS = [
    {},
    {"frozen": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"kw_only": True},
    {"frozen": True, "kw_only": True},
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
        last: str = field(default="x", repr=False)
        volume: int = field(init=False)
        uses: list[str] = field(init=False, default_factory=list, hash=False)

        def __post_init__(self):
            object.__setattr__(self, "volume", 3)

    return Shape


def outcome(function, *args, **kwargs):
    """Return the result of a call as text, or its exception."""
    try:
        return repr(function(*args, **kwargs))
    except TypeError:
        return "TypeError"
    except AttributeError as error:
        return f"{type(error).__name__}: {error}"


def behaviour(cls):
    """Return the observable behaviour of a class and its instances."""
    one, other = cls(rows=1), cls(rows=1, names=["a"])
    yield from (
        inspect.signature(cls),
        cls.__doc__,
        cls.__mro__[1:],
        cls.__hash__ is None,
    )
    yield from ((f.name, f.type, f.metadata, f.kw_only) for f in dataclasses.fields(cls))
    params = cls.__dataclass_params__
    yield from (params.init, params.repr, params.eq, params.order, params.unsafe_hash, params.frozen)
    yield from (cls.__dict__.get("__match_args__"), cls.count)
    yield from (outcome(cls), outcome(cls, 1, 2, [], 3), outcome(cls, rows=1, wrong=2), one == other, one != other)
    yield from (outcome(cls, 1, rows=1), outcome(cls, 1, volume=1), outcome(cls, rows=1, last="y"))
    yield from (outcome(hash, one) == outcome(hash, other), outcome(lambda: one < other), one == 3)
    yield from (outcome(setattr, one, "rows", 1), outcome(delattr, one, "rows"), outcome(setattr, one, "new", 1))
    yield [(name, inspect.isfunction(getattr(cls, name))) for name in METHODS]
    yield from (
        repr(dataclasses.replace(cls(rows=4), rows=5)),
        dataclasses.asdict(cls(rows=6)),
        copy.copy(other).names,
    )


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "default")
def test_classes_are_those_of_the_standard_library(options):
    texts = []
    for decorate in (dataclass, dataclasses.dataclass):
        cls = declare(decorate, options)
        texts.append([str(fact) for fact in behaviour(cls)])
    hidden = [[line.split(" object at ")[0] for line in lines] for lines in texts]
    assert hidden[0] == hidden[1]


def test_methods_that_replace_init_stay():
    @dataclass
    class Counted:
        """A class whose constructor is replaced after it is declared."""

        x: int = 0

    looped = Counted.__init__
    Counted.__init__ = lambda self, x=0: looped(self, x + 1)
    assert Counted(1).x == 2


def test_no_instances():
    @dataclass(frozen=True)
    class Empty:
        """A class without fields."""

    assert Empty() == Empty() and repr(Empty()).endswith("Empty()")


@dataclass(frozen=True)
class Base:
    """A class that another one extends."""

    x: int


@dataclass(frozen=True)
class Derived(Base):
    """A class whose instances are pickled."""

    y: int = 1


@dataclass(frozen=True)
class Wide(Derived):
    """A class of more fields than there are constructors for."""

    a: int = 2
    b: int = 3
    c: int = 4
    d: int = 5


def test_arguments_are_checked():
    for args, kwargs, message in (
        ((), {}, "Wide.__init__(): missing a required argument: 'x'"),
        ((1, 2, 3, 4, 5, 6, 7), {}, "Wide.__init__(): too many positional arguments"),
        ((1,), {"x": 2}, "Wide.__init__(): multiple values for argument 'x'"),
        ((1,), {"z": 2}, "Wide.__init__(): got an unexpected keyword argument 'z'"),
    ):
        with pytest.raises(TypeError) as raised:
            Wide(*args, **kwargs)
        assert str(raised.value) == message


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("frozen", [True, False])
def test_constructors_of_few_fields_are_those_of_the_standard_library(count, frozen):
    """With fields whose names are those in the function that is copied, too, and in another order."""
    names = ["e", "self_", "a", "c", "b"][:count]
    space = {"__annotations__": dict.fromkeys(names, int), names[-1]: 7}
    ours, standard = (
        declare(frozen=frozen)(type("Few", (), {**space, "__qualname__": "Few"}))
        for declare in (dataclass, dataclasses.dataclass)
    )
    values = list(range(count))
    for args, kwargs in (
        (values, {}), (values[:-1], {}), ([], dict(zip(names, values, strict=True))), (values[:1], {names[0]: 1}),
        ([*values, 1], {}), ([], {}), (values, {"z": 1}),
    ):  # fmt: skip
        outcomes = []
        for each in (ours, standard):
            try:
                outcomes.append(vars(each(*args, **kwargs)))
            except TypeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_no_text_is_compiled(monkeypatch):
    monkeypatch.setattr("builtins.exec", None)
    shape = declare(dataclass, {"frozen": True})
    assert repr(shape(1)).endswith("Shape(rows=1, cols=2, names=[], volume=3, uses=[])")


def test_classes_mix_with_those_of_the_standard_library():
    @dataclasses.dataclass(frozen=True)
    class Standard(Base):
        """A class of the standard library that extends one of ours."""

        y: int = 2

    @dataclass(frozen=True)
    class Again(Standard):
        """One of ours that extends it."""

        z: int = 3

    assert dataclasses.astuple(Again(1)) == (1, 2, 3) and dataclasses.replace(Again(1), y=5) == Again(1, 5)


def test_init_variables():
    @dataclass(frozen=True)
    class Scaled:
        """A class whose argument is no field."""

        x: int
        scale: InitVar[int] = 3

        def __post_init__(self, scale):
            object.__setattr__(self, "x", self.x * scale)

    assert Scaled(2).x == 6 and [f.name for f in dataclasses.fields(Scaled)] == ["x"]


def test_own_attributes_of_derived_classes():
    class Sub(Base):
        """A class that is not declared as a dataclass."""

    value = Sub(1)
    value.other = 2
    assert value.other == 2 and inspect.signature(Sub) == inspect.signature(Base)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.x = 2


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
    with pytest.raises(ValueError, match="mutable default <class 'list'> for field a is not allowed"):
        dataclass(type("Wrong", (), {"__annotations__": {"a": list}, "a": []}))
    with pytest.raises(TypeError, match="'a' is a field but has no type annotation"):
        dataclass(type("Wrong", (), {"a": field(default=1)}))


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
