"""What is known of a published split: several may learn at once, and nothing damaged is trusted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import filelock
import pytest

from resources.errors import ChangedError, StoreError
from resources.store import Store
from speech_assets.corpus import pins
from speech_assets.corpus.pins import learn, pins_key, read_pins

if TYPE_CHECKING:
    from pathlib import Path

SPLIT = "dev-clean"


def test_what_two_learn_at_once_is_all_kept(tmp_path: Path) -> None:
    store, at_once, faults = Store(str(tmp_path)), threading.Barrier(4), list[Exception]()

    def learner(of: int) -> None:
        try:
            at_once.wait()
            for number in range(25):
                learn(store, SPLIT, {"servers": {f"http://{of}/{number}": {"etag": "e"}}})
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=learner, args=(of,)) for of in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(read_pins(store, SPLIT)["servers"]) == 100
    assert store.keys("sources") == [pins_key(SPLIT)]


def test_a_lock_that_is_never_released_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "_LOCK_TIMEOUT_S", 0.01)
    store = Store(str(tmp_path))
    learn(store, SPLIT, {"rows": 1})
    with (
        filelock.FileLock(tmp_path / "sources" / f".{SPLIT}.json.lock"),
        pytest.raises(StoreError, match="another process has held its lock"),
    ):
        learn(store, SPLIT, {"md5": "m"})
    assert learn(store, SPLIT, {"md5": "m"})["rows"] == 1


def test_a_store_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "sources").write_text("a file")
    with pytest.raises(StoreError, match=r"cannot write .*sources/dev-clean\.json: .*SPEECH_STORE"):
        learn(Store(str(tmp_path)), SPLIT, {"rows": 1})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"schema_version": 1, "servers": "x"}', "servers is 'x'"),
        ('{"schema_version": 1, "servers": {"http://a": 5}}', "servers: http://a is 5"),
        ('{"schema_version": 1, "rows": 1e999}', "rows is inf"),
        ('{"schema_version": 1, "rows": "10"}', "rows is '10'"),
        ('{"schema_version": 1, "files": []}', "files is "),
        ('{"schema_version": 2}', "another schema version"),
        ("[]", "is []"),
        ("[" * 100_000, "no JSON"),
        ('{"schema_version": 1, "serv', "no JSON"),
        ("", "no JSON"),
    ],
)
def test_what_is_no_note_of_ours_is_refused_once(tmp_path: Path, text: str, fault: str) -> None:
    store = Store(str(tmp_path))
    store.write_bytes(pins_key(SPLIT), text.encode())
    with pytest.raises(StoreError) as caught:
        learn(store, SPLIT, {"rows": 1})
    assert fault in str(caught.value)
    assert "delete it to observe the source anew" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not caught.value.retryable
    assert store.read_bytes(pins_key(SPLIT)) == text.encode()


def test_a_contradiction_changes_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    learn(store, SPLIT, {"rows": 10})
    with pytest.raises(ChangedError, match="rows was 10, is 11"):
        learn(store, SPLIT, {"rows": 11, "md5": "m"})
    assert read_pins(store, SPLIT) == {"schema_version": 1, "rows": 10}
