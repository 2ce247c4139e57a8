"""The exceptions of sessions: one class for each status code of ONNX Runtime, under the names that programs catch."""

from __future__ import annotations

from typing import ClassVar

from mirlo.frontends.onnx.errors import DamagedModelError, OnnxImportError, UnsupportedOperatorError
from mirlo.runtime.errors import InputError, MirloError


class SessionError(MirloError):
    """An error of a session; its message begins with ONNX Runtime's number and name of the status."""

    error_code = "MIR0606"
    remedy = "As with ONNX Runtime: the message is its own."

    code: ClassVar[int] = 1
    status: ClassVar[str] = "FAIL"

    def __init__(self, message: str = "") -> None:
        super().__init__(f"[ONNXRuntimeError] : {self.code} : {self.status} : {message}")


class Fail(SessionError):
    """An error without a status of its own."""


class InvalidArgument(SessionError, InputError):
    """An input or output that does not exist, or an array of another type or shape than its input."""

    code, status = 2, "INVALID_ARGUMENT"


class NoSuchFile(SessionError):
    """A model's file that does not exist."""

    code, status = 3, "NO_SUCHFILE"


class NoModel(SessionError):
    """A session without a model; programs catch it, Mirlo's sessions have one."""

    code, status = 4, "NO_MODEL"


class EngineFailure(SessionError):
    """A failure of an execution provider; programs catch it, compiled models have none."""

    code, status = 5, "ENGINE_ERROR"


class RuntimeException(SessionError):
    """A failure while a model runs."""

    code, status = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(SessionError):
    """Bytes that are no ONNX model, or a damaged one."""

    code, status = 7, "INVALID_PROTOBUF"


class ModelLoaded(SessionError):
    """A second model for one session; programs catch it, a session of Python opens one."""

    code, status = 8, "MODEL_LOADED"


class NotImplemented(SessionError):
    """A model with operators that are not supported, and other things that are not."""

    code, status = 9, "NOT_IMPLEMENTED"


class UnsupportedInterface(NotImplemented):
    """A part of ONNX Runtime's interface that is not supported."""


class InvalidGraph(SessionError):
    """A model that contradicts itself or the definitions of its operators."""

    code, status = 10, "INVALID_GRAPH"


class EPFail(SessionError):
    """A failure of an execution provider; programs catch it, compiled models have none."""

    code, status = 11, "EP_FAIL"


class ModelLoadCanceled(SessionError):
    """A model whose opening was canceled; programs catch it, Mirlo's sessions are not canceled."""

    code, status = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(SessionError):
    """A model that must be compiled before; programs catch it, sessions compile."""

    code, status = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(SessionError):
    """Something that a provider does not find; programs catch it, Mirlo's sessions do not raise it."""

    code, status = 14, "NOT_FOUND"


class MissingInputs(InputError):
    """Inputs that a call does not have; ONNX Runtime raises a ValueError here."""

    error_code = "MIR0607"
    remedy = "Pass all inputs that the message lists."


class BindingError(InputError, RuntimeError):
    """A binding that does not fit its session; ONNX Runtime raises a RuntimeError here."""

    error_code = "MIR0608"
    remedy = "Bind all inputs and outputs before the call."


class BoundRunError(SessionError, RuntimeError):
    """A failure while a model runs on a binding; ONNX Runtime raises a RuntimeError here."""

    def __init__(self, failure: SessionError) -> None:
        MirloError.__init__(self, f"Error in execution: {failure}")


class ConfigKeyError(MirloError, RuntimeError):
    """A config entry that was not added; ONNX Runtime raises a RuntimeError here."""

    error_code = "MIR0609"
    remedy = "Use a key that was set."


def open_error(problem: MirloError) -> MirloError:
    """Return the exception of a session for a model that does not open."""
    if isinstance(problem, DamagedModelError):
        return InvalidProtobuf(str(problem))
    if isinstance(problem, UnsupportedOperatorError):
        return NotImplemented(str(problem))
    if isinstance(problem, OnnxImportError):
        return InvalidGraph(str(problem))
    return problem if isinstance(problem, (SessionError, ValueError)) else Fail(str(problem))


def call_error(problem: MirloError) -> MirloError:
    """Return the exception of a session for a call that fails."""
    if isinstance(problem, (SessionError, MemoryError)):
        return problem
    return InvalidArgument(str(problem)) if isinstance(problem, InputError) else RuntimeException(str(problem))
