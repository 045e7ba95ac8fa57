"""`python -m server.say`: what is wrong is said before anything is loaded, and nothing is noisy."""

import json
import subprocess
import sys
import wave

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" "], "the text is empty"),
        (["Hello.", "--seed", "-1"], "--seed -1 is outside 0..2**63-1"),
        (["Hello.", "--out", "absent/hello.wav"], "there is no folder absent"),
        (["Hello.", "--out", "."], "is a folder; name the file in it"),
        (["Hello.", "--preset", "nope"], "no preset 'nope'"),
        (["Hello.", "--model", "/absent"], "no such folder"),
        (["Hello.", "--codec", ""], "--codec is empty"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    code = "import sys; from server.say import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_it_speaks_into_a_wav_and_says_nothing_else(tmp_path):
    out = tmp_path / "said.wav"
    done = subprocess.run(
        [sys.executable, "-m", "server.say", "Rice is round.", "--seed", "1", "--out", str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    line = json.loads(done.stdout)
    with wave.open(str(out)) as clip:
        assert clip.getframerate() == 24_000
        assert clip.getnframes() / 24_000 == pytest.approx(line["seconds"], abs=0.01)
    assert line["finish_reason"] == "stop"
    told = [text for text in done.stderr.splitlines() if text]
    assert len(told) == 1, told
    assert told[0].startswith("Loading the model")
