"Watch this process while its tests run: where it connects, what it unpickles."

import ipaddress
import sys

WORKERS = ("multiprocessing", "concurrent")


class Watch:
    "Collect what must not happen; `install` it once, it cannot be taken out again."

    def __init__(self) -> None:
        self.broken: list[str] = []

    def install(self) -> None:
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple) -> None:
        if event == "socket.connect" and is_remote(args[1]):
            self.broken.append(f"connected to {args[1]!r}")
        if event == "pickle.find_class" and not is_from_worker():
            self.broken.append(f"unpickled {args[0]}.{args[1]}")


def is_remote(address: object) -> bool:
    "Tell an address off this machine; sockets of the file system are at home."
    if not isinstance(address, tuple):
        return False
    host = str(address[0]).split("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return not (found.is_loopback or found.is_unspecified)


def is_from_worker() -> bool:
    "Tell whether a pickle comes from this process's own workers."
    frame = sys._getframe(1)
    while frame:
        if frame.f_globals.get("__name__", "").split(".")[0] in WORKERS:
            return True
        frame = frame.f_back
    return False
