"""`python -m server`: the standalone speech server. docs/protocol.md describes what it serves."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import sys
from typing import TYPE_CHECKING

from server.errors import ConfigurationError
from server.lifecycle import EXIT_CONFIGURATION, EXIT_DRAINED, Lifecycle
from server.metrics import Metrics
from server.presets import DEFAULT_STORE, load_preset, overridden
from server.serving import Limits, Serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.serving import Model

DEFAULT_PRESET = "embedded"

_LOG = logging.getLogger("server")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server that `argv` describes; its exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
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
            _limits(arguments.limit), Metrics(), allowed_origins=tuple(arguments.allow_origin)
        )
    except ConfigurationError as error:
        _LOG.error("%s", error)
        return EXIT_CONFIGURATION

    if arguments.print_config:
        from server.loading import resolved_config

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
        )

    return Lifecycle(
        serving,
        load,
        arguments.host,
        arguments.port,
        exit_on_stdin_eof=arguments.exit_on_stdin_eof,
    ).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m server",
        description="Serve Orpheus-class speech over HTTP and WebSocket. Exit codes: 0 drained, "
        "2 configuration, 3 weights or an unchecked checkpoint, 4 port, 5 engine died.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
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
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a site whose pages may open sockets here, as https://example.org; * is any",
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
        "--exit-on-stdin-eof",
        action="store_true",
        help="end when standard input closes: whoever started this is gone",
    )
    add(
        "--allow-unchecked",
        action="store_true",
        help="serve a checkpoint of the store that has not passed its checks",
    )
    add("--print-config", action="store_true", help="print the resolved configuration and exit")
    return parser


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port < 65_536:
        raise argparse.ArgumentTypeError(f"{text} is not a port; give 0 to 65535")
    return port


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
        if not given[name] > 0:
            raise ConfigurationError(f"--limit {setting!r}: it must be above 0")
    return dataclasses.replace(Limits(), **given)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    logging.shutdown()
    # All is ended; taking torch and vLLM apart object by object would take seconds.
    os._exit(code)
