"""LiveKit's OpenAI TTS with this server: `python livekit_tts.py "Text." out.wav`.

Needs `pip install livekit-agents livekit-plugins-openai`. In an agent: `AgentSession(tts=tts)`.
It asks for mp3 as events; with `--model tts-1` for plain mp3.
"""

from __future__ import annotations

import argparse
import asyncio
import wave

from livekit.agents import tts as agents_tts
from livekit.plugins import openai


async def speak(text: str, url: str, token: str, model: str, format: str) -> bytes:
    """The audio of a text, 16-bit pcm at 24 kHz."""
    tts: agents_tts.TTS = openai.TTS(
        base_url=f"{url}/v1", api_key=token, model=model, voice="alloy", response_format=format
    )
    audio = bytearray()
    async with tts.synthesize(text) as stream:
        async for event in stream:
            audio += event.frame.data.tobytes()
    await tts.aclose()
    return bytes(audio)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--token", default="none")
    parser.add_argument("--model", default="gpt-4o-mini-tts")
    parser.add_argument("--format", default="mp3")
    given = parser.parse_args()
    audio = asyncio.run(speak(given.text, given.url, given.token, given.model, given.format))
    with wave.open(given.out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(audio)


if __name__ == "__main__":
    main()
