"""A form's folder in the store is whole or not there, however the process that makes it ends."""

from __future__ import annotations

import json
import resource
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from killed_writer import write_and_die

from resources.errors import StoreError
from resources.store import Store
from server.codec import Codec, load_codec
from server.codec_form import origin_sha256
from server.errors import WeightsError
from server.files import sha256_of
from speech_assets.codec_forms.record import Parent, find_whole
from speech_assets.errors import ConfigError
from speech_assets.work.codec_folder import make_form

ROOT = Path(__file__).parents[2]
CODEC = ROOT / "server" / "embedded" / "codec"
SMALL = {"encoder_dim": 4, "decoder_dim": 48}
FILES = ["codec.json", "config.json", "model.safetensors"]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Codec, Path]]:
    """Two small codecs of one layout with other weights, and their folders."""
    made: list[tuple[Codec, Path]] = []
    for seed in (1, 2):
        folder = tmp_path_factory.mktemp("parent")
        config = json.loads((CODEC / "config.json").read_text()) | SMALL
        (folder / "config.json").write_text(json.dumps(config))
        model = load_codec(folder, allow_untrained=True).model
        torch.manual_seed(seed)
        state = {name: torch.randn_like(value) * 0.05 for name, value in model.state_dict().items()}
        # As SNAC saves it: each weight as its direction and length.
        for name in [name for name in state if _is_normed(name, state)]:
            weight = state.pop(name)
            path = name.removesuffix("weight") + "parametrizations.weight."
            state[f"{path}original0"] = weight.norm(dim=(1, 2), keepdim=True)
            state[f"{path}original1"] = weight
        torch.save(state, folder / "pytorch_model.bin")
        made.append((load_codec(folder), folder))
    return made


def _is_normed(name: str, state: dict[str, torch.Tensor]) -> bool:
    return name.endswith(".weight") and state[name].ndim == 3


def make(store: Store, parent: tuple[Codec, Path]) -> tuple[dict[str, Any], bool]:
    codec, folder = parent
    return make_form(store, codec, folder, str(folder), "int8")


def whole(store: Store, parent: tuple[Codec, Path]) -> dict[str, Any] | None:
    identity = parent[0].identity
    wanted = Parent("", identity.name, identity.weights_sha256, identity.config_sha256)
    return find_whole(Path(store.path("codecs/int8")), "int8", wanted)


def names(store: Store) -> list[str]:
    """What lies in the store's folder of codecs, the lock left out."""
    folder = Path(store.path("codecs"))
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_a_form_is_made_once_and_loads(parents: list, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    record, is_new = make(store, parents[0])
    folder = tmp_path / "codecs" / "int8"
    assert is_new
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert json.loads((folder / "codec.json").read_text()) == record
    assert record["parent"]["weights_sha256"] == parents[0][0].identity.weights_sha256
    assert record["weights_sha256"] == sha256_of(folder / "model.safetensors")
    assert record["weights_sha256"] == load_codec(folder).identity.weights_sha256
    assert record["weights_bytes"] == (folder / "model.safetensors").stat().st_size
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert make(store, parents[0]) == (record, False)
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_another_parent_or_a_changed_file_makes_it_again(parents: list, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    make(store, parents[0])
    assert make(store, parents[1])[1]
    assert whole(store, parents[1])
    for name in FILES:
        path = tmp_path / "codecs" / "int8" / name
        path.write_bytes(path.read_bytes()[:-3])
        assert whole(store, parents[1]) is None
        assert make(store, parents[1])[1]
        path.unlink()
        assert make(store, parents[1])[1]
    assert names(store) == ["int8"]


def test_a_killed_process_leaves_a_whole_form_or_none(parents: list, tmp_path: Path) -> None:
    """It is killed at each flush, rename and removal in turn, while it replaces an older form."""
    old = Store(str(tmp_path / "old"))
    make(old, parents[0])
    ends: list[int] = []
    seen: set[str] = set()
    while not ends or ends[-1] != 0:
        store = Store(str(tmp_path / f"store-{len(ends)}"))
        shutil.copytree(old.root, store.root)
        ends.append(write_and_die(partial(make, store, parents[1]), after=len(ends)))
        found = [index for index in (0, 1) if whole(store, parents[index])]
        folder = Path(store.path("codecs/int8"))
        assert found or not folder.exists()
        seen |= {"old", "new"} & {("old", "new")[index] for index in found}
        seen |= {"none"} - ({"none"} if found else set())
        make(store, parents[1])
        assert whole(store, parents[1])
        assert names(store) == ["int8"]
        shutil.rmtree(store.root)
    assert set(ends[:-1]) == {-signal.SIGKILL}
    assert len(ends) > 8
    assert seen == {"old", "new", "none"}


def test_no_space_is_one_line_and_the_older_form_stays(parents: list, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    make(store, parents[0])
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old[1]))
    try:
        with pytest.raises(StoreError, match=r"^cannot write [^\n]*model\.safetensors: [^\n]*$"):
            make(store, parents[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert names(store) == ["int8"]
    assert whole(store, parents[0])


def test_a_store_that_is_no_folder_is_refused(parents: list, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'memory://x' is no folder of this machine"):
        make(Store("memory://x"), parents[0])
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(StoreError, match=r"cannot write .*codecs/int8: .*give --store a folder"):
        make(Store(str(file)), parents[0])
    assert file.read_text() == "mine"


def test_a_form_has_no_forms(parents: list, tmp_path: Path) -> None:
    make(Store(str(tmp_path)), parents[0])
    folder = tmp_path / "codecs" / "int8"
    with pytest.raises(WeightsError, match="int8: a decode-only codec; give the whole codec"):
        make(Store(str(tmp_path / "other")), (load_codec(folder), folder))


def test_a_codec_with_attention_has_no_forms(tmp_path: Path) -> None:
    config = json.loads((CODEC / "config.json").read_text()) | SMALL | {"attn_window_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    codec = load_codec(tmp_path, allow_untrained=True)
    with pytest.raises(WeightsError, match="has attention windows"):
        make(Store(str(tmp_path / "store")), (codec, tmp_path))


def test_a_form_decodes_the_codes_of_the_codec_that_it_was_made_from(
    parents: list[tuple[Codec, Path]], tmp_path: Path
) -> None:
    codec, source = parents[0]
    make_form(Store(str(tmp_path)), codec, source, "where", "int8")
    folder = tmp_path / "codecs" / "int8"
    assert origin_sha256(folder) == origin_sha256(source) == codec.identity.weights_sha256
    assert origin_sha256(parents[1][1]) != codec.identity.weights_sha256
    # A record of other weights says nothing of these.
    (folder / "model.safetensors").write_bytes(b"others")
    assert origin_sha256(folder) == sha256_of(folder / "model.safetensors")
    (folder / "codec.json").write_text("{")
    with pytest.raises(WeightsError, match="make the codec's form again"):
        origin_sha256(folder)
