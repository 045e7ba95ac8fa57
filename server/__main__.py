"""`python -m server`: the standalone speech server. docs/protocol.md describes what it serves."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from server.bearer import VARIABLE, BearerTokens
from server.errors import ConfigurationError, ServerError
from server.lifecycle import DRAIN_S, EXIT_CONFIGURATION, EXIT_DRAINED, Lifecycle, exit_code
from server.limits import Limits
from server.metrics import Metrics
from server.places import Admission
from server.presets import DEFAULT_STORE, load_preset, overridden
from server.request_log import LOG_FORMATS, configure_log
from server.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.front import Front
    from server.serving import Model

DEFAULT_PRESET = "embedded"
MOST_API_PROCESSES = 64

_LOG = logging.getLogger("server")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server that `argv` describes; its exit code."""
    arguments = parser().parse_args(argv)
    configure_log(arguments.log_format)
    if arguments.log_format == "json":
        os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")  # Its lines are to be JSON, too.
    try:
        preset = overridden(
            load_preset(arguments.preset),
            model=arguments.model,
            codec=arguments.codec,
            device=arguments.device,
            max_streams=arguments.max_streams,
            max_queue=arguments.max_queue,
        )
        serving = Serving(
            _limits(arguments.limit),
            Metrics(),
            allowed_origins=tuple(arguments.allow_origin),
            tokens=BearerTokens.read(os.environ.get(VARIABLE), arguments.token_file),
        )
    except ConfigurationError as error:
        _LOG.error("%s", error)
        return EXIT_CONFIGURATION

    if arguments.as_api_process is not None:
        from server.api_process import ApiProcess

        return ApiProcess(serving, *arguments.as_api_process).run()

    if arguments.print_config:
        from server.loading import check_settings, resolved_config

        try:
            check_settings(preset, store=arguments.store)
        except ServerError as error:
            return exit_code(error)
        print(json.dumps(resolved_config(preset), indent=2))
        return EXIT_DRAINED

    def load() -> Model:
        # Imported by the thread that loads: torch takes seconds, and the port is taken before.
        from server.loading import load_model

        return load_model(
            preset,
            serving.metrics,
            store=arguments.store,
            allow_unchecked=arguments.allow_unchecked,
            longest_wait_s=serving.limits.queue_s,
            admission=arguments.admission,
        )

    front: Front | None = None
    if arguments.api_processes:
        from server.api_processes import ApiProcesses

        given = sys.argv[1:] if argv is None else argv
        front = ApiProcesses(serving, arguments.api_processes, given)
    return Lifecycle(
        serving,
        load,
        arguments.host,
        arguments.port,
        exit_on_stdin_eof=arguments.exit_on_stdin_eof,
        drain_s=arguments.drain_s,
        front=front,
    ).run()


def parser() -> argparse.ArgumentParser:
    """The options of `python -m server`."""
    options = argparse.ArgumentParser(
        prog="python -m server",
        description="Serve Orpheus-class speech over HTTP and WebSocket. Exit codes: 0 drained, "
        "2 configuration, 3 weights or an unchecked checkpoint, 4 port, 5 engine died.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = options.add_argument
    add("--preset", default=DEFAULT_PRESET, help="row of server/presets.toml or SPEECH_PRESETS")
    add("--model", metavar="DIR|REPO@REV", help="language model, instead of the preset's")
    add("--codec", metavar="DIR|REPO@REV", help="codec, instead of the preset's")
    add(
        "--store",
        default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE,
        metavar="URL",
        help="where the project keeps the checkpoints that it makes",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="what to run on")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=_port, default=8_000, help="port to listen on; 0 takes any that is free")
    add("--max-streams", type=int, metavar="N", help="streams at once, instead of the preset's")
    add("--max-queue", type=int, metavar="N", help="requests that wait, instead of the preset's")
    add(
        "--admission",
        choices=get_args(Admission),
        default="places",
        help="when a request may begin: while a place is free, or besides only while the engine's "
        "measured pace keeps one more stream in realtime",
    )
    add(
        "--allow-origin",
        action="append",
        type=_origin,
        default=[],
        metavar="ORIGIN",
        help="a site whose pages may use this server, as https://example.org; * is any",
    )
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"bearer tokens that clients must send, one a line; {VARIABLE} holds further ones",
    )
    add(
        "--log-format",
        choices=LOG_FORMATS,
        default="text",
        help="lines for people, or one JSON object a line",
    )
    add(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what a client may take: "
        + ", ".join(f"{field.name}={field.default}" for field in dataclasses.fields(Limits)),
    )
    add(
        "--drain-s",
        type=_seconds,
        default=DRAIN_S,
        metavar="S",
        help="after SIGTERM, what has begun or waits may take so long",
    )
    add(
        "--exit-on-stdin-eof",
        action="store_true",
        help="end when standard input closes: whoever started this is gone",
    )
    add(
        "--allow-unchecked",
        action="store_true",
        help="serve a checkpoint of the store that has not passed its checks",
    )
    add(
        "--api-processes",
        type=_api_processes,
        default=0,
        metavar="N",
        help="processes apart from the engine's that answer clients; 0: the engine's does",
    )
    add("--as-api-process", type=_descriptors, help=argparse.SUPPRESS)
    add("--print-config", action="store_true", help="print the resolved configuration and exit")
    return options


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port < 65_536:
        raise argparse.ArgumentTypeError(f"{text} is not a port; give 0 to 65535")
    return port


def _origin(text: str) -> str:
    # As browsers send it; another form would match nothing.
    if text != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s@A-Z]+", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no site; give scheme, host and port alone, in lower case, as "
            "https://example.org, or * for any"
        )
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time; give seconds, 0 or more")
    return seconds


def _api_processes(text: str) -> int:
    count = int(text) if text.isdecimal() else -1
    if not 0 <= count <= MOST_API_PROCESSES:
        raise argparse.ArgumentTypeError(
            f"{text} is no number of API processes; give 0 to {MOST_API_PROCESSES}"
        )
    return count


def _descriptors(text: str) -> tuple[int, int]:
    link, listener = map(int, text.split(","))
    return link, listener


def _limits(settings: Sequence[str]) -> Limits:
    """Limits with the given NAME=VALUE in place of their defaults.

    Raises:
        ConfigurationError: no such limit, or no such value.
    """
    known: dict[str, type[float]] = {
        name: type(value) for name, value in dataclasses.asdict(Limits()).items()
    }
    given: dict[str, float] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in known:
            raise ConfigurationError(
                f"--limit {setting!r}: no limit {name!r}; the limits are {', '.join(known)}"
            )
        try:
            given[name] = known[name](text)
        except ValueError as error:
            raise ConfigurationError(
                f"--limit {setting!r}: {text!r} is no number; give one above 0"
            ) from error
        if not 0 < given[name] < math.inf:
            raise ConfigurationError(f"--limit {setting!r}: it must be above 0, and finite")
    return dataclasses.replace(Limits(), **given)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    logging.shutdown()
    # All is ended; taking torch and vLLM apart object by object would take seconds.
    os._exit(code)
