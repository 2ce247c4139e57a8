"""The process of another rank of a served model, which repeats the operations of the server's engine.

It reads pickled messages from standard input, and ends when that is closed. On standard output it reports that it has
loaded the model. Its argument is the descriptor of its heartbeat's memory.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from mirlo.extend.ranks import begin_heartbeat, require_place
from mirlo.extend.runtime import MirloError
from mirlo_llm.generate.led_caches import CacheOperation

LOADED = b"loaded\n"


@dataclass(frozen=True)
class RankModel:
    """The model that a rank loads."""

    path: str
    options: Mapping[str, Any]
    """Options of `mirlo.generate.load`."""


def main() -> int:
    """Load a part of a model, and repeat the operations of the engine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the server finishes what runs
    messages, loaded = os.fdopen(os.dup(sys.stdin.fileno()), "rb"), os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    model = pickle.load(messages)
    begin_heartbeat(int(sys.argv[1]))
    place = require_place(model.options["ranks"])
    try:
        from mirlo_llm.generate import load

        part = load(model.path, **model.options)
        os.write(loaded, LOADED)
        os.close(loaded)
        part.follow(_operations(messages))
    except MirloError as error:
        print(f"mirlo: rank {place.rank}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _operations(messages: BinaryIO) -> Iterator[CacheOperation]:
    while True:
        try:
            yield pickle.load(messages)
        except EOFError:
            return


if __name__ == "__main__":
    sys.exit(main())
