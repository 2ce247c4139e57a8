"""Sound: WAV files, other sampling rates, and the spectra that models of speech read."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from mirlo.extend.runtime import open_regular
from mirlo_llm.generate.errors import ModelFolderError

MIN_RATE, MAX_RATE = 1000, 192000
MAX_CHANNELS = 64
MAX_SECONDS = 24 * 3600
"""The longest sound that is read: its spectrum takes 28 MB a minute."""
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
"""Formats of samples in WAV files."""
ZEROS = 24
"""Zeros of the filter at each side of its middle, where the sampling rate changes."""
BLOCK = 1 << 16
"""Samples, or frames, that are computed together."""


@dataclass(frozen=True)
class Sound:
    """Samples of one channel."""

    samples: np.ndarray
    """f32, from -1 to 1."""
    rate: int
    """Samples per second."""

    @property
    def seconds(self) -> float:
        """Return the duration."""
        return len(self.samples) / self.rate


class SoundError(ModelFolderError):
    """A file of sound that cannot be read."""


def read_wav(path: str | os.PathLike[str]) -> Sound:
    """Read a WAV file; its channels are averaged."""
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise SoundError(f"{os.fspath(path)}: {error.strerror or error}") from None
    return parse_wav(content, os.fspath(path))


def parse_wav(content: bytes, name: str) -> Sound:
    """Parse the content of a WAV file; `name` is the file's name in errors."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise SoundError(f"{name}: this is no WAV file: convert it, such as by 'ffmpeg -i FILE -ar 16000 FILE.wav'")
    parts, at = dict[bytes, bytes](), 12
    while at + 8 <= len(content) and b"data" not in parts:
        size = int.from_bytes(content[at + 4 : at + 8], "little")
        # Programs that write to a pipe do not know the size of the data.
        parts[content[at : at + 4]] = content[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
    form = parts.get(b"fmt ", b"")
    if len(form) < 16 or b"data" not in parts:
        raise SoundError(f"{name}: the file is damaged: it has no format or no samples")
    kind, channels, bits = (int.from_bytes(form[i : i + 2], "little") for i in (0, 2, 14))
    rate = int.from_bytes(form[4:8], "little")
    if kind == EXTENSIBLE and len(form) >= 26:
        kind = int.from_bytes(form[24:26], "little")
    if not 1 <= channels <= MAX_CHANNELS or not MIN_RATE <= rate <= MAX_RATE:
        what = f"1 to {MAX_CHANNELS} channels and {MIN_RATE} to {MAX_RATE} Hz, found {channels} and {rate}"
        raise SoundError(f"{name}: expected {what}")
    samples = _samples(parts[b"data"], kind, bits, name)
    samples = samples[: len(samples) // channels * channels].reshape(-1, channels)
    mixed = samples[:, 0] if channels == 1 else samples.mean(1, dtype=np.float32)
    if len(mixed) > rate * MAX_SECONDS:
        raise SoundError(f"{name}: the sound is longer than {MAX_SECONDS // 3600} hours: divide it")
    if not np.isfinite(mixed).all():
        raise SoundError(f"{name}: there are samples that are not finite")
    return Sound(np.ascontiguousarray(mixed), rate)


def _samples(data: bytes, kind: int, bits: int, name: str) -> np.ndarray:
    """Return samples as f32 from -1 to 1."""
    size = bits // 8
    data = data[: len(data) // size * size] if size else b""
    result: np.ndarray
    if kind == FLOAT and bits in (32, 64):
        result = np.frombuffer(data, f"<f{size}").astype(np.float32)
    elif kind == PCM and bits == 8:
        result = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    elif kind == PCM and bits == 24:
        parts = np.frombuffer(data, np.uint8).reshape(-1, 3)
        whole = np.zeros((len(parts), 4), np.uint8)
        whole[:, 1:] = parts
        result = whole.reshape(-1).view("<i4").astype(np.float32) / 2.0**31
    elif kind == PCM and bits in (16, 32):
        result = np.frombuffer(data, f"<i{size}").astype(np.float32) / 2.0 ** (bits - 1)
    else:
        raise SoundError(
            f"{name}: expected samples of 8, 16, 24 or 32 bits or floats, found format {kind} of {bits} bits"
        )
    return result


def resampled(sound: Sound, rate: int) -> Sound:
    """Return a sound with another sampling rate, resampled by a windowed sinc filter."""
    if sound.rate == rate or not len(sound.samples):
        return Sound(sound.samples, rate)
    common = math.gcd(sound.rate, rate)
    up, down = rate // common, sound.rate // common
    width = max(1.0, down / up)
    """Input samples from one zero of the filter to the next."""
    half = math.ceil(ZEROS * width)
    offsets, parts = np.arange(-half, half + 1, dtype=np.float32), np.arange(up, dtype=np.float32) / np.float32(up)
    distances = (offsets[None] - parts[:, None]) / np.float32(width)
    taps = np.sinc(distances) * np.cos(np.float32(np.pi / 2) * np.clip(distances / ZEROS, -1, 1)) ** 2
    taps /= np.float32(width)
    padded, count = np.pad(sound.samples, half), len(sound.samples) * up // down
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(offsets))
    result = np.empty(count, np.float32)
    for start in range(0, count, BLOCK):
        places = np.arange(start, min(start + BLOCK, count), dtype=np.int64) * down
        result[start : start + BLOCK] = np.einsum("ij,ij->i", windows[places // up], taps[places % up])
    return Sound(result, rate)


@dataclass(frozen=True)
class SpectrumOptions:
    """Parameters of a model's spectra."""

    bands: int = 80
    window: int = 400
    """Samples of a frame."""
    step: int = 160
    """Samples from one frame to the next."""
    rate: int = 16000


def log_mel(samples: np.ndarray, options: SpectrumOptions) -> np.ndarray:
    """Return the log-mel spectrum, [bands, frames], that Whisper was trained on."""
    window = np.hanning(options.window + 1)[:-1]
    padded = np.pad(samples, options.window // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, options.window)[:: options.step][:-1]
    filters = mel_filters(options)
    parts = []
    for start in range(0, len(frames), BLOCK // 8):
        power = np.abs(np.fft.rfft(frames[start : start + BLOCK // 8] * window, axis=1)) ** 2
        parts.append(np.log10(np.maximum(filters @ power.T, 1e-10)).astype(np.float32))
    spectrum = np.concatenate(parts, 1)
    result: np.ndarray = (np.maximum(spectrum, spectrum.max() - 8) + 4) / 4
    return result


def mel_filters(options: SpectrumOptions) -> np.ndarray:
    """Return the mel filter bank, [bands, frequencies]: triangles of equal area."""
    frequencies = np.linspace(0, options.rate / 2, options.window // 2 + 1)
    top = _mel(np.array(options.rate / 2))
    corners = _hertz(np.linspace(0, float(top), options.bands + 2))
    widths = np.diff(corners)
    slopes = corners[:, None] - frequencies[None]
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    filters: np.ndarray = np.maximum(0, np.minimum(rising, falling)) * (2 / (corners[2:] - corners[:-2]))[:, None]
    return filters


_LINEAR = 200 / 3
"""Hertz per mel below 1000 Hz on Slaney's scale."""
_GROWTH = np.log(6.4) / 27


def _mel(hertz: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.where(hertz < 1000, hertz / _LINEAR, 15 + np.log(np.maximum(hertz, 1000) / 1000) / _GROWTH)
    return result


def _hertz(mels: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.where(mels < 15, mels * _LINEAR, 1000 * np.exp(_GROWTH * (mels - 15)))
    return result
