"The console script."

import json
import os
import signal
import sys
from typing import Any


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


def main() -> int:  # Exit code: 0, 1, 2 or 130
    "Run one command; it can be interrupted even while it loads."
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from .cli import main as run

    signal.signal(signal.SIGINT, before)
    return run()


if __name__ == "__main__":
    sys.exit(main())
