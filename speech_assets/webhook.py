"""A POST to an address of which nothing is known: given up for good at a deadline.

A client's timeouts are for each read: who sends a byte now and then is never done, and who sends
without end is kept. So a process of its own asks. It reads the answer's status and no body, and
ends at the deadline whatever it waits for, a name's look-up or a handshake too.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import httpx


def post(url: str, value: Any, deadline_s: float) -> int | str:
    """Status that the address answered, or in a word what hindered it; the address is in neither.

    `value` is sent as JSON. It takes `deadline_s` at most.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(deadline_s)],
            # Not an argument: every user of the machine sees those.
            input=json.dumps({"url": url, "value": value}).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {deadline_s:g} s"
    except OSError as error:
        return type(error).__name__
    said = done.stdout.decode()
    if done.returncode == -signal.SIGALRM:
        return f"no answer within {deadline_s:g} s"
    if done.returncode or not said:
        return f"its process ended with {done.returncode}"
    return int(said) if said.isdecimal() else said


def main() -> None:
    """What the process does: reads address and value from its standard input, and prints."""
    deadline_s = float(sys.argv[1])
    # Also when nobody is left to end it.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, deadline_s)
    asked = json.load(sys.stdin.buffer)
    try:
        url, value = asked["url"], asked["value"]
        with httpx.stream("POST", url, json=value, timeout=deadline_s) as response:
            said = str(response.status_code)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        said = type(error).__name__
    sys.stdout.write(said)


if __name__ == "__main__":
    main()
