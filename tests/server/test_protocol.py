"""What clients may ask: what is wrong is refused with OpenAI's fields, and nothing breaks."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import speech_options
from server.errors import RequestError
from server.formats import FORMATS, ResponseFormat, available_formats
from server.protocol import check_model, parse_body, parse_message, request_id
from server.socket_messages import MESSAGES, InputText, SessionConfig
from server.speech_options import SpeechBody
from server.voices import OPENAI_VOICES, Voices

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def refused(data: bytes | str | dict[str, object]) -> RequestError:
    """The refusal of a body."""
    body = json.dumps(data) if isinstance(data, dict) else data
    with pytest.raises(RequestError) as raised:
        parse_body(body.encode() if isinstance(body, str) else body)
    return raised.value


def test_a_body_of_every_field_is_understood() -> None:
    body = parse_body(
        b'{"model": "tts-1", "input": " Hi. ", "voice": {"id": "tara"}, "response_format": "pcm",'
        b' "stream_format": "sse", "speed": 1, "instructions": "calm", "seed": 7,'
        b' "temperature": 0.5, "top_p": 1, "repetition_penalty": 1.3, "lead_in": "keep"}'
    )
    assert (body.input, body.voice, body.available_format()) == (" Hi. ", "tara", "pcm")
    assert body.sampling == {
        "temperature": 0.5,
        "top_p": 1,
        "repetition_penalty": 1.3,
        "seed": 7,
    }
    assert body.ignored == ["instructions"]


def test_a_body_may_begin_with_a_byte_order_mark() -> None:
    assert parse_body(b"\xef\xbb\xbf" + b'{"input": "Hi"}') == SpeechBody(input="Hi")
    message = parse_message("\ufeff" + '{"type": "input.text", "text": "Hi"}')
    assert message == InputText(type="input.text", text="Hi")


def test_halves_of_pairs_are_joined_or_replaced_wherever_they_stand() -> None:
    body = parse_body(b'{"input": "a \\ud83d b \\ud83d\\ude00", "language": "\\ude00"}')
    assert (body.input, body.language) == ("a \ufffd b \U0001f600", "\ufffd")
    error = refused(b'{"input": "a", "\\ud83d": 1}')
    assert (error.param, error.code) == ("\ufffd", "unknown_parameter")
    assert json.dumps(error.body(), ensure_ascii=False).encode()
    # The other half of what a text of a socket ends with may come with the next.
    message = parse_message('{"type": "input.text", "text": "a\\ud83d"}')
    assert message == InputText(type="input.text", text="a\ud83d")


@pytest.mark.parametrize("depth", [20, 500, 900, 100_000])
def test_a_value_of_any_depth_is_refused_in_few_words(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    for field in ("voice", "seed", "unknown"):
        assert len(refused(f'{{"input": "x", "{field}": {deep}}}').message) < 500
    with pytest.raises(RequestError) as raised:
        parse_message(f'{{"type": {deep}}}')
    assert len(raised.value.message) < 500


def test_what_is_null_or_left_out_follows_the_preset() -> None:
    body = parse_body(b'{"input": "Hi", "seed": null, "voice": null, "speed": null}')
    assert body == SpeechBody(input="Hi")
    assert (body.sampling, body.ignored, body.available_format()) == ({}, [], "wav")


@pytest.mark.parametrize(
    ("data", "param", "code", "words"),
    [
        (b"{", None, "invalid_json", "not JSON"),
        (b"", None, "invalid_json", "not JSON"),
        (b"\xff\xfe", None, "invalid_json", "not JSON"),
        (b"[" * 100_000, None, "invalid_json", "not JSON"),
        (b"[]", None, "invalid_json", "object"),
        (b'"text"', None, "invalid_json", "object"),
        ({}, "input", "missing_parameter", "input is missing"),
        ({"input": ""}, "input", "invalid_value", "is empty"),
        ({"input": " \n\t"}, "input", "invalid_value", "is empty"),
        ({"input": 3}, "input", "invalid_value", "input is 3"),
        ({"input": None}, "input", "invalid_value", "input is None"),
        ({"input": "x", "normalize": "no"}, "normalize", "invalid_value", "'no'"),
        ({"input": "x", "voice": 1}, "voice", "invalid_value", "voice is 1"),
        ({"input": "x", "voice": {"id": 1}}, "voice", "invalid_value", "voice is 1"),
        ({"input": "x", "voice": {"id": None}}, "voice", "invalid_value", "None"),
        ({"input": "x", "voice": {"name": "tara"}}, "voice", "invalid_value", "string"),
        ({"input": "x", "foo": 1}, "foo", "unknown_parameter", "unknown field 'foo'"),
        ({"input": "x", "response_format": "mpeg"}, "response_format", "invalid_value", "'mpeg'"),
        ({"input": "x", "stream": "wrong_type"}, "stream", "invalid_value", "'wrong_type'"),
        ({"input": "x", "stream_format": "ws"}, "stream_format", "invalid_value", "'ws'"),
        ({"input": "x", "instructions": 123}, "instructions", "invalid_value", "123"),
        ({"input": "x", "speed": "fast"}, "speed", "invalid_value", "'fast'"),
        ({"input": "x", "speed": 4.5}, "speed", "invalid_value", "4.5"),
        ({"input": "x", "speed": 0.2}, "speed", "invalid_value", "0.2"),
        ({"input": "x", "speed": float("nan")}, "speed", "invalid_value", "finite"),
        ({"input": "x", "speed": True}, "speed", "invalid_value", "True"),
        ({"input": "x", "seed": 1.5}, "seed", "invalid_value", "1.5"),
        ({"input": "x", "seed": -1}, "seed", "invalid_value", "-1"),
        ({"input": "x", "seed": 2**63}, "seed", "invalid_value", str(2**63)),
        ({"input": "x", "seed": "5"}, "seed", "invalid_value", "'5'"),
        ({"input": "x", "temperature": float("nan")}, "temperature", "invalid_value", "finite"),
        ({"input": "x", "top_p": 0}, "top_p", "invalid_value", "0"),
        ({"input": "x", "repetition_penalty": 9}, "repetition_penalty", "invalid_value", "9"),
        ({"input": "x", "repetition_penalty": 5e-324}, "repetition_penalty", "invalid_value", "5e"),
        ({"input": "x", "lead_in": "cut"}, "lead_in", "invalid_value", "'cut'"),
    ],
)
def test_what_is_wrong_is_named_with_its_field_and_value(
    data: bytes | dict[str, object], param: str | None, code: str, words: str
) -> None:
    error = refused(data)
    assert (error.status, error.param, error.code) == (400, param, code)
    assert words in error.message
    assert error.body()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_made_at_every_speed(name: ResponseFormat) -> None:
    for speed in (None, 0.25, 1, 1.5, 4.0):
        body = SpeechBody(input="x", response_format=name, speed=speed)
        assert body.available_format() == name
        assert body.played_speed == (speed or 1)


def test_formats_that_this_ffmpeg_cannot_make_are_refused_with_those_that_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert available_formats({"flac", "pcm_mulaw"}) == ("pcm", "wav", "flac", "mulaw")
    monkeypatch.setattr(speech_options, "AVAILABLE_FORMATS", available_formats({"aac"}))
    with pytest.raises(RequestError, match="'mp3' is not available; use pcm, wav or aac") as raised:
        SpeechBody(input="x", response_format="mp3").available_format()
    assert (raised.value.param, raised.value.code) == ("response_format", "unsupported_value")


@given(st.dictionaries(st.sampled_from([*SpeechBody.model_fields, "x"]), JSON) | JSON)
def test_no_body_does_anything_but_parse_or_be_refused(value: object) -> None:
    with contextlib.suppress(RequestError):
        assert parse_body(json.dumps(value).encode()).input.strip()


@given(
    st.sampled_from([*MESSAGES, "x"]),
    st.dictionaries(st.sampled_from([*SessionConfig.model_fields, "text", "x"]), JSON, max_size=4),
)
def test_no_message_does_anything_but_parse_or_be_refused(
    kind: str, fields: dict[str, object]
) -> None:
    with contextlib.suppress(RequestError):
        assert parse_message(json.dumps(fields | {"type": kind})).type == kind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("3", "JSON object"),
        ('{"text": "x"}', "unknown message type None"),
        ('{"type": ["input.text"]}', "unknown message type"),
        ('{"type": "input.txt"}', "send session.config, input.text"),
        ('{"type": "input.text"}', "text is missing"),
        ('{"type": "input.text", "text": 5}', "text is 5"),
        ('{"type": "session.config", "ref_audio": "data:"}', "ref_audio is not available"),
        ('{"type": "session.config", "word_timestamps": true}', "word_timestamps is not available"),
        ('{"type": "session.config", "max_new_tokens": 0}', "max_new_tokens is 0"),
    ],
)
def test_a_message_that_is_not_understood_is_refused(text: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        parse_message(text)


def test_a_configuration_of_vllm_omnis_clients_is_understood() -> None:
    message = parse_message(
        json.dumps(
            {
                "type": "session.config",
                "speaker": "tara",
                "task_type": "CustomVoice",
                "language": "Auto",
                "ref_audio": None,
                "word_timestamps": False,
                "initial_codec_chunk_frames": 2,
                "max_new_tokens": 70,
            }
        )
    )
    assert isinstance(message, SessionConfig)
    assert (message.stream_audio, message.split_granularity) == (False, "none")
    assert message.ignored == ["language", "task_type", "initial_codec_chunk_frames"]
    assert message.sampling == {"max_tokens": 70}
    assert isinstance(parse_message('{"type": "input.text", "text": ""}'), InputText)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a-1.b:C_9", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("-x", False),
        ("a b", False),
        ("a\r\nset-cookie: x", False),
        ("ä", False),
    ],
)
def test_a_clients_request_id_is_kept_if_it_is_sane(given: str, kept: bool) -> None:
    label = request_id({"x-request-id": given})
    assert (label == given) is kept
    assert kept or label != request_id({"x-request-id": given})


def test_openais_model_names_mean_the_one_that_is_served_and_others_are_not_found() -> None:
    for name in (None, "embedded-bf16", "embedded", "tts-1", "gpt-4o-mini-tts"):
        check_model(name, ("embedded-bf16", "embedded"))
    with pytest.raises(RequestError, match=r"model 'whisper-1' does not exist") as raised:
        check_model("whisper-1", ("embedded-bf16", "embedded"))
    assert (raised.value.status, raised.value.code) == (404, "model_not_found")


@pytest.mark.parametrize("own", [("heart",), ("tara", "leah", "leo"), ("Nova", "ash", "heart")])
def test_each_of_openais_names_is_a_voice_and_the_models_own_win(own: tuple[str, ...]) -> None:
    voices = Voices(own)
    assert voices.resolve(None) == own[0]
    assert all(voices.resolve(name.upper()) == name for name in own)
    assert {voices.resolve(name) for name in OPENAI_VOICES} <= set(own)
    assert len(OPENAI_VOICES) == 13
    with pytest.raises(RequestError, match="unknown voice 'bob'") as raised:
        voices.resolve("bob")
    assert (raised.value.param, raised.value.code) == ("voice", "voice_not_found")
    with pytest.raises(RequestError):
        voices.resolve("")
