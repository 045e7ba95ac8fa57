"""What a request says: only what any server knows, and more only to ours."""

from __future__ import annotations

import pytest

from speech_assets.bench.schedule import Plan
from speech_assets.bench.target import Target

PLAN = Plan(request=3, text=1, seed=1_000_003, cancel_after_s=None)


def target(*, is_ours: bool, voice: str | None = None, model: str | None = None) -> Target:
    return Target(
        api="openai",
        speech_url="http://a/v1/audio/speech",
        is_ours=is_ours,
        format="wav",
        texts=("One.", "Two."),
        voice=voice,
        model=model,
        headers={},
        fresh_connections=False,
        timeout_s=1.0,
    )


def test_any_server_gets_the_four_fields_of_openai() -> None:
    assert target(is_ours=False).body(PLAN) == {
        "input": "Two.",
        "response_format": "wav",
        "model": "tts-1",
        "voice": "alloy",
    }


def test_our_server_gets_a_seed_and_speaks_with_its_own_voice() -> None:
    assert target(is_ours=True).body(PLAN) == {
        "input": "Two.",
        "response_format": "wav",
        "seed": 1_000_003,
    }


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_voice_and_a_model_that_are_named_are_sent(is_ours: bool) -> None:
    body = target(is_ours=is_ours, voice="v", model="m").body(PLAN)
    assert (body["voice"], body["model"]) == ("v", "m")


def test_only_our_socket_is_asked_for_a_seed_and_a_greeting() -> None:
    session = {"type": "session.config", "response_format": "wav", "stream_audio": True}
    ours = target(is_ours=True).session(PLAN)
    assert ours == {**session, "seed": 1_000_003, "session_ready": True}
    others = target(is_ours=False).session(PLAN)
    assert others == {**session, "model": "tts-1", "voice": "alloy"}
