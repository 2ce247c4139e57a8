"""Running a server with uvicorn until a signal ends it."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from mirlo_llm.serve.application import Server
from mirlo_llm.serve.errors import ServeError
from mirlo_llm.serve.health import HealthPort
from mirlo_llm.serve.http_limits import MAX_HEAD, limited_protocol
from mirlo_llm.serve.options import ModelSource, ServeOptions

SWITCH_SECONDS = 0.001
"""Switch interval of the interpreter: the event loop needs the lock several times per request."""
EXTRA_GRACE = 5
"""Seconds after `grace` in which errors are sent to the clients of ended requests."""


def run_server(
    sources: Sequence[ModelSource],
    options: ServeOptions,
    compile_options: Mapping[str, Any] | None = None,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve models until SIGINT or SIGTERM; `on_ready` gets the address once each model has answered a call."""
    try:
        import uvicorn
    except ImportError:
        raise ServeError("a server needs the packages of an extra: pip install 'mirlo-llm[serve]'") from None
    import asyncio

    server = Server(sources, options, compile_options)
    config = uvicorn.Config(
        server, options.host, options.port, log_config=None, access_log=False, ws="none", server_header=False,
        lifespan="on", timeout_graceful_shutdown=int(options.grace) + EXTRA_GRACE,
        timeout_keep_alive=30, proxy_headers=False, http=limited_protocol(options),
        h11_max_incomplete_event_size=MAX_HEAD,
    )  # fmt: skip
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    runner = uvicorn.Server(config)

    def handle_exit(signal: int, frame: Any) -> None:
        """End after active requests; end at once on a second signal."""
        runner.force_exit = runner.should_exit
        runner.should_exit = True
        for loop in runner_loop:
            loop.call_soon_threadsafe(server.begin_stop)

    def fail() -> None:
        runner.should_exit = True

    runner_loop: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        runner_loop.append(asyncio.get_running_loop())
        beside = [asyncio.ensure_future(_announce(runner, server, options, on_ready))]
        if health is not None:
            beside.append(asyncio.ensure_future(health.beat(lambda: server.is_ready)))
        try:
            await runner.serve()
        finally:
            for each in beside:
                each.cancel()

    runner.handle_exit, server.on_failure = handle_exit, fail
    sys.setswitchinterval(SWITCH_SECONDS)
    health = HealthPort(options.host, options.health_port) if options.health_port else None
    try:
        _loop_runner()(serve())
    except SystemExit:  # uvicorn, after it has logged that the address cannot be used
        raise ServeError(f"{options.host}:{options.port}: the address cannot be used: is it in use?") from None
    finally:
        if health is not None:
            health.close()
    if server.state.failure is not None:
        raise server.state.failure


def _loop_runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return a function that runs a coroutine, in uvloop's event loop, which combines small writes, if installed."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.run
    run: Callable[[Coroutine[Any, Any, None]], None] = uvloop.run
    return run


async def _announce(runner: Any, server: Server, options: ServeOptions, on_ready: Callable[[str], None]) -> None:
    import asyncio

    while not (runner.started and server.state.pool.is_ready):
        await asyncio.sleep(0.02)
    gc.collect()
    gc.freeze()  # what models and modules consist of stays: collections need not look at it
    port = next((s.getsockname()[1] for each in runner.servers for s in each.sockets), options.port)
    host = f"[{options.host}]" if ":" in options.host else options.host
    on_ready(f"http://{host}:{port}")
