"""Pipecat's OpenAI TTS service with this server: `python pipecat_tts.py "Text." out.wav`.

Needs `pip install "pipecat-ai[openai]"`. In a bot `tts` stands between the language model and the
transport's output; here a recorder stands in for the transport.
"""

from __future__ import annotations

import argparse
import asyncio
import wave

from pipecat.frames.frames import EndFrame, ErrorFrame, Frame, TTSAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner


class Recorder(FrameProcessor):
    """Keeps the audio that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.audio = bytearray()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.audio += frame.audio
        await self.push_frame(frame, direction)


async def speak(text: str, url: str, token: str) -> bytes:
    """The audio of a text, 16-bit pcm at 24 kHz."""
    tts = OpenAITTSService(
        base_url=f"{url}/v1",
        api_key=token,
        # Any of OpenAI's 13 names; Pipecat lets no other through. The server takes each for one of
        # its own voices: GET /v1/audio/voices tells which.
        settings=OpenAITTSService.Settings(voice="alloy"),
        # Pipecat takes an utterance for ended when nothing comes for 3 s: too soon where a request
        # waits for a place.
        stop_frame_timeout_s=10.0,
    )
    recorder = Recorder()
    worker = PipelineWorker(
        Pipeline([tts, recorder]), params=PipelineParams(audio_out_sample_rate=24_000)
    )
    errors: list[ErrorFrame] = []

    @worker.event_handler("on_pipeline_error")
    async def _(_: PipelineWorker, frame: ErrorFrame) -> None:
        errors.append(frame)

    await worker.queue_frames([TTSSpeakFrame(text), EndFrame()])
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
    if errors:
        raise SystemExit(f"not spoken: {errors[0].error}")
    return bytes(recorder.audio)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--token", default="none")
    arguments = parser.parse_args()
    audio = asyncio.run(speak(arguments.text, arguments.url, arguments.token))
    with wave.open(arguments.out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(audio)


if __name__ == "__main__":
    main()
