"""Texts of a user's file, in the forms in which editors save them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from speech_assets.bench.errors import BenchError
from speech_assets.bench.texts import read_texts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lines.txt", b"One.\n\n  Two. \n"),
        ("marked.txt", b"\xef\xbb\xbfOne.\r\nTwo.\r\n"),
        ("old.txt", b"One.\rTwo."),
        ("lines.jsonl", b'{"text": "One.", "id": 1}\n{"text": "Two."}\n'),
        ("marked.jsonl", b'\xef\xbb\xbf{"text": "One."}\n{"text": "Two."}'),
    ],
)
def test_texts_come_from_lines_or_json_lines(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert read_texts(path) == ("One.", "Two.")


@pytest.mark.parametrize(
    ("name", "content"), [("a.txt", "One\u2028more."), ("a.jsonl", '{"text": "One\u2028more."}')]
)
def test_a_separator_within_a_text_does_not_split_it(
    name: str, content: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert read_texts(path) == ("One\u2028more.",)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.txt", b"\n\n", "has no text"),
        ("bad.jsonl", b'{"text": "One."}\nnot json\n', "line 2 is not JSON"),
        ("other.jsonl", b'{"words": "One."}\n', 'line 1 has no "text"'),
        ("list.jsonl", b"[1]\n", 'line 1 has no "text"'),
        ("number.jsonl", b'{"text": 1}\n', 'line 1 has no "text"'),
        ("deep.jsonl", b"[" * 100_000, "line 1 nests too deep"),
        ("half.jsonl", b'{"text": "\\ud800 hi"}\n', "line 1 has half a character"),
        ("utf16.txt", "One.\n".encode("utf-16"), "save it as UTF-8"),
        ("utf16.txt", "One.\n".encode("utf-16-le"), "save it as UTF-8"),
        ("latin.txt", "größer".encode("latin-1"), "save it as UTF-8"),
    ],
)
def test_texts_that_are_none_are_refused_with_their_place(
    name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BenchError) as error:
        read_texts(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(BenchError, match=str(path)):
            read_texts(path)
