"""Boards that the command line names: a session, with the token of the environment or of a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mirlo.runtime.files import read_regular
from mirlo.runtime.model_runner import models_run_on
from mirlo.runtime.names import shell_word
from mirlo.runtime.records import dataclass
from mirlo.runtime.remote.board import Board
from mirlo.runtime.remote.wire import RunnerLost, check_token, parse_address

TOKEN_VARIABLE = "MIRLO_REMOTE_TOKEN"


@dataclass(frozen=True)
class BoardOptions:
    """The board of models, in a form for other processes: it names the file of the token."""

    address: str
    token_file: str | None = None

    @property
    def flags(self) -> list[str]:
        """Return the flags of a command that name the board, for a shell in any folder."""
        token = [] if self.token_file is None else ["--token-file", shell_word(str(Path(self.token_file).absolute()))]
        return ["--remote", shell_word(self.address), *token]

    def connect(self) -> Board:
        """Begin a session with the runner."""
        from mirlo.targets.llvm.library.build import link_model

        return Board(parse_address(self.address), self._token(), link_model)

    def _token(self) -> bytes:
        if self.token_file is not None:
            try:
                text = read_regular(Path(self.token_file)).decode("utf-8", "replace")
            except OSError as error:
                raise RunnerLost(f"cannot read the token '{self.token_file}': {error.strerror or error}") from None
            return check_token(text)
        if TOKEN_VARIABLE not in os.environ:
            raise RunnerLost(
                f"the runner at {self.address} needs its token: name its file with --token-file, or set "
                f"{TOKEN_VARIABLE}"
            )
        return check_token(os.environ[TOKEN_VARIABLE])


@contextmanager
def on_board(options: BoardOptions | None) -> Iterator[Board | None]:
    """Run models that are compiled in this block on a board, or on this machine for None."""
    if options is None:
        yield None
        return
    with options.connect() as board, models_run_on(board):
        yield board
