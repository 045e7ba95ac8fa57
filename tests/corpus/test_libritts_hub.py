"""LibriTTS-R's parquet from a stand-in of the hub."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session
from lineage_run import ending
from published import answering, catalogue_text, clip_id, published, write_catalogue
from published_hub import COMMIT, Hub, hub_of, parquet_of

from resources.errors import ChangedError, DownloadError
from resources.hub import HubFile, Repository, fetch_file
from resources.patience import Patience
from resources.store import Store
from speech_assets.corpus.download_folder import download_folder
from speech_assets.corpus.libritts import archive_split
from speech_assets.corpus.observation import Means, content_token, observe_split
from speech_assets.corpus.pins import pins_key
from speech_assets.errors import CorpusError
from speech_assets.profiles import Corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SPLIT = "dev-clean"
NAMES = [f"data/dev.clean/dev.clean-{number:05d}-of-00002.parquet" for number in range(2)]
ROWS = [
    {
        "audio": {"bytes": bytes([number]) * 500, "path": f"{clip_id(number)}.wav"},
        "text_normalized": f"Text {number}.",
        "text_original": f"Text No. {number}.",
        "speaker_id": clip_id(number).split("_")[0],
        "path": f"/somewhere/LibriTTS_R/{clip_id(number)}.wav",
        "chapter_id": clip_id(number).split("_")[1],
        "id": clip_id(number),
    }
    for number in reversed(range(10))
]
FILES = {NAMES[0]: parquet_of(ROWS[:6]), NAMES[1]: parquet_of(ROWS[6:]), "README.md": b"#"}


@dataclass
class Case:
    """A hub, a corpus of it, and a store."""

    hub: Hub
    folder: Path
    store: Store
    corpus: Corpus
    lines: list[str] = field(default_factory=list[str])
    slept_s: list[float] = field(default_factory=list[float])

    def means(self) -> Means:
        patience = Patience(attempts=3, sleep=self.slept_s.append, chance=lambda: 1.0)
        return Means(self.lines.append, patience)

    def catalogue(self, rows: int = 10, revision: str | None = COMMIT) -> None:
        text = catalogue_text({SPLIT: b"1"}, {SPLIT: rows}, revision=revision)
        path = write_catalogue(self.folder, text)
        self.corpus = dataclasses.replace(self.corpus, catalogue=path)

    def observe(self) -> dict[str, Any]:
        return observe_split(self.corpus, SPLIT, self.store, self.means())

    def archive(self, shards: int = 4) -> bool:
        return archive_split(self.corpus, SPLIT, shards, self.store, self.means())[1]


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with hub_of(dict(FILES)) as hub:
        corpus = Corpus("small", "libritts-r", origin="hub", take=(SPLIT,), url=hub.url)
        case = Case(hub, tmp_path, Store(str(tmp_path / "store")), corpus)
        case.catalogue()
        yield case


def rows_of(store: Store, shards: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number in range(shards):
        with store.open(f"archives/{SPLIT}/{SPLIT}.{number:03d}.parquet") as file:
            rows += pq.read_table(file).to_pylist()
    return rows


def test_its_rows_become_sorted_shards_and_are_fetched_once(case: Case) -> None:
    assert case.archive() is True
    rows = rows_of(case.store, 4)
    assert [row["id"] for row in rows] == [clip_id(number) for number in range(10)]
    source = {row["id"]: row for row in ROWS}
    for row in rows:
        assert row["audio"]["bytes"] == source[row["id"]]["audio"]["bytes"]
        assert row["text_original"] == source[row["id"]]["text_original"]
        assert (row["source"], row["licence"]) == ("LibriTTS-R", "CC BY 4.0")
    asked = len(case.hub.asked)
    assert case.archive() is False
    assert len(case.hub.asked) == asked
    assert case.archive(shards=5) is True
    assert not any("resolve" in ask for ask in case.hub.asked[asked:])


def test_a_branch_is_pinned_at_what_it_was_first(case: Case) -> None:
    case.catalogue(revision=None)
    known = case.observe()
    assert known["revision"] == COMMIT
    assert known["files"].keys() == set(NAMES)
    case.hub.commit = "f" * 40
    with pytest.raises(ChangedError, match=f"revision was {COMMIT}, is {'f' * 40}"):
        case.observe()


def test_a_file_that_became_another_is_an_error_with_both_values(case: Case) -> None:
    before = content_token(case.observe())
    assert content_token(case.observe()) == before
    case.hub.files[NAMES[0]] = parquet_of(ROWS[:5])
    with pytest.raises(ChangedError, match=r"files: data/dev\.clean/.*: size_bytes was \d+, is "):
        case.observe()
    case.hub.files = {NAMES[1]: FILES[NAMES[1]]}
    with pytest.raises(ChangedError, match="was there and is not; the split has 1 files, had 2"):
        case.observe()


def test_a_file_of_another_content_than_the_listing_says_is_deleted(case: Case) -> None:
    true = FILES[NAMES[0]]
    case.hub.sent[NAMES[0]] = bytes([true[0] ^ 1]) + true[1:]
    with pytest.raises(DownloadError, match=r"sha256 is \w{64}, must be \w{64}"):
        case.archive()
    assert not (download_folder(case.corpus, case.store) / NAMES[0]).exists()
    case.hub.sent.clear()
    assert case.archive()


def test_a_body_that_breaks_off_is_gone_on_with_by_the_hubs_client(case: Case) -> None:
    case.hub.cut = [NAMES[0]]
    assert case.archive()


def test_files_that_were_whole_are_kept_when_another_fails(case: Case) -> None:
    case.hub.sent[NAMES[1]] = b"short"
    with pytest.raises(DownloadError):
        case.archive()
    case.hub.sent.clear()
    asked = len(case.hub.asked)
    assert case.archive()
    fetched = [ask for ask in case.hub.asked[asked:] if ask.startswith("GET /datasets")]
    assert len(fetched) == 1
    assert fetched[0].endswith(NAMES[1])


def test_a_busy_hub_is_asked_again(case: Case) -> None:
    case.catalogue(revision=None)
    case.hub.refusals = [503, 502]
    case.observe()
    assert case.slept_s == [1.0, 2.0]
    case.hub.refusals = [500] * 3
    with pytest.raises(DownloadError, match="the hub answers 500; gave up after 3 attempts"):
        case.observe()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"repository": "owner/other"}, "no such data set, or a private one"),
        ({"revision": "e" * 40}, "no such revision"),
        ({"folder": "data/other"}, "data/dev.other holds no parquet file"),
    ],
)
def test_what_the_hub_has_not_is_said_with_its_address(
    case: Case, change: dict[str, str], words: str
) -> None:
    text = catalogue_text({SPLIT: b"unused"}, {SPLIT: 10}, revision=change.get("revision", COMMIT))
    text = text.replace("owner/libritts_r", change.get("repository", "owner/libritts_r"))
    if "folder" in change:
        text = text.replace("data/dev.clean", "data/dev.other")
    path = write_catalogue(case.folder, text)
    case.corpus = dataclasses.replace(case.corpus, catalogue=path)
    with pytest.raises(DownloadError, match=words) as caught:
        case.observe()
    assert case.hub.url in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (b"<html>Log in</html>", "the answer is none of a hub: JSONDecodeError"),
        (b"[]", "the answer is none of a hub: "),
        (b'{"sha": "1", "siblings": [{"path": "a"}]}', "the answer is none of a hub: "),
        (b'{"sha": "1"}', "the answer is none of a hub: "),
    ],
)
def test_what_is_no_hub_is_said_with_its_address(case: Case, says: bytes, words: str) -> None:
    case.hub.says = says
    with pytest.raises(DownloadError, match=words) as caught:
        case.observe()
    assert case.hub.url in str(caught.value)
    assert "\n" not in str(caught.value)
    assert case.slept_s == []


@pytest.mark.parametrize(
    "told", [{"size": None}, {"lfs": {"size": 1, "sha256": "abc", "pointerSize": 1}}]
)
def test_a_file_whose_size_or_checksum_is_none_is_refused(
    case: Case, told: dict[str, object]
) -> None:
    case.hub.told = told
    with pytest.raises(DownloadError, match=r"dev\.clean-0000\d-.* which no file has"):
        case.observe()


@pytest.mark.parametrize("name", ["datasets/owner/libritts_r", "https://hub.invalid/owner/name"])
def test_a_repository_that_is_no_name_is_said(case: Case, name: str) -> None:
    text = catalogue_text({SPLIT: b"unused"}, {SPLIT: 10}, revision=COMMIT)
    path = write_catalogue(case.folder, text.replace("owner/libritts_r", name))
    case.corpus = dataclasses.replace(case.corpus, catalogue=path)
    with pytest.raises(DownloadError, match="give the repository as OWNER/NAME"):
        case.observe()


def test_a_hub_that_takes_the_connection_and_says_nothing_is_given_up(case: Case) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        case.corpus = dataclasses.replace(
            case.corpus, url=f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        patience = dataclasses.replace(case.means().patience, read_s=0.2)
        means = Means(case.lines.append, patience)
        for revision in (None, COMMIT):  # For the commit, and for the files.
            case.catalogue(revision=revision)
            with pytest.raises(DownloadError, match="gave up after 3 attempts") as caught:
                observe_split(case.corpus, SPLIT, case.store, means)
            assert caught.value.retryable


def test_a_hub_that_speaks_no_http_is_said_after_two_attempts(case: Case) -> None:
    with answering(b"220 mail.example ESMTP\r\n\r\n") as (url, _):
        case.corpus = dataclasses.replace(case.corpus, url=url.removesuffix("/a"))
        with pytest.raises(DownloadError, match=r"the answer is no HTTP \(.*so it was 2 times"):
            case.observe()
    assert case.slept_s == [1.0]


@pytest.mark.parametrize("place", ["../mine.parquet", "/mine.parquet", "data\\mine.parquet"])
def test_a_path_that_leads_out_of_the_folder_is_refused_and_nothing_is_deleted(
    case: Case, place: str
) -> None:
    mine = case.folder / "mine.parquet"
    mine.write_bytes(b"mine")
    path = str(mine) if place.startswith("/") else place
    folder = case.folder / "downloads"
    folder.mkdir()
    case.hub.files[path] = b"theirs"
    assert case.observe()["files"].keys() == set(NAMES)
    repository = Repository("owner/libritts_r", COMMIT, case.hub.url)
    file = HubFile(path, 6, None)
    with pytest.raises(DownloadError, match="leads out of the data set's folder"):
        fetch_file(repository, file, folder, case.means().patience, case.lines.append)
    assert mine.read_bytes() == b"mine"


def test_a_file_of_the_users_own_is_named_and_kept(case: Case) -> None:
    mine = download_folder(case.corpus, case.store) / NAMES[0]
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    said = rf"{NAMES[0]}: it has 4 bytes, must have \d+ as at http://.*: move it away"
    with pytest.raises(DownloadError, match=said):
        case.archive()
    assert mine.read_bytes() == b"mine"


def test_an_address_with_a_password_is_refused_without_it(case: Case) -> None:
    case.corpus = dataclasses.replace(case.corpus, url=case.hub.url.replace("//", "//me:secret@"))
    with pytest.raises(DownloadError, match="token as HF_TOKEN") as caught:
        case.observe()
    assert "secret" not in str(caught.value)
    assert case.hub.asked == []


def test_a_hub_without_tls_where_it_is_asked_for_is_said_at_once(case: Case) -> None:
    url = case.hub.url.replace("http:", "https:")
    case.corpus = dataclasses.replace(case.corpus, url=url)
    with pytest.raises(DownloadError, match=r"TLS failed: .*; check the clock"):
        case.observe()
    repository, file = Repository("owner/libritts_r", COMMIT, url), HubFile("a.parquet", 6, None)
    with pytest.raises(DownloadError, match=r"TLS failed: .*; check the clock"):
        fetch_file(repository, file, case.folder, case.means().patience, case.lines.append)
    assert case.slept_s == []


def test_a_client_that_was_told_to_stay_offline_is_said_at_once(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE is set"):
        case.observe()
    assert case.slept_s == []


def test_an_unusable_setting_of_the_network_is_named(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_session()  # Its client is made once a process.
    monkeypatch.setenv("HTTP_PROXY", "foo://me:secret@bar")
    with pytest.raises(DownloadError, match=r"settings cannot be used: .* HTTP_PROXY") as caught:
        case.observe()
    assert "secret" not in str(caught.value)


def test_a_hub_that_is_not_there_is_said(case: Case) -> None:
    case.catalogue(revision=None)
    case.corpus = dataclasses.replace(case.corpus, url="http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"the connection failed: .*gave up after 3"):
        case.observe()


def test_a_count_that_is_not_the_catalogues_fails_with_both_numbers(case: Case) -> None:
    case.catalogue(rows=11)
    with pytest.raises(CorpusError, match="has 10 rows, the catalogue says 11"):
        case.archive()


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (
            COMMIT,
            "f" * 40,
            f"revision of split dev-clean is {COMMIT}, the catalogue says {'f' * 40}",
        ),
        ("owner/libritts_r", "owner/other", "the catalogue says owner/other"),
        ("rows = 10 }", "rows = 11 }", "rows of split dev-clean is 10, the catalogue says 11"),
    ],
)
def test_a_corrected_catalogue_is_compared_with_what_was_made(
    case: Case, before: str, now: str, words: str
) -> None:
    case.archive()
    text = Path(case.corpus.catalogue).read_text()
    path = write_catalogue(case.folder, text.replace(before, now))
    case.corpus = dataclasses.replace(case.corpus, catalogue=path)
    asked = len(case.hub.asked)
    with pytest.raises(ChangedError, match=words):
        case.archive()
    assert len(case.hub.asked) == asked


def test_splits_of_two_revisions_do_not_become_one_dataset(case: Case) -> None:
    text = catalogue_text({SPLIT: b"1", "dev-other": b"1"}, {SPLIT: 10, "dev-other": 6})
    case.hub.files["data/dev.other/a.parquet"] = FILES[NAMES[0]]
    case.corpus = dataclasses.replace(
        case.corpus, catalogue=write_catalogue(case.folder, text), take=(SPLIT, "dev-other")
    )
    case.archive()
    case.hub.commit = "f" * 40
    words = f"split dev-other would be of revision {'f' * 40}, split {SPLIT} is of {COMMIT}"
    with pytest.raises(ChangedError, match=words):
        archive_split(case.corpus, "dev-other", 1, case.store, case.means())
    assert case.store.keys("archives/dev-other") == []
    case.store.delete(pins_key(SPLIT))  # The remedy, for whom the new revision is wanted.
    assert archive_split(case.corpus, "dev-other", 1, case.store, case.means())[1]


def test_a_split_of_no_rows_is_refused(case: Case) -> None:
    text = Path(case.corpus.catalogue).read_text().replace("rows = 10 }", "rows_at_most = 10 }")
    text = text.replace('revision = "here"', 'revision = "here"\nrows_at_most = "here"')
    path = write_catalogue(case.folder, text)
    case.corpus = dataclasses.replace(case.corpus, catalogue=path)
    case.hub.files = {NAMES[0]: parquet_of([])}
    for _ in range(2):
        with pytest.raises(CorpusError, match="split dev-clean has no row; leave it out of"):
            case.archive()


def test_one_store_does_not_hold_two_origins(case: Case) -> None:
    case.observe()
    case.corpus = dataclasses.replace(case.corpus, origin="openslr")
    with published({"/dev_clean.tar.gz": b"1"}) as archives:
        case.corpus = dataclasses.replace(case.corpus, url=archives.url)
        with pytest.raises(ChangedError, match="origin was hub, is openslr"):
            case.observe()


def test_the_endpoint_of_the_environment_applies(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", case.hub.url)
    case.corpus = dataclasses.replace(case.corpus, url="")
    assert case.archive()


def test_a_killed_download_leaves_nothing_that_the_next_run_does_not_remove(case: Case) -> None:
    case.hub.hold = NAMES[1]
    folder = download_folder(case.corpus, case.store)
    code = f"""
        from pathlib import Path
        from resources.hub import HubFile, Repository, fetch_file
        from resources.patience import Patience
        for path, size in {[(name, len(FILES[name])) for name in NAMES]!r}:
            fetch_file(
                Repository("owner/libritts_r", {COMMIT!r}, {case.hub.url!r}),
                HubFile(path, size, None), Path({str(folder)!r}), Patience(), print,
            )
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with ending(subprocess.Popen(command, cwd=ROOT)) as process:
        assert case.hub.held.wait(60)
        process.kill()
        assert process.wait(60) != 0
    assert len(list(folder.rglob("*.incomplete"))) == 1
    asked = len(case.hub.asked)
    assert case.archive()
    assert list(folder.rglob("*.incomplete")) == []
    fetched = [ask for ask in case.hub.asked[asked:] if ask.startswith("GET /datasets")]
    assert [ask.rpartition("/")[2] for ask in fetched] == [NAMES[1].rpartition("/")[2]]
