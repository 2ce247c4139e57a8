"""Dependencies between the commands of several queues: signals enforce all of them, and no others."""

from __future__ import annotations

import random

import pytest

from mirlo.passes.byoc.command_queues import (
    Action,
    Banks,
    MemorySpan,
    QueuedCommand,
    QueueError,
    QueueModel,
    QueueStep,
    QueueToken,
    Semaphore,
    Signal,
    check_signals,
    synchronize,
)

UNITS = 8


def _random_commands(seed: int, queues: str, memories: str, count: int) -> list[QueuedCommand]:
    """Return commands whose queues read and write any part of any memory."""
    draw = random.Random(seed)

    def spans() -> tuple[MemorySpan, ...]:
        chosen = draw.sample(memories, draw.randint(0, min(2, len(memories))))
        firsts = [draw.randrange(UNITS) for _ in chosen]
        return tuple(MemorySpan(m, f, draw.randint(1, UNITS - f)) for m, f in zip(chosen, firsts, strict=True))

    batches = [None, None, 1, 2]
    return [
        QueuedCommand(draw.choice(queues), spans(), spans(), f"c{n}", draw.choice(batches) if n % 3 == 0 else None)
        for n in range(count)
    ]


def _all_tokens(queues: str) -> list[QueueToken]:
    return [QueueToken(one, other) for one in queues for other in queues if one != other]


def _without(steps: list[QueueStep], token: QueueToken, turn: int) -> list[QueueStep]:
    """Return steps without the token of that turn: neither given nor taken."""
    result = [QueueStep(s.command, s.index, list(s.before), list(s.after)) for s in steps]
    for action, lists in ((Action.GIVE, [s.after for s in result]), (Action.TAKE, [s.before for s in result])):
        owners = [signals for signals in lists for s in signals if s == Signal(action, token)]
        owners[turn].remove(Signal(action, token))
    return result


@pytest.mark.parametrize("seed", range(12))
def test_tokens_enforce_every_dependency(seed: int) -> None:
    commands = _random_commands(seed, "abc", "xy", 40)
    model = QueueModel({"x": UNITS, "y": UNITS}, _all_tokens("abc"))
    assert check_signals([QueueStep(c, n) for n, c in enumerate(commands)], model), "nothing depends on anything"
    steps = synchronize(commands, model)
    assert [s.command for s in steps] == commands
    assert check_signals(steps, model) == []


@pytest.mark.parametrize("seed", range(12))
def test_queues_that_are_no_neighbors_wait_by_a_relay(seed: int) -> None:
    commands = _random_commands(seed, "abcd", "xy", 40)
    neighbors = [QueueToken(one, other) for one, other in ("ab", "ba", "bc", "cb", "bd", "db")]
    model = QueueModel({"x": UNITS, "y": UNITS}, neighbors, relay="b")
    steps = synchronize(commands, model)
    assert [s.command for s in steps if s.index is not None] == commands
    assert all(s.command.queue == "b" for s in steps if s.index is None)
    assert check_signals(steps, model) == []


@pytest.mark.parametrize("seed", range(6))
def test_a_missing_token_is_a_hazard(seed: int) -> None:
    """Each token between two queues is needed: without it, a command does not wait for its predecessor."""
    commands = _random_commands(seed, "ab", "x", 30)
    model = QueueModel({"x": UNITS}, _all_tokens("ab"))
    steps = synchronize(commands, model)
    tokens = [s.hand_over for step in steps for s in step.after if isinstance(s.hand_over, QueueToken)]
    last = {token: tokens.count(token) - 1 for token in tokens}
    assert last
    for token, turn in last.items():
        assert check_signals(_without(steps, token, turn), model)


@pytest.mark.parametrize("kind", [Semaphore, Banks])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_parts_are_filled_and_emptied_in_turn(kind: type[Semaphore], parts: int) -> None:
    size = UNITS // parts
    semaphore = kind("sums", "math", "pack", parts)
    model = QueueModel({"sums": UNITS}, [semaphore])
    commands = []
    for turn in range(6):
        first = turn % parts * size
        part = MemorySpan("sums", first, size)
        commands += [QueuedCommand("math", (part,), (part,), f"multiply{turn}.{n}") for n in range(3)]
        commands += [
            QueuedCommand("pack", (MemorySpan("sums", first + n, 1),), (), f"pack{turn}.{n}") for n in range(size)
        ]
    steps = synchronize(commands, model)
    assert check_signals(steps, model) == []
    done = {
        action: [s.command.name for s in steps for x in (*s.before, *s.after) if x.action is action]
        for action in Action
    }
    assert done[Action.ACQUIRE] == [f"multiply{n}.0" for n in range(6)]
    assert done[Action.POST] == [f"multiply{n}.2" for n in range(6)]
    assert done[Action.WAIT] == [f"pack{n}.0" for n in range(6)]
    assert done[Action.RELEASE] == [f"pack{n}.{size - 1}" for n in range(6)]
    for action in (Action.ACQUIRE, Action.WAIT):
        broken = [
            QueueStep(s.command, s.index, [x for x in s.before if x.action is not action], s.after) for s in steps
        ]
        assert check_signals(broken, model), f"no hazard without {action.value}"


def test_a_hazard_names_both_commands() -> None:
    x = MemorySpan("x", 0, 4)
    steps = [
        QueueStep(QueuedCommand("load", (), (x,), "load 0"), 0),
        QueueStep(QueuedCommand("math", (x,), (), "multiply 0"), 1),
    ]
    (hazard,) = check_signals(steps, QueueModel({"x": UNITS}, [QueueToken("load", "math")]))
    assert (
        str(hazard) == "'multiply 0' of queue math does not wait for 'load 0' of queue load: read after write, x[0:4]"
    )


def test_a_token_that_nobody_gives_is_a_deadlock() -> None:
    token = QueueToken("load", "math")
    step = QueueStep(QueuedCommand("math", name="multiply 0"), 0, [Signal(Action.TAKE, token)])
    with pytest.raises(QueueError, match="wait for one another without end: queue math before 'multiply 0'"):
        check_signals([step], QueueModel({}, [token]))


X, SUMS = MemorySpan("x", 0, 4), MemorySpan("sums", 0, 8)
ERRORS = {
    "has no token from that queue to it": [QueuedCommand("a", (), (X,), "w"), QueuedCommand("b", (X,), (), "r")],
    "is not one of the model's memories": [QueuedCommand("a", (MemorySpan("y", 0, 1),))],
    r"uses x\[6:10\], but the memory has 8 units": [QueuedCommand("a", (), (MemorySpan("x", 6, 4),))],
    "a memory that queue math hands to queue pack": [QueuedCommand("a", (), (MemorySpan("sums", 0, 1),))],
    "more than one of 2 parts of 4 units": [QueuedCommand("math", (), (SUMS,))],
    "writes part 1 of sums, but part 0 is next": [QueuedCommand("math", (), (MemorySpan("sums", 4, 1),), "m")],
    "before anything is written there": [QueuedCommand("pack", (MemorySpan("sums", 0, 1),))],
    "is never read: its part is never free": [QueuedCommand("math", (), (MemorySpan("sums", 0, 1),), "m")],
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors(message: str) -> None:
    model = QueueModel({"x": UNITS, "sums": UNITS}, [Semaphore("sums", "math", "pack", 2)])
    with pytest.raises(QueueError, match=message):
        synchronize(ERRORS[message], model)


def test_no_commands_need_no_signals() -> None:
    model = QueueModel({"x": UNITS}, [])
    assert synchronize([], model) == []
    assert check_signals([], model) == []
