"""Losses of codec training: spectra, two kinds of discriminator, and their least-squares game."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

MEL_BANDS = {2048: 160, 1024: 120, 512: 80, 256: 40, 128: 20, 64: 10}  # By window in samples.
STFT_WINDOWS = (2048, 512, 128)
PERIODS = (2, 3, 5, 7, 11)
DISCRIMINATOR_WINDOWS = (1024, 512, 256)


def mel_filters(window: int, bands: int, sample_rate_hz: int) -> Tensor:
    """Triangular mel filters, float32 (bands, window / 2 + 1), peak 1 (HTK's mel scale)."""
    top = 2595 * np.log10(1 + sample_rate_hz / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    bins = np.linspace(0, sample_rate_hz / 2, window // 2 + 1)
    rise = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    return torch.tensor(np.maximum(0, np.minimum(rise, fall)), dtype=torch.float32)


class SpectralLoss(nn.Module):
    """Distances of waveforms (batch, samples) in six mel spectra and three linear ones, float32."""

    def __init__(self, sample_rate_hz: int = 24_000) -> None:
        super().__init__()
        for window, bands in MEL_BANDS.items():
            self.register_buffer(f"window_{window}", torch.hann_window(window))
            self.register_buffer(f"filters_{window}", mel_filters(window, bands, sample_rate_hz))

    def forward(self, target: Tensor, made: Tensor) -> tuple[Tensor, Tensor]:
        """Mean L1 of log10 mel spectra; spectral convergence plus half the log10 magnitude L1."""
        mel = linear = torch.zeros((), device=made.device)
        for window in MEL_BANDS:
            taper, filters = getattr(self, f"window_{window}"), getattr(self, f"filters_{window}")
            with torch.no_grad():
                wanted = spectrum(target, window, taper).abs()
            got = magnitude(spectrum(made, window, taper))
            logs = [torch.log10((filters @ s).clamp(min=1e-5)) for s in (wanted, got)]
            mel = mel + F.l1_loss(logs[1], logs[0])
            if window in STFT_WINDOWS:
                convergence = (wanted - got).norm() / (wanted.norm() + 1e-3)
                log_distance = F.l1_loss(torch.log10(got + 1e-4), torch.log10(wanted + 1e-4))
                linear = linear + convergence + 0.5 * log_distance
        return mel / len(MEL_BANDS), linear / len(STFT_WINDOWS)


def spectrum(x: Tensor, window: int, taper: Tensor) -> Tensor:
    """Complex spectrum (batch, window / 2 + 1, steps) of x (batch, samples); hop: window / 4."""
    return torch.stft(
        x, window, window // 4, window=taper, center=True, pad_mode="reflect", return_complex=True
    )


def magnitude(x: Tensor) -> Tensor:
    """|x| of complex x, with a finite gradient at zero (silence is common)."""
    return (x.real.square() + x.imag.square() + 1e-12).sqrt()


class PeriodDiscriminator(nn.Module):
    """Judges a waveform folded into columns of one period, as HiFi-GAN does."""

    def __init__(self, period: int, channels: tuple[int, ...] = (1, 32, 64, 128, 192)) -> None:
        super().__init__()
        self.period = period
        pairs = list(pairwise(channels))
        convs = [nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in pairs]
        convs.append(nn.Conv2d(channels[-1], channels[-1], (5, 1), 1, (2, 0)))
        self.convs = nn.ModuleList([weight_norm(conv) for conv in convs])
        self.out = weight_norm(nn.Conv2d(channels[-1], 1, (3, 1), 1, (1, 0)))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Scores and features of x (batch, samples)."""
        x = F.pad(x[:, None], (0, -x.shape[-1] % self.period), mode="reflect")
        x = x.view(len(x), 1, -1, self.period).contiguous(memory_format=torch.channels_last)
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.out(x), features


class SpectrumDiscriminator(nn.Module):
    """Judges the complex spectrum of a waveform at one window."""

    taper: Tensor

    def __init__(self, window: int, channels: int = 32) -> None:
        super().__init__()
        self.window = window
        self.register_buffer("taper", torch.hann_window(window))
        convs = [nn.Conv2d(2, channels, (9, 3), (2, 1), (4, 1))]
        convs += [nn.Conv2d(channels, channels, (9, 3), (2, 1), (4, 1)) for _ in range(3)]
        convs.append(nn.Conv2d(channels, channels, (3, 3), 1, (1, 1)))
        self.convs = nn.ModuleList([weight_norm(conv) for conv in convs])
        self.out = weight_norm(nn.Conv2d(channels, 1, 3, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Scores and features of x (batch, samples)."""
        with torch.autocast(x.device.type, enabled=False):
            s = spectrum(x.float(), self.window, self.taper)
            x = torch.stack([s.real, s.imag], 1).contiguous(memory_format=torch.channels_last)
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.out(x), features


class Discriminators(nn.Module):
    """All of them, each judging the same waveform (batch, samples)."""

    def __init__(self) -> None:
        super().__init__()
        judges = [PeriodDiscriminator(period) for period in PERIODS]
        judges += [SpectrumDiscriminator(window) for window in DISCRIMINATOR_WINDOWS]
        self.judges = nn.ModuleList(judges)

    def forward(self, x: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        """Scores and features by judge."""
        return [judge(x) for judge in self.judges]


Judgement = list[tuple[Tensor, list[Tensor]]]


def judge_loss(real: Judgement, made: Judgement) -> Tensor:
    """Least-squares loss of the discriminators: real to 1, made to 0."""
    return _added(
        (1 - r.float()).square().mean() + m.float().square().mean()
        for (r, _), (m, _) in zip(real, made, strict=True)
    )


def maker_loss(made: Judgement) -> Tensor:
    """Least-squares loss of the codec: made to 1."""
    return _added((1 - m.float()).square().mean() for m, _ in made)


def feature_loss(real: Judgement, made: Judgement) -> Tensor:
    """Mean L1 between features of real and made speech, summed over layers and judges."""
    return _added(
        (a.detach().float() - b.float()).abs().mean()
        for (_, reals), (_, mades) in zip(real, made, strict=True)
        for a, b in zip(reals, mades, strict=True)
    )


def _added(losses: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(losses)).sum()
