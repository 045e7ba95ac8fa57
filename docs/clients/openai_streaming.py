"""Speech by OpenAI's own client, written as it comes: `python openai_streaming.py "Text." out.wav`.

Needs `pip install openai`. A player would take each chunk instead of the file.
"""

from __future__ import annotations

import argparse
import wave

from openai import OpenAI


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--token", default="none", help="as the server's --token-file has it")
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()

    client = OpenAI(base_url=f"{arguments.url}/v1", api_key=arguments.token)
    with (
        wave.open(arguments.out, "wb") as file,
        client.audio.speech.with_streaming_response.create(
            model="tts-1",
            voice="alloy",
            input=arguments.text,
            response_format="pcm",
            # Fields that OpenAI does not have go here.
            extra_body={} if arguments.seed is None else {"seed": arguments.seed},
        ) as response,
    ):
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        # pcm has 2 bytes a sample: chunks of an even size hold whole samples.
        for chunk in response.iter_bytes(4_096):
            file.writeframes(chunk)


if __name__ == "__main__":
    main()
