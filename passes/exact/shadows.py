"""Shadows of buffers: which thread wrote and read each element since which barrier.

Two threads of a block that access an element, one of which writes it, need a barrier between them; threads of two
blocks may not do so in one launch. What breaks this is noted in the constants of the round.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.ir_text import FunctionText
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translator import Argument, KernelTranslator, is_float_buffer
from mirlo.passes.exact.values import BufferRef, IntValue
from mirlo.runtime.records import dataclass

FAULT = 4
"""Position among the constants of a round where the first fault of synchronization is noted; 0 without one."""
RACES = (
    "a thread reads an element of {} that another one writes, and no barrier is between them",
    "a thread writes an element of {} that another one writes, and no barrier is between them",
    "a thread writes an element of {} that another one reads, and no barrier is between them",
    "not all threads of a block reach {}",
    "a thread accesses an element of {}, and a copy to it is in flight",
)  # fmt: skip
READ, WRITE, OVERWRITE, DIVERGENCE, IN_FLIGHT = range(len(RACES))
MANY = (1 << 16) - 1
"""The number that stands for several threads."""
_WORDS = 2
"""The words of an element: the last write, and the last read. A copy that may be in flight is negative, and has its
group in place of barriers."""
_COMMITTED, _COMPLETE, _ENDS = range(3)
"""The words of a thread's copies: groups that it committed, those it waited for, and for some of these the barriers
before it did."""
_GROUPS = 64
"""How many of them: the threads meet at a barrier more often."""
_COPY_WORDS = _ENDS + _GROUPS


def fault_text(code: int, sites: list[str]) -> str:
    """Return what a number noted at `FAULT` means; `sites` are the names of buffers and barriers."""
    site, kind = divmod(code - 1, len(RACES))
    return RACES[kind].format(sites[site])


@dataclass(frozen=True)
class Moment:
    """The thread that runs, the barriers before, and those before its block."""

    thread: IntValue
    epoch: IntValue
    first: IntValue


@dataclass(frozen=True)
class Shadow:
    """The shadow of one buffer."""

    address: str
    count: IntValue
    """How many elements it has."""
    grain: int
    """The bytes of an element."""
    is_of_block: bool
    """Whether each block has memory of its own."""
    site: int


class Shadows:
    """The shadows of buffers that the threads of launches share."""

    def __init__(self, t: KernelTranslator):
        self._t = t
        self._shadows: dict[tuple[str, ...], Shadow | None] = {}
        self.moment: Moment | None = None
        """The thread whose code is under construction."""
        self._copies: BufferRef | None = None
        """The groups of copies of each thread, where there are asynchronous ones."""

    def site(self, name: str) -> int:
        """Return the number of a place that a fault may name."""
        if name not in self._t.sites:
            self._t.sites.append(name)
        return self._t.sites.index(name)

    def prepare(self, value: ir.Value, name: str, is_of_block: bool = False) -> None:
        """Make the shadow of a buffer that is written."""
        buffer = self._t.buffer(value)
        if buffer.roots not in self._shadows:
            argument = self._t.memory[buffer.roots]
            self._shadows[buffer.roots] = self._make(argument, name, is_of_block, _is_viewed_as_floats(value))

    def clear(self) -> None:
        """Emit that nothing is written or read yet."""
        for shadow in filter(None, self._shadows.values()):
            size = self._t.arith("mul", shadow.count, self._t.index(8 * _WORDS))
            pointer = ("ptr", shadow.address)
            self._t.f.call_effect("llvm.memset.p0.i64", pointer, ("i8", "0"), ("i64", size.name), ("i1", "false"))
        if self._copies is not None:
            pointer, size_of_copies = ("ptr", self._copies.roots[0]), self._copies.room
            self._t.f.call_effect("llvm.memset.p0.i64", pointer, ("i8", "0"), ("i64", size_of_copies), ("i1", "false"))

    @property
    def has_copies(self) -> bool:
        return self._copies is not None

    def prepare_copies(self, threads: int) -> None:
        """Make memory for groups of asynchronous copies."""
        shape = (threads * _COPY_WORDS,)
        self._copies = self._t.buffer_argument(Argument("scratch", "i", 64, shape), shape)

    def _own_copies(self) -> str:
        """Return the address of the groups of the thread."""
        if self._copies is None or self.moment is None:
            raise OutsideError("an asynchronous copy outside of a launch")
        word = self._t.arith("mul", self.moment.thread, self._t.index(_COPY_WORDS))
        return self._t.f.op(f"getelementptr i64, ptr {self._copies.roots[0]}, i64 {word.name}")

    def start_copy(self, buffer: BufferRef, offset: IntValue, lanes: int) -> None:
        """Emit that a thread starts to copy to consecutive elements."""
        f, own = self._t.f, self._own_copies()
        committed = f.op(f"load i64, ptr {own}, align 8")
        assert self.moment is not None
        now = f.op(f"or i64 {f.op(f'shl i64 {committed}, 16')}, {self.moment.thread.name}")
        self._note(buffer, offset, lanes, is_write=True, stored=f.op(f"or i64 {now}, {-(1 << 63)}"))

    def commit_copies(self) -> None:
        """Emit that the copies of a thread so far are a group."""
        f, own = self._t.f, self._own_copies()
        more = f.op(f"add i64 {f.op(f'load i64, ptr {own}, align 8')}, 1")
        f.effect(f"store i64 {more}, ptr {own}, align 8")

    def wait_for_copies(self, left: int) -> None:
        """Emit that a thread waits until at most this many groups are in flight."""
        own = self._own_copies()
        assert self.moment is not None
        self._t.f.effect(f"call void @{_wait_helper(self._t.f)}(ptr {own}, i64 {left}, i64 {self.moment.epoch.name})")

    def start_block(self, thread: Moment) -> None:
        """Emit that a thread of a block has no copies in flight: those of blocks before are not its own."""
        self.moment = thread
        self.commit_copies()
        self.wait_for_copies(0)
        self.moment = None

    def note(self, buffer: BufferRef, offset: IntValue, lanes: int, is_write: bool) -> None:
        """Emit the access of consecutive elements."""
        self._note(buffer, offset, lanes, is_write)

    def _note(self, buffer: BufferRef, offset: IntValue, lanes: int, is_write: bool, stored: str | None = None) -> None:
        """Emit an access; `stored` is the word of a write that is in flight."""
        shadow = self._shadows.get(buffer.roots)
        if self.moment is None or shadow is None:
            return
        if offset.lanes is not None:
            raise OutsideError("an access of elements at several places by a thread")
        t, (_, size) = self._t, self._t.element_text(buffer)
        position = t.arith("mul", offset, t.index(size))
        if buffer.shift is not None:
            position = t.arith("add", position, buffer.shift)
        first = t.arith("udiv", position, t.index(shadow.grain))
        numbers = [
            first, t.index(max(lanes * size // shadow.grain, 1)), shadow.count, self.moment.thread, self.moment.epoch,
            t.index(0) if shadow.is_of_block else self.moment.first, t.index(shadow.site),
        ]  # fmt: skip
        listed = ", ".join(f"i64 {number.name}" for number in numbers)
        has_copies = self._copies is not None
        if has_copies:
            assert self._copies is not None
            now = t.f.op(f"or i64 {t.f.op(f'shl i64 {numbers[4].name}, 16')}, {numbers[3].name}")
            listed += f", i64 {stored or now}, ptr {self._copies.roots[0]}"
        helper = _note_helper(t.f, is_write, has_copies)
        t.f.effect(f"call void @{helper}(ptr {shadow.address}, {listed}, ptr %round)")

    def note_fault(self, kind: int, site: int) -> None:
        """Emit that a fault happened."""
        _note_fault(self._t.f, str(site), kind)

    def _make(self, argument: Argument, name: str, is_of_block: bool, has_floats: bool) -> Shadow | None:
        if argument.role == "in":
            return None
        t = self._t
        is_bytes = argument.kind == "bytes"
        size = 1 if is_bytes else t.arithmetic.bytes if argument.kind == "f" else max(argument.bits // 8, 1)
        grain = t.arithmetic.bytes if is_bytes and has_floats else size
        memory = t.buffer_argument(Argument("scratch", "i", 64, (*argument.shape, _WORDS)), (0,))
        total = IntValue(t.f.at_entry(f"udiv i64 {memory.room}, {8 * _WORDS * grain // size}"), 64)
        return Shadow(memory.roots[0], total, grain, is_of_block, self.site(name))


def _is_viewed_as_floats(value: ir.Value) -> bool:
    """Return whether memory of bytes has elements as large as floats: no other access is to it."""
    users = [use.owner.operation for use in value.uses]
    return all(op.name == "memref.view" and is_float_buffer(op.results[0].type) for op in users)


def _note_fault(f: FunctionText, site: str, kind: int) -> None:
    """Emit a store of a fault, unless there was one."""
    pointer = f.op(f"getelementptr i64, ptr %round, i64 {FAULT}")
    before = f.op(f"load i64, ptr {pointer}, align 8")
    code = f.op(f"add i64 {f.op(f'mul i64 {site}, {len(RACES)}')}, {kind + 1}")
    is_first = f.op(f"icmp eq i64 {before}, 0")
    kept = f.op(f"select i1 {is_first}, i64 {code}, i64 {before}")
    f.effect(f"store i64 {kept}, ptr {pointer}, align 8")


def _wait_helper(f: FunctionText) -> str:
    """Return the name of a function that notes that a thread waits for groups of copies."""
    name = "exact.wait_for_copies"
    if name in f.module.helpers:
        return name
    g = FunctionText(f.module, name)
    g.takes_round = False

    def word(position: int | str) -> str:
        return g.op(f"getelementptr i64, ptr %own, i64 {position}")

    committed = g.op(f"load i64, ptr {word(_COMMITTED)}, align 8")
    complete = g.op(f"load i64, ptr {word(_COMPLETE)}, align 8")
    end = g.extreme("smax", g.op(f"sub i64 {committed}, %left"), complete)

    def group(number: str) -> None:
        place = g.op(f"and i64 {g.op(f'add i64 {complete}, {number}')}, {_GROUPS - 1}")
        g.effect(f"store i64 %epoch, ptr {word(g.op(f'add i64 {place}, {_ENDS}'))}, align 8")

    g.each(g.op(f"sub i64 {end}, {complete}"), group)
    g.effect(f"store i64 {end}, ptr {word(_COMPLETE)}, align 8")
    g.effect("ret void")
    g.finish_helper("void", own="ptr", left="i64", epoch="i64")
    return name


def _note_helper(f: FunctionText, is_write: bool, has_copies: bool) -> str:
    """Return the name of a function that notes an access of consecutive elements, and whether it is a race."""
    name = f"exact.note_{'write' if is_write else 'read'}{'_with_copies' if has_copies else ''}"
    if name in f.module.helpers:
        return name
    g = FunctionText(f.module, name)
    g.lines += ["  br label %head", "head:", "  %i = phi i64 [ 0, %body ], [ %j, %next ]"]
    g.effect("%more = icmp ult i64 %i, %count")
    g.effect("br i1 %more, label %element, label %end")
    g.label("element")
    g.effect("%at = add i64 %first, %i")
    g.effect("%inside = icmp ult i64 %at, %total")  # guards of the buffer find the others
    g.effect("br i1 %inside, label %known, label %next")
    g.label("known")
    words = [g.op(f"add i64 {g.op(f'mul i64 %at, {_WORDS}')}, {which}") for which in range(_WORDS)]
    write, read = (g.op(f"getelementptr i64, ptr %shadow, i64 {word}") for word in words)
    shifted = g.op("shl i64 %epoch, 16")
    now = g.op(f"or i64 {shifted}, %thread")
    writer, reader = (g.op(f"load i64, ptr {each}, align 8") for each in (write, read))
    if has_copies:
        writer = _after_copy(g, writer)
    _check(g, writer, WRITE if is_write else READ)
    if is_write:
        _check(g, reader, OVERWRITE)
        g.effect(f"store i64 {'%stored' if has_copies else now}, ptr {write}, align 8")
    else:
        is_late, _, is_other = _relation(g, reader)
        several = g.op(f"or i64 {shifted}, {MANY}")
        both = g.op(f"and i1 {is_late}, {is_other}")
        kept = g.op(f"select i1 {both}, i64 {several}, i64 {now}")
        g.effect(f"store i64 {kept}, ptr {read}, align 8")
    g.effect("br label %next")
    g.label("next")
    g.effect("%j = add i64 %i, 1")
    g.effect("br label %head")
    g.label("end")
    g.effect("ret void")
    names = ("first", "count", "total", "thread", "epoch", "block", "site")
    more = {"stored": "i64", "copies": "ptr"} if has_copies else {}
    g.finish_helper("void", shadow="ptr", **dict.fromkeys(names, "i64"), **more)
    return name


def _after_copy(g: FunctionText, writer: str) -> str:
    """Return the word of a write, for copies with the barriers before their wait; emit a fault if one is in flight."""
    is_copy = g.op(f"icmp slt i64 {writer}, 0")
    thread = g.op(f"and i64 {writer}, {MANY}")
    group = g.op(f"and i64 {g.op(f'lshr i64 {writer}, 16')}, {(1 << 47) - 1}")
    row = g.op(f"getelementptr i64, ptr %copies, i64 {g.op(f'mul i64 {thread}, {_COPY_WORDS}')}")
    place = g.op(f"add i64 {g.op(f'and i64 {group}, {_GROUPS - 1}')}, {_ENDS}")
    complete = g.op(f"load i64, ptr {g.op(f'getelementptr i64, ptr {row}, i64 {_COMPLETE}')}, align 8")
    epoch = g.op(f"load i64, ptr {g.op(f'getelementptr i64, ptr {row}, i64 {place}')}, align 8")
    is_left = g.op(f"icmp uge i64 {group}, {complete}")
    _note_if(g, g.op(f"and i1 {is_copy}, {is_left}"), IN_FLIGHT)
    ended = g.op(f"or i64 {g.op(f'shl i64 {epoch}, 16')}, {thread}")
    return g.op(f"select i1 {is_copy}, i64 {ended}, i64 {writer}")


def _relation(g: FunctionText, word: str) -> tuple[str, str, str]:
    """Return whether an access was since the last barrier, in another block, and by another thread."""
    epoch, thread = g.op(f"lshr i64 {word}, 16"), g.op(f"and i64 {word}, {MANY}")
    is_late = g.op(f"icmp eq i64 {epoch}, %epoch")
    is_some, is_before = g.op(f"icmp ne i64 {epoch}, 0"), g.op(f"icmp ult i64 {epoch}, %block")
    return is_late, g.op(f"and i1 {is_some}, {is_before}"), g.op(f"icmp ne i64 {thread}, %thread")


def _check(g: FunctionText, word: str, kind: int) -> None:
    """Emit a fault if an access before conflicts with this one."""
    is_late, is_of_block, is_other = _relation(g, word)
    conflict = g.op(f"or i1 {is_of_block}, {g.op(f'and i1 {is_late}, {is_other}')}")
    _note_if(g, conflict, kind)


def _note_if(g: FunctionText, condition: str, kind: int) -> None:
    """Emit a fault under a condition."""
    yes, after = g.new_label("race"), g.new_label("checked")
    g.effect(f"br i1 {condition}, label %{yes}, label %{after}")
    g.label(yes)
    _note_fault(g, "%site", kind)
    g.effect(f"br label %{after}")
    g.label(after)
