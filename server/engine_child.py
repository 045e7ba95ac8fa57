"""vLLM's AsyncLLM with its core in another process: the second form, kept for comparison.

An event loop of its own thread awaits each request; `step` takes what has come since. The core
ends with this process, even when that is killed (`engine_worker`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import queue
import threading
from typing import TYPE_CHECKING, Any

from server import engine_random
from server.engine import (
    Engine,
    EngineOutput,
    EngineSettings,
    FinishReason,
    Generation,
    check_generation,
)
from server.engine_core import (
    engine_arguments,
    engine_facts,
    sampling_params,
    set_environment,
    start_error,
    warm_up_generation,
)
from server.engine_rows import RowNumbers, SampledRows
from server.errors import ConfigurationError, EngineDiedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from server.checkpoint import Checkpoint

_LOOK_S = 1.0  # How often a waiting step looks whether anything can still come.


class ChildEngine(Engine):
    """An engine whose steps run in a process of their own."""

    def __init__(self, checkpoint: Checkpoint, settings: EngineSettings) -> None:
        set_environment(settings, in_process=False)
        from server import engine_model

        engine_model.register()
        rows = SampledRows.of(checkpoint.layout) if settings.head == "audio" else None
        self._checkpoint = checkpoint
        self._numbers = RowNumbers(rows, checkpoint.vocabulary_size)
        self._stop = checkpoint.layout.end_of_speech if rows is None else rows.stop
        self._outputs: queue.SimpleQueue[EngineOutput | Exception] = queue.SimpleQueue()
        self._active: dict[str, asyncio.Task[None]] = {}
        self._dead: EngineDiedError | None = None
        self._llm: Any = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="child-engine", daemon=True
        )
        self._thread.start()
        try:
            if checkpoint.untrained:
                engine_random.register()  # Here the name is checked; the core registers its own.
            arguments = engine_arguments(checkpoint, settings, rows)
            found = self._await(self._open(arguments, settings))[0]
        except Exception as error:
            self.close()
            raise start_error(checkpoint, error) from error
        self.facts = engine_facts(self._llm.vllm_config, checkpoint, settings, rows, found)
        try:
            self.add(warm_up_generation(checkpoint))
            while self.busy:
                self.step()
        except BaseException:
            self.close()
            raise

    def add(self, generation: Generation) -> None:
        self._check_alive()
        request_id = generation.request_id
        if request_id in self._active:
            raise ConfigurationError(f"request {request_id!r} is running already; give each its id")
        limit = check_generation(generation, self.facts, self._checkpoint.vocabulary_size)
        prompt = self._numbers.to_engine(generation.prompt_ids)
        params = sampling_params(generation.sampling, limit, self._stop, self.facts)
        started = self._start(self._generate(request_id, prompt, params))
        self._active[request_id] = started

    def abort(self, request_ids: Iterable[str]) -> None:
        self._check_alive()
        tasks = [self._active.pop(name) for name in request_ids if name in self._active]
        if tasks:
            # When the tasks have ended their requests are on their way out of the core.
            self._await(_cancelled(tasks))
            self._forget_aborted()

    def step(self) -> list[EngineOutput]:
        self._check_alive()
        merged: dict[str, EngineOutput] = {}
        while self._active and not merged:
            with contextlib.suppress(queue.Empty):
                self._take(self._outputs.get(timeout=_LOOK_S), merged)
            with contextlib.suppress(queue.Empty):
                while True:
                    self._take(self._outputs.get_nowait(), merged)
            if not merged and self._llm.errored:
                raise self._died(self._llm.dead_error)
        return list(merged.values())

    @property
    def busy(self) -> bool:
        return bool(self._active)

    def close(self) -> None:
        llm, self._llm = self._llm, None
        self._dead = self._dead or EngineDiedError("the engine is closed")
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self._await(_cancelled(list(self._active.values())))
        self._active.clear()
        if llm is not None:
            llm.shutdown()
        self._await(_cancelled_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if llm is not None:
            # Left to the garbage collector, which warns of it in whatever runs when it comes.
            llm.engine_core.resources.ctx.destroy(linger=0)
        del llm
        gc.collect()  # vLLM's sockets and files are closed when its objects are gone.

    def _forget_aborted(self) -> None:
        """Drop outputs of requests that do not run: a later request may have the same name."""
        wanted: list[EngineOutput | Exception] = []
        with contextlib.suppress(queue.Empty):
            while True:
                came = self._outputs.get_nowait()
                if isinstance(came, Exception) or came.request_id in self._active:
                    wanted.append(came)
        for came in wanted:
            self._outputs.put(came)

    def _take(self, came: EngineOutput | Exception, merged: dict[str, EngineOutput]) -> None:
        """Add what came to `merged`, unless its request is no longer wanted."""
        if isinstance(came, Exception):
            raise self._died(came)
        name = came.request_id
        if name not in self._active:
            return
        if earlier := merged.get(name):
            logprobs = None
            if earlier.logprobs is not None or came.logprobs is not None:
                logprobs = [*(earlier.logprobs or []), *(came.logprobs or [])]
            ids = earlier.token_ids + came.token_ids
            came = EngineOutput(name, ids, came.finish_reason, logprobs)
        merged[name] = came
        if came.finish_reason is not None:
            del self._active[name]

    async def _open(
        self, arguments: dict[str, Any], settings: EngineSettings
    ) -> list[dict[str, Any]]:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
        return await self._llm.collective_rpc("speech_install_sampler", args=(settings.sampler,))

    async def _generate(self, request_id: str, prompt: list[int], params: Any) -> None:
        wanted = params.logprobs is not None
        try:
            async for result in self._llm.generate(
                {"type": "token", "prompt_token_ids": prompt}, params, request_id
            ):
                self._outputs.put(self._read(request_id, result.outputs[0], wanted=wanted))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._outputs.put(error)

    def _read(self, request_id: str, given: Any, *, wanted: bool) -> EngineOutput:
        """The project's form of one output of AsyncLLM."""
        ids: list[int] = list(given.token_ids)
        reason: FinishReason | None = None
        if given.finish_reason is not None:
            reason = given.finish_reason if given.finish_reason in ("stop", "length") else "error"
            if ids and ids[-1] == self._stop:
                ids = ids[:-1]
        logprobs: list[dict[int, float]] | None = None
        if wanted:
            logprobs = [
                dict(
                    zip(
                        self._numbers.to_model(list(row)),
                        [entry.logprob for entry in row.values()],
                        strict=True,
                    )
                )
                for row in given.logprobs or []
            ]
        return EngineOutput(request_id, self._numbers.to_model(ids), reason, logprobs)

    def _start(self, coroutine: Any) -> asyncio.Task[None]:
        async def start() -> asyncio.Task[None]:
            return asyncio.get_running_loop().create_task(coroutine)

        return self._await(start())

    def _await(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise self._dead

    def _died(self, error: BaseException) -> EngineDiedError:
        self._active.clear()
        self._dead = EngineDiedError(
            f"the engine stopped: {type(error).__name__}: {error}; open it again"
        )
        self._dead.__cause__ = error
        return self._dead


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel the tasks and wait for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _cancelled_all() -> None:
    """End whatever vLLM left running on this loop."""
    own = asyncio.current_task()
    await _cancelled([task for task in asyncio.all_tasks() if task is not own])
