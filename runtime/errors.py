"""The errors of the runtime: each message names the user's file, input or function and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class MirloError(Exception):
    """Base of the errors that users can fix; tools print them without a traceback."""

    error_code = "MIR0001"
    remedy = "Read the message: it names what to change."


class ParameterError(MirloError, ValueError):
    """An invalid parameter or parameter file."""

    error_code = "MIR0101"
    remedy = "Save the model again, or copy its parameter file whole; name a parameter that the file has."


class ArtifactError(MirloError, ValueError):
    """A compiled model, or its `.mirlo` file, that cannot be saved, loaded or run on this machine."""

    error_code = "MIR0102"
    remedy = "Compile the model again with this version, on or for this machine."


class NotForThisMachine(ArtifactError):
    """A model that was compiled for another kind of machine."""

    error_code = "MIR0103"
    remedy = (
        "Compile the model here, or for this machine's processor and system: `--target 'llvm{cpu=... triple=...}'`."
    )


class NoDevice(ArtifactError):
    """Raised where this machine lacks the device, or the driver, that a model runs on."""

    error_code = "MIR0104"
    remedy = "Install the driver of the device, or compile for another target; `mirlo doctor` lists what is there."


class DeviceLimit(ArtifactError):
    """Raised for a call of a valid model that is beyond a limit of the device: it has no result there."""

    error_code = "MIR0124"
    remedy = "Use another device, smaller sizes, or another target."


class OutOfMemoryError(ArtifactError, MemoryError):
    """A call or a model that needs more memory than is available."""

    error_code = "MIR0105"
    remedy = "Give the call smaller sizes, or more memory; `mirlo info` shows what a call needs."


class InputError(MirloError, ValueError):
    """An argument of an executable that does not match its input."""

    error_code = "MIR0106"
    remedy = (
        "Pass an array of the name, the element type and the shape that the message expects; `mirlo info` lists "
        "the inputs."
    )


class OutOfPagesError(InputError):
    """A call that needs more pages for caches than there may be."""

    error_code = "MIR0107"
    remedy = "Permit more pages, or end other sequences first."


class UnmetAssumption(MirloError, ValueError):
    """Data or sizes for which a model was not compiled, such as a size of 1 where the rank depends on it."""

    error_code = "MIR0108"
    remedy = "Call the model with sizes that it was compiled for, or compile it for these with `dims=` or `shapes=`."


class PackedFunctionError(MirloError, RuntimeError):
    """A packed function that failed or is not registered."""

    error_code = "MIR0109"
    remedy = "Register the function before the model is loaded, and see its own error."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name, `; did you mean 'x'?`, or nothing."""
    # Also match a name without the dialect's namespace.
    meant = {word: full for full in sorted(known) for word in (full.rpartition(".")[2], full)}
    near = nearest_name(name, meant)
    return f"; did you mean '{meant[near]}'?" if near else ""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like an unknown one, if one is like it."""
    from difflib import get_close_matches  # start-up does not need it

    near = get_close_matches(name, list(known), n=1)
    return near[0] if near else None
