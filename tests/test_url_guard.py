"""The guard on the wire: raw requests, limits, and names that lie."""

import http.client
import socket
import threading
import time

import pytest
from harbour import Harbour

from vid2context.addresses import Door, Judge, check_url, is_public
from vid2context.core import Vid2ContextError
from vid2context.url_guard import UrlGuard


@pytest.fixture
def site():
    harbour = Harbour()
    harbour.files["/page"] = b"tides"
    yield harbour
    harbour.close()


def raw(guard, text: bytes) -> bytes:
    """Send bytes to the guard and read until it closes."""
    with socket.create_connection(("127.0.0.1", guard.port), timeout=10) as link:
        link.sendall(text)
        answer = b""
        while block := link.recv(65536):
            answer += block
        return answer


def ask(guard, line: str, *more: str) -> bytes:
    head = [line, f"Proxy-Authorization: {guard.authorization}", *more, "", ""]
    return raw(guard, "\r\n".join(head).encode())


def guarded(judge, **limits):
    return UrlGuard(judge, **({"max_bytes": 10**6, "max_s": 30.0} | limits))


def test_a_name_that_flips_is_asked_once(site):
    asked = []

    def lying(host, port):
        asked.append(host)
        return ["93.184.215.14"] if len(asked) > 1 else ["127.0.0.1"]

    with guarded(Judge(None, resolver=lying)) as guard:
        answer = ask(guard, "GET http://flip.example/ HTTP/1.1")
    assert b"403" in answer.split(b"\r\n")[0] and asked == ["flip.example"]


def test_one_private_answer_among_public_ones_refuses(site):
    judge = Judge(None, resolver=lambda host, port: ["93.184.215.14", "10.0.0.7"])
    with pytest.raises(Vid2ContextError, match="not public"):
        judge.address("two.example", 443)


@pytest.mark.parametrize(
    "target",
    [
        "GET http://127.0.0.1/ HTTP/1.1",
        "GET http://localhost/ HTTP/1.1",
        "GET http://[::1]/ HTTP/1.1",
        "GET http://[::ffff:127.0.0.1]/ HTTP/1.1",
        "GET http://0x7f000001/ HTTP/1.1",
        "GET http://2130706433/ HTTP/1.1",
        "GET http://127.1/ HTTP/1.1",
        "GET http://169.254.169.254/latest/meta-data/ HTTP/1.1",
        "CONNECT 10.0.0.1:443 HTTP/1.1",
        "CONNECT [fd00::1]:443 HTTP/1.1",
        "CONNECT example.org:22 HTTP/1.1",
    ],
)
def test_private_targets_are_refused(target):
    with guarded(Judge(None)) as guard:
        assert ask(guard, target).startswith(b"HTTP/1.1 403")
        assert [p.code for p in guard.refusals] == ["url_refused"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET ftp://a.example/ HTTP/1.1\r\n\r\n",
        b"GET http://u:p@a.example/ HTTP/1.1\r\n\r\n",
        b"CONNECT a.example:99999 HTTP/1.1\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"x" * 70_000,
        b"\xff\xfe" * 100 + b"\r\n\r\n",
    ],
)
def test_nonsense_opens_nothing(text):
    with guarded(Judge(None)) as guard:
        with socket.create_connection(("127.0.0.1", guard.port), timeout=10) as link:
            link.sendall(text)
            link.shutdown(socket.SHUT_WR)
            try:
                answer = link.recv(65536)
            except ConnectionResetError:
                answer = b""
        assert answer == b"" or answer.startswith(b"HTTP/1.1 407")


def test_a_second_request_on_one_connection_goes_nowhere(site):
    with guarded(Judge((), door=site.door)) as guard:
        first = f"GET {site.base}/page HTTP/1.1\r\nHost: x\r\n"
        auth = f"Proxy-Authorization: {guard.authorization}\r\n"
        second = f"GET http://10.0.0.1/ HTTP/1.1\r\n{auth}\r\n"
        answer = raw(guard, (first + auth + "\r\n" + second).encode())
    assert answer.count(b"HTTP/1.1") == 1 and answer.endswith(b"tides")
    sent = site.seen[0][1]
    assert "Proxy-Authorization" not in sent and sent["Connection"] == "close"


def test_a_tunnel_carries_bytes_both_ways_and_is_counted():
    echo = socket.create_server(("127.0.0.1", 0))
    port = echo.getsockname()[1]

    def serve():
        link, _ = echo.accept()
        with link:
            link.sendall(link.recv(100).upper())

    threading.Thread(target=serve, daemon=True).start()
    with guarded(Judge((), door=Door("127.0.0.1", port))) as guard:
        link = http.client.HTTPConnection("127.0.0.1", guard.port, timeout=10)
        secret = {"Proxy-Authorization": guard.authorization}
        link.set_tunnel("127.0.0.1", port, headers=secret)
        link.connect()
        link.sock.sendall(b"tide")
        assert link.sock.recv(100) == b"TIDE"
        link.close()
        assert guard.received_bytes == 4
    echo.close()


def test_time_and_bytes_end_a_connection(site):
    site.files["/page"] = b"x" * 500_000
    site.stall_after["/page"] = 10
    started = time.monotonic()
    with guarded(Judge((), door=site.door), max_s=1.0) as guard:
        ask(guard, f"GET {site.base}/page HTTP/1.1", "Host: x")
        assert guard.exceeded.code == "download_timeout"
    assert time.monotonic() - started < 10
    with guarded(Judge((), door=site.door), max_bytes=1000) as guard:
        assert len(ask(guard, f"GET {site.base}/page HTTP/1.1", "Host: x")) < 70_000
        assert guard.exceeded.code == "download_too_large"


def test_wrong_secrets_are_refused_and_secrets_differ(site):
    with guarded(Judge(None)) as one, guarded(Judge(None)) as two:
        assert one.url != two.url
        line = f"Proxy-Authorization: {two.authorization}"
        answer = raw(one, f"GET {site.base}/page HTTP/1.1\r\n{line}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 407") and site.seen == []


def test_links_that_two_parsers_read_differently_are_refused():
    bad = ["http://a.example\\@b.example/", "http://a.example\t/", "http:///x"]
    bad += ["https://a.example:80/", "http://a.example:443/", "https://[::1/"]
    bad += ["https://a.example/" + "x" * 5000, "javascript:alert(1)", ""]
    for url in bad:
        with pytest.raises(Vid2ContextError) as caught:
            check_url(url)
        assert caught.value.code == "url_refused"


def test_special_ranges_are_not_public():
    special = ["192.0.2.1", "198.18.0.1", "203.0.113.9", "255.255.255.255"]
    special += ["2001:db8::1", "2001:0:7f00:1::", "100::1", "64:ff9b:1::1"]
    assert [a for a in special if is_public(a)] == []
