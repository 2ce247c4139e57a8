"""Dataclasses that are declared without generated text.

`dataclasses.dataclass` writes each method as text and compiles it, 0.5 ms for a class; a process that compiles a model
declares 400 classes. The decorator here adds functions that loop over the names of the fields: 0.03 ms for a class.
A compilation makes 20,000 to 400,000 instances, most of them with one to five fields: their constructors are
copies of a function with other names, and as fast as those of the standard library.
`dataclasses.fields`, `replace` and `asdict` accept its classes, and it passes on to the standard library what it does
not implement: `order`, `slots`, `InitVar` and other rare options.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
from dataclasses import KW_ONLY, MISSING, Field, FrozenInstanceError, InitVar, field
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_origin

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass

_set_attribute = object.__setattr__
set_field: Callable[[object, str, object], None] = _set_attribute
"""What sets a field in the methods for few fields: another one for classes that are not frozen."""
_SETTERS = {True: {"set_field": _set_attribute}, False: {"set_field": setattr}}


class _Options(NamedTuple):
    """The options of the decorator, as the standard library reads them from `__dataclass_params__` of base classes."""

    init: bool = True
    repr: bool = True
    eq: bool = True
    order: bool = False
    unsafe_hash: bool = False
    frozen: bool = False
    match_args: bool = True
    kw_only: bool = False
    slots: bool = False
    weakref_slot: bool = False


def _dataclass(cls: type | None = None, /, **flags: bool) -> Any:
    if cls is None:
        return lambda decorated: _dataclass(decorated, **flags)
    annotations = inspect.get_annotations(cls)
    if not flags.keys() <= {"frozen", "eq", "kw_only"} or any(map(_is_init_variable, _all_annotations(cls))):
        return dataclasses.dataclass(cls, **flags)
    options = _Options(**flags)
    bases = [base for base in cls.__mro__[:0:-1] if "__dataclass_fields__" in base.__dict__]
    _check_bases(bases, options.frozen)
    fields = {each.name: each for base in bases for each in dataclasses.fields(base)}
    fields.update(_own_fields(cls, annotations, options.kw_only))
    _add_methods(cls, options, tuple(fields.values()))
    positional = tuple(each.name for each in fields.values() if each.init and not each.kw_only)
    _define(cls, "__match_args__", positional)
    vars_of_class: Any = cls
    vars_of_class.__dataclass_fields__ = fields
    vars_of_class.__dataclass_params__ = options
    abc.update_abstractmethods(cls)
    return cls


if not TYPE_CHECKING:
    dataclass = _dataclass


def _all_annotations(cls: type) -> list[object]:
    return [annotation for base in cls.__mro__ for annotation in base.__dict__.get("__annotations__", {}).values()]


def _is_init_variable(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("InitVar", "dataclasses.InitVar"))
    return annotation is InitVar or isinstance(annotation, InitVar)


def _is_class_variable(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _check_bases(bases: list[Any], frozen: bool) -> None:
    for base in bases:
        if base.__dataclass_params__.frozen and not frozen:
            raise TypeError("cannot inherit non-frozen dataclass from a frozen one")
        if frozen and not base.__dataclass_params__.frozen:
            raise TypeError("cannot inherit frozen dataclass from a non-frozen one")


def _own_fields(cls: type, annotations: dict[str, Any], kw_only: bool) -> dict[str, Field[Any]]:
    """Return the fields that the body of a class declares."""
    fields: dict[str, Field[Any]] = {}
    for name, annotation in annotations.items():
        if annotation is KW_ONLY or annotation in ("KW_ONLY", "dataclasses.KW_ONLY"):
            kw_only = True
        elif not _is_class_variable(annotation):
            fields[name] = _own_field(cls, name, annotation, kw_only)
    for name, value in cls.__dict__.items():
        if isinstance(value, Field) and name not in annotations:
            raise TypeError(f"{name!r} is a field but has no type annotation")
    for each in fields.values():
        if each.default is not MISSING:
            setattr(cls, each.name, each.default)
        elif each.name in cls.__dict__:
            delattr(cls, each.name)
    return fields


def _own_field(cls: type, name: str, annotation: Any, kw_only: bool) -> Field[Any]:
    default = cls.__dict__.get(name, MISSING)
    declared: Any = default if isinstance(default, Field) else field(default=default)
    if declared.default.__class__.__hash__ is None:
        raise ValueError(
            f"mutable default {type(declared.default)} for field {name} is not allowed: use default_factory"
        )
    declared.name, declared.type = name, annotation
    if declared.kw_only is MISSING:
        declared.kw_only = kw_only
    # The one name that is not public: `dataclasses.fields` lists the fields that have it.
    declared._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
    return declared  # type: ignore[no-any-return]


def _define(cls: type, name: str, value: object) -> None:
    """Add a method to a class that does not define it."""
    if name not in cls.__dict__:
        setattr(cls, name, value)


def _add_methods(cls: type, options: _Options, fields: tuple[Field[Any], ...]) -> None:
    own = cls.__dict__
    explicit_hash = own.get("__hash__") is not None or "__hash__" in own and "__eq__" not in own
    if "__init__" not in own:
        cls.__init__ = _init(cls, fields, options.frozen)  # type: ignore[misc]
        _define(cls, "__signature__", _Signature(cls, fields))
    _define(cls, "__repr__", _repr(tuple(each.name for each in fields if each.repr)))
    if options.eq:
        _define(cls, "__eq__", _eq(_values_of(each.name for each in fields if each.compare)))
        if not explicit_hash:
            hashed = (each.name for each in fields if (each.compare if each.hash is None else each.hash))
            cls.__hash__ = _hash(_values_of(hashed)) if options.frozen else None  # type: ignore[method-assign, assignment]
    if options.frozen:
        for name in ("__setattr__", "__delattr__"):
            if name in own:
                raise TypeError(f"Cannot overwrite attribute {name} in class {cls.__name__}")
        names = frozenset(each.name for each in fields)
        cls.__setattr__, cls.__delattr__ = _refusals(cls, names)  # type: ignore[method-assign, assignment]


class _Signature:
    """The signature of a class, made when `inspect.signature` requests it."""

    def __init__(self, cls: type, fields: tuple[Field[Any], ...]) -> None:
        self.cls, self.fields = cls, fields

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None or owner.__init__ is not self.cls.__init__:  # type: ignore[misc]
            raise AttributeError("__signature__")
        return _signature(self.fields)


class _Factory:
    """The default of a field with a factory in a signature."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _signature(fields: tuple[Field[Any], ...]) -> inspect.Signature:
    parameters = []
    for each in fields:
        if each.init:
            default = _FACTORY if each.default_factory is not MISSING else each.default
            parameters.append(
                inspect.Parameter(
                    each.name,
                    inspect.Parameter.KEYWORD_ONLY if each.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=inspect.Parameter.empty if default is MISSING else default,
                    annotation=each.type,
                )
            )
    parameters.sort(key=lambda parameter: parameter.kind)
    return inspect.Signature(parameters, return_annotation=None)


def _init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:  # noqa: C901  # one closure
    names = tuple(each.name for each in fields if each.init and not each.kw_only)
    known = frozenset(each.name for each in fields if each.init)
    defaults = {each.name: each.default for each in fields if each.init and each.default is not MISSING}
    factories = {each.name: each.default_factory for each in fields if each.default_factory is not MISSING}
    required = known - defaults.keys() - factories.keys()
    _check_order(names, required)
    count = len(names)
    has_post_init = hasattr(cls, "__post_init__")
    if count == len(fields) and not factories and not has_post_init:
        of_few = _init_of_few(cls, names, tuple(defaults.values()), frozen)
        if of_few is not None:
            return of_few
    plans: tuple[tuple[str, bool, Any], ...] = tuple(
        (each.name, each.name in factories, factories.get(each.name)) for each in fields
    )
    others: dict[int, tuple[tuple[str, bool, Any], ...] | None] = {}
    """By the number of positional arguments: the fields that get their defaults; None if there are too few or many."""
    set_field = _set_attribute if frozen else setattr

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        positional = len(args)
        if positional not in others:
            first = names[:positional]
            others[positional] = (
                tuple(plan for plan in plans if plan[0] not in first and (plan[1] or plan[0] in defaults))
                if required <= set(first) and positional <= count
                else None
            )
        rest = None if named else others[positional]
        if rest is not None:
            for name, value in zip(names, args):  # noqa: B905  # the first of the names
                set_field(self, name, value)
            for name, has_factory, factory in rest:
                set_field(self, name, factory() if has_factory else defaults[name])
        else:
            values = dict(zip(names, args), **named) if args else named  # noqa: B905  # the check is the next statement
            if len(args) > count or len(values) != len(args) + len(named) or not required <= values.keys() <= known:
                raise _mistake(cls, fields, args, named)
            for name, has_factory, factory in plans:
                if name in values:
                    set_field(self, name, values[name])
                elif has_factory:
                    set_field(self, name, factory())
                elif name in defaults:
                    set_field(self, name, defaults[name])
        if has_post_init:
            self.__post_init__()

    return __init__


def _init_1(self: Any, a: Any) -> None:
    set_field(self, "a", a)


def _init_2(self: Any, a: Any, b: Any) -> None:
    set_field(self, "a", a)
    set_field(self, "b", b)


def _init_3(self: Any, a: Any, b: Any, c: Any) -> None:
    set_field(self, "a", a)
    set_field(self, "b", b)
    set_field(self, "c", c)


def _init_4(self: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    set_field(self, "a", a)
    set_field(self, "b", b)
    set_field(self, "c", c)
    set_field(self, "d", d)


def _init_5(self: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> None:
    set_field(self, "a", a)
    set_field(self, "b", b)
    set_field(self, "c", c)
    set_field(self, "d", d)
    set_field(self, "e", e)


_OF_FEW = {1: _init_1, 2: _init_2, 3: _init_3, 4: _init_4, 5: _init_5}
"""Methods of classes by the number of fields, with names that stand for these."""


def _init_of_few(
    cls: type, names: tuple[str, ...], defaults: tuple[object, ...], frozen: bool
) -> Callable[..., None] | None:
    """Return a method for as many fields as there is one for, whose names are put into its code; None for others."""
    template = _OF_FEW.get(len(names))
    if template is None or "self" in names:
        return None
    code = template.__code__
    renamed = dict(zip(code.co_varnames[1:], names, strict=True))
    constants = tuple(renamed.get(each, each) if isinstance(each, str) else each for each in code.co_consts)
    code = code.replace(co_varnames=("self", *names), co_consts=constants, co_name="__init__")
    method = FunctionType(code, _SETTERS[frozen], "__init__", defaults)
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    return method


def _check_order(names: tuple[str, ...], required: frozenset[str]) -> None:
    optional = False
    for name in names:
        if name not in required:
            optional = True
        elif optional:
            raise TypeError(f"non-default argument {name!r} follows default argument")


def _mistake(cls: type, fields: tuple[Field[Any], ...], args: tuple[Any, ...], named: dict[str, Any]) -> TypeError:
    """Return the error for arguments that do not match the fields."""
    try:
        _signature(fields).bind(*args, **named)
    except TypeError as error:
        return TypeError(f"{cls.__qualname__}.__init__(): {error}")
    raise AssertionError


def _values_of(names: Any) -> Callable[[Any], tuple[Any, ...]]:
    names = tuple(names)
    if not names:
        return lambda _: ()
    if len(names) == 1:
        one = attrgetter(names[0])
        return lambda instance: (one(instance),)
    return attrgetter(*names)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], Any]:
    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refusals(
    cls: Any, names: frozenset[str]
) -> tuple[Callable[[object, str, object], None], Callable[[object, str], None]]:
    """Return `__setattr__` and `__delattr__` of a frozen class; a class derived from it may have other attributes."""

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__
