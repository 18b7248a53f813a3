"The console script: all commands, and the two that serve."

import atexit
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any

_WIRE: tuple[int, int] | None = None  # Standard input and output of `mcp`, set aside
_SERVE = {"fastapi", "huey", "mcp", "starlette", "uvicorn"}  # What [serve] brings


def _leave(*_: Any) -> None:
    "End a program that is still loading; an exception would meet half a library."
    message = "Interrupted; nothing was begun."
    if "--json" in sys.argv:
        told = {"code": "interrupted", "message": message, "field": None}
        error = {"error": told | {"retryable": True}}
        line = {"schema_version": "1.0", "command": "", "status": "error"} | error
        os.write(1, f"{json.dumps(line)}\n".encode())
    else:
        os.write(2, f"error (interrupted): {message}\n".encode())
    os._exit(130)


def _end(code: int) -> int:
    "End at once while a model is at work: its native thread would abort the exit."
    from .patience import THREAD

    if any(one.name == THREAD for one in threading.enumerate()):
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


def _set_aside() -> tuple[int, int]:
    "Keep the standard streams for the protocol; whatever is printed goes to the log."
    wire = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire


def _add_servers() -> None:
    "Add `serve` and `mcp`, which no other module may know together."
    from .core import UsageError, Vid2ContextError, install_hint
    from .requests import Receipt
    from .service import Service
    from .shell import command, option

    def needed(error: ImportError) -> Vid2ContextError:
        lacking = (error.name or "").partition(".")[0]
        extra = "serve" if lacking in _SERVE else "serve,llm"
        message = f"{error.name} is missing; run {install_hint(extra)}."
        return UsageError("extra_not_installed", message)

    def teller(service: Service) -> Callable[[str], None]:
        "Say where it answers and where the token lies, never the token."
        place = (service.home / "serve.token").absolute()

        def tell(address: str) -> None:
            told = f"(Ctrl-C ends it; the token lies in {place})"
            print(f"answering on {address} {told}", file=sys.stderr, flush=True)

        return tell

    def until_stopped(name: str, service: Service, run: Callable[[], None]) -> Receipt:
        "Serve; Ctrl-C is the usual end and no error."
        try:
            run()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return Receipt(name, "stopped", service.home, exit_code=130)
        return Receipt(name, "ok", service.home)

    @command("serve")
    def serve(
        service: Service,
        host: Annotated[str, option("Address to bind.")] = "127.0.0.1",
        port: Annotated[int, option("Port to bind; 0 takes a free one.")] = 8765,
        workers: Annotated[
            int, option("Briefs made at once; 0 makes them while the client waits.")
        ] = 1,
    ) -> Receipt:
        """Serve the library over HTTP, with a search page for people.

        The page asks for the token in the file serve.token of the library; programs
        send it as Authorization: Bearer TOKEN.

        Example: vid2context serve --port 8765
        """
        try:
            from .serving import serve as run
        except ImportError as error:
            raise needed(error) from None
        at: dict[str, Any] = {"host": host, "port": port, "tell": teller(service)}
        return until_stopped(
            "serve", service, lambda: run(service, workers=workers, **at)
        )

    @command("mcp")
    def mcp(
        service: Service,
        http: Annotated[bool, option("Over HTTP, not over stdio.", "--http")] = False,
        host: Annotated[str, option("With --http: address to bind.")] = "127.0.0.1",
        port: Annotated[int, option("With --http: port to bind.")] = 8766,
        write: Annotated[
            bool, option("Offer visual_index, which changes the library.", "--write")
        ] = False,
    ) -> Receipt:
        """Serve the library to agents by the Model Context Protocol.

        Without --http it speaks over standard input and output, as clients expect
        that start it themselves.

        Example: vid2context mcp --home ./library
        """
        try:
            from .agents import run_http, run_stdio
            from .mcp_server import Wire
        except ImportError as error:
            raise needed(error) from None

        def run() -> None:
            if http:
                at: dict[str, Any] = {"host": host, "port": port}
                run_http(service, write=write, tell=teller(service), **at)
            else:
                run_stdio(service, wire=Wire(*_WIRE) if _WIRE else None, write=write)

        return until_stopped("mcp", service, run)


def main() -> int:  # Exit code: 0, 1, 2 or 130
    "Run one command; it can be interrupted even while it loads."
    global _WIRE
    words = sys.argv[1:]
    if words[:1] == ["mcp"] and not {"--http", "--help", "-h"} & set(words):
        _WIRE = _set_aside()
    if words[:1] in (["serve"], ["mcp"]):
        # Lanes run side by side; on a busy machine spinning threads cost twentyfold.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from .cli import main as run

    _add_servers()
    signal.signal(signal.SIGINT, before)
    return _end(run())


if __name__ == "__main__":
    sys.exit(main())
