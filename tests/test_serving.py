"The web server as a process of its own, asked over real sockets."

import itertools
import json
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given
from hypothesis import settings as fuzz
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    positive_data_acceptance,
)
from server_kit import HOSTILE, client, follow, make_library, serve

from vid2context.admission import Admission, own_names
from vid2context.options import Serve
from vid2context.scripted_llm import ScriptedServer, Turn
from vid2context.service import Service
from vid2context.web import make_app

calm = fuzz(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
CLAIM = {"videoId": "id-apple", "quote": "the graft must stay moist until it has taken"}
CLAIM |= {"startSec": 16}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return make_library(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def server(library):
    with serve(*library, "--workers", "1") as (running, token):
        yield running, token


@pytest.fixture(scope="module")
def ask(server):
    with client(*server) as opened:
        yield opened


def code_of(answer):
    return answer.status_code, answer.json()["error"]["code"]


def test_it_binds_loopback_and_keeps_its_token_to_its_owner(server, library):
    running, token = server
    host, port = running.address.removeprefix("http://").split(":")
    assert host == "127.0.0.1"
    listening = Path("/proc/net/tcp").read_text().split("\n")[1:]
    ours = [row.split()[1] for row in listening if f":{int(port):04X} " in row]
    assert all(address.startswith("0100007F") for address in ours)
    assert ours
    for name in ("serve.token", "jobs.sqlite"):
        assert stat.S_IMODE((library[0] / name).stat().st_mode) == 0o600
    assert len(token) >= 32
    told = "".join(running.log)
    assert f"the token lies in {library[0] / 'serve.token'}" in told
    assert token not in told


def test_every_mix_of_host_origin_and_token_is_judged(server):
    running, token = server
    port = running.address.rsplit(":", 1)[1]
    own = f"127.0.0.1:{port}"
    hosts = {own: True, f"localhost:{port}": True, "127.0.0.1": False}
    hosts |= {f"evil.example:{port}": False}
    origins = {None: True, f"http://{own}": True, "https://evil.example": False}
    origins |= {"null": False, f"https://{own}": False}
    tokens = {f"Bearer {token}": True, f"Bearer {token}x": False, None: False}
    tokens |= {f"Basic {token}": False, f"bearer {token}": True, token: False}
    with httpx.Client(base_url=running.address, timeout=120) as plain:
        for host, origin, told in itertools.product(hosts, origins, tokens):
            named = {"host": host, "origin": origin, "authorization": told}
            headers = {k: v for k, v in named.items() if v is not None}
            answer = plain.get("/api/v1/health", headers=headers)
            at_home = hosts[host] and origins[origin]
            expected = 403 if not at_home else 200 if tokens[told] else 401
            assert answer.status_code == expected, headers
            assert "access-control-allow-origin" not in answer.headers
            if told is None:
                page = plain.get("/", headers=headers)
                assert page.status_code == (200 if at_home else 403)


def test_the_token_never_counts_in_an_address(server):
    running, token = server
    answer = httpx.get(f"{running.address}/api/v1/health?token={token}")
    assert code_of(answer) == (401, "auth")
    assert token not in answer.text


def test_forms_huge_and_broken_bodies_are_refused(ask):
    form = ask.post("/api/v1/retrieve", data={"query": "sap"})
    huge = ask.post("/api/v1/retrieve", json={"query": "a" * (2**20 + 1)})
    text = ask.post("/api/v1/retrieve", content=b'{"query": "sap"}')
    kind = {"content-type": "application/json"}
    broken = ask.post("/api/v1/retrieve", content=b'{"query": ', headers=kind)
    nested = ask.post("/api/v1/verify", content=b"[" * 90_000, headers=kind)
    assert [code_of(a) for a in (form, text, broken, nested)] == [
        (400, "bad-request")
    ] * 4
    chunks = (b"a" * 65536 for _ in range(20))
    streamed = ask.post("/api/v1/retrieve", content=chunks, headers=kind)
    for answer in (huge, streamed):
        assert code_of(answer) == (413, "bad-request")
        told = answer.json()["error"]["detail"]
        assert told == {"code": "body_too_large", "field": "body"}
    assert ask.get("/api/v1/health").status_code == 200


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    caps = "[serve]\nmax_requests = 4\nthreads = 1\nbody_timeout_s = 0.3\n"
    named = make_library(tmp_path_factory.mktemp("tight"), extra=caps)
    with serve(*named, "--workers", "0") as (running, token):
        yield running, token


def test_a_body_that_never_comes_is_given_up(tight):
    running, token = tight
    host, port = running.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        head = f"POST /api/v1/verify HTTP/1.1\r\nHost: {host}:{port}\r\n"
        head += f"Authorization: Bearer {token}\r\nContent-Length: 99\r\n"
        slow.sendall(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
        assert b"did not arrive in 0.3 s" in slow.makefile("rb").read()


def test_too_much_at_once_is_refused_and_nothing_breaks(tight):
    with client(*tight) as asking, ThreadPoolExecutor(24) as pool:
        paths = ["/api/v1/search?q=sentence+permission"] * 120
        codes = [a.status_code for a in pool.map(asking.get, paths)]
        assert set(codes) == {200, 429}
        assert asking.get("/api/v1/health").status_code == 200


def test_without_workers_a_brief_is_made_at_once(tight):
    with client(*tight) as asking:
        answer = asking.post("/api/v1/briefs", json={"items": ["id-apple"]})
        assert (answer.status_code, answer.json()["template"]) == (200, "brief")
        assert asking.get("/api/v1/jobs/7").status_code == 404


def test_search_gives_moments_with_pictures_and_links(ask):
    found = ask.get("/api/v1/search", params={"q": "graft moist apple", "top_k": 3})
    (best, *_) = found.json()["moments"]
    assert best["video_id"] == "id-apple"
    assert best["link"].startswith("https://example.org/id-apple")
    picture = ask.get(best["thumb_url"])
    assert picture.headers["content-type"] == "image/jpeg"
    assert picture.content[:2] == b"\xff\xd8"
    assert str(Path.cwd()) not in found.text
    filtered = {"q": "graft", "video": ["id-pear"], "unit_type": "transcript_window"}
    only = ask.get("/api/v1/search", params=filtered).json()["moments"]
    assert {moment["video_id"] for moment in only} == {"id-pear"}


def test_mistakes_are_told_apart(ask):
    asked = {
        "search?q=%3F": (400, "bad-request"),
        "search?q=sap&video=nothing": (404, "not-found"),
        "search?q=sap&top_k=0": (400, "bad-request"),
        "search?q=sap&between=9-1": (400, "bad-request"),
        "search?q=sap&unit_type=poem": (400, "bad-request"),
        "search?q=sap&videos=id-pear": (400, "bad-request"),
        "health?verbose=1": (400, "bad-request"),
        f"search?q={'a' * 1001}": (400, "bad-request"),
        "items?cursor=AAAA": (400, "bad-request"),
        "thumbs/id-apple/99999999999999999999": (400, "bad-request"),
        "thumbs/..%2F..%2Fetc%2Fpasswd/0": (404, "not-found"),
        "thumbs/id-hostile/0": (404, "not-found"),
        "jobs/7": (404, "not-found"),
        "nothing": (404, "not-found"),
    }
    told = {path: code_of(ask.get(f"/api/v1/{path}")) for path in asked}
    assert told == asked
    library_code = ask.get("/api/v1/search", params={"q": "?"}).json()["error"]
    assert library_code["detail"]["code"] == "invalid_query"


def test_a_method_that_a_path_lacks_is_told_the_ones_it_has(ask):
    tried = {
        ("PUT", "/"): "GET, HEAD",
        ("POST", "/api/v1/search"): "GET",
        ("DELETE", "/api/v1/search"): "GET",
        ("GET", "/api/v1/retrieve"): "POST",
        ("PATCH", "/api/v1/jobs/7"): "DELETE, GET",
    }
    for (method, path), allowed in tried.items():
        answer = ask.request(method, path)
        assert code_of(answer) == (405, "bad-request"), (method, path)
        assert answer.headers["allow"] == allowed
        assert answer.json()["error"]["detail"]["code"] == "method_not_allowed"
    assert code_of(ask.put("/nothing", json={})) == (404, "not-found")


def test_a_bundle_and_verdicts_over_http(ask):
    body = {"query": "sap rises", "depth": "focused", "videos": ["id-pear"]}
    bundle = ask.post("/api/v1/retrieve", json=body).json()
    assert bundle["result"]["request"]["videos"] == ["id-pear"]
    assert bundle["context_md"].count("\n### [S01]") == 1
    claims = [CLAIM, CLAIM | {"quote": "the graft may dry out after a day or two"}]
    sent = {"claims": claims, "items": ["id-apple"]}
    verdict = ask.post("/api/v1/verify", json=sent).json()
    assert verdict["counts"] == {"accepted": 1, "refused": 1}
    own = {
        "id": "x",
        "title": "X",
        "segments": [{"start_s": 0, "text": "one two three four five"}],
    }
    claim = {"videoId": "x", "quote": "one two three four five", "startSec": 0}
    again = ask.post("/api/v1/verify", json={"claims": [claim], "contexts": [own]})
    assert again.status_code == 200
    lost = ask.post("/api/v1/verify", json=sent | {"items": ["/etc"]})
    assert code_of(lost) == (404, "not-found")


def test_half_a_character_is_refused_and_named(ask, server):
    quote = CLAIM | {"quote": "so \ud800"}
    bodies = {
        "verify": ({"claims": [CLAIM, quote]}, "claims[1].quote"),
        "retrieve": ({"query": "sap \udfff"}, "query"),
        "briefs": ({"items": ["id-apple"], "question": "\ud800"}, "question"),
        "extract": ({"items": ["id-apple"], "schema": {"\ud800": 1}}, "schema"),
    }
    for path, (body, field) in bodies.items():
        answer = ask.post(
            f"/api/v1/{path}",
            content=json.dumps(body),
            headers={"content-type": "application/json"},
        )
        assert code_of(answer) == (400, "bad-request"), path
        assert answer.json()["error"]["detail"]["field"] == field
    assert not [line for line in server[0].log if "Traceback" in line]


def test_items_come_in_pages(ask):
    found, cursor = [], None
    while True:
        asked = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = ask.get("/api/v1/items", params=asked).json()
        found += [item["id"] for item in page["items"]]
        if not (cursor := page.get("next")):
            break
    assert sorted(found) == ["id-apple", "id-hostile", "id-long", "id-pear"]
    assert len(found) == 4


def test_a_brief_becomes_a_job_that_can_be_followed(ask):
    asked = {"items": ["id-apple", "id-pear"], "question": "when does the sap rise"}
    answer = ask.post("/api/v1/briefs", json=asked)
    job = answer.json()
    assert (answer.status_code, job["state"], job["kind"]) == (202, "queued", "brief")
    assert answer.headers["location"] == f"/api/v1/jobs/{job['id']}"
    events = follow(ask, job["id"])
    assert events[-1]["state"] == "done"
    done = ask.get(f"/api/v1/jobs/{job['id']}").json()
    assert done["result"]["topics"]
    assert done["result"]["rungs"][0]["rung"] == "extractive"
    assert ask.delete(f"/api/v1/jobs/{job['id']}").json()["state"] == "done"


def test_nothing_is_queued_on_a_bad_body(ask, library):
    bodies = [
        {},
        {"items": []},
        {"items": ["id-apple"], "template": "ode"},
        {"items": ["id-apple"], "policy": "cheap"},
        {"items": ["id-apple"], "max_chunk_tokens": 1},
        {"items": ["nothing"]},
        {"items": [str(library[0])]},
        {"items": ["id-apple"], "contexts": [{"id": "x"}]},
    ]
    codes = [ask.post("/api/v1/briefs", json=body).status_code for body in bodies]
    assert codes == [400, 400, 400, 400, 400, 404, 404, 400]
    both = {"items": ["id-apple"], "template": "summary"}
    both |= {"schema": {"type": "object", "properties": {}}}
    bad = [both, {"items": ["id-apple"], "schema": {"$ref": "#/x"}}]
    refused = [ask.post("/api/v1/extract", json=body) for body in bad]
    assert [code_of(answer) for answer in refused] == [(400, "bad-request")] * 2


RUNG = """[llm]
rungs = local, extractive
[llm.local]
kind = local
base_url = {url}
model = scripted
context_tokens = 8192
"""
BRIEF = {"items": ["id-apple"], "question": "what does the graft need"}


class Jobs:
    "Ask for briefs and look at them."

    def __init__(self, ask):
        self.ask = ask

    def post(self, body):
        return self.ask.post("/api/v1/briefs", json=body).json()["id"]

    def state(self, job):
        return self.ask.get(f"/api/v1/jobs/{job}").json()["state"]

    def cancel(self, job):
        return self.ask.delete(f"/api/v1/jobs/{job}").json()["state"]


@contextmanager
def served(home, settings):
    with serve(home, settings) as (running, token), client(running, token) as asking:
        yield running, Jobs(asking)


def until(what, limit_s=120):
    "Wait for something, for as long as a loaded machine may need."
    end = time.monotonic() + limit_s
    while not (found := what()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def test_jobs_survive_a_killed_server_and_stop_half_way(tmp_path):
    thinking = threading.Event()

    def think(request):
        thinking.set()
        return Turn("{}", delay_s=600)

    with ScriptedServer(think) as model:
        home, settings = make_library(tmp_path, extra=RUNG.format(url=model.base_url))
        with served(home, settings) as (running, jobs):
            bodies = [BRIEF | {"question": f"graft {n}"} for n in range(4)]
            first, second, third, fourth = (jobs.post(body) for body in bodies)
            assert thinking.wait(120)
            assert jobs.state(first) == "running"
            jobs.cancel(first)
            until(lambda: jobs.state(first) == "cancelled")
            assert jobs.cancel(third) == "cancelled"
            until(lambda: jobs.state(second) == "running")
            running.end(signal.SIGKILL)
    text = settings.read_text().replace("local, extractive", "extractive")
    settings.write_text(text)
    with served(home, settings) as (running, jobs):
        until(lambda: jobs.state(fourth) == "done")
        assert jobs.state(first) == jobs.state(third) == "cancelled"
        assert jobs.state(second) in ("running", "waiting", "done")
        assert running.end(signal.SIGTERM) != 0


def has_ended(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def test_a_killed_server_takes_its_worker_with_it(library):
    with serve(*library) as (running, _):
        children = Path(f"/proc/{running.process.pid}/task").glob("*/children")
        (worker,) = {int(p) for c in children for p in c.read_text().split()}
        running.end(signal.SIGKILL)
        until(lambda: has_ended(worker))


def test_other_machines_are_not_served_by_accident(library):
    home, settings = library
    named = ["--home", str(home), "--settings", str(settings), "--host", "0.0.0.0"]
    command = [sys.executable, "-m", "vid2context", "serve", *named]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "open to other machines" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_found_settings_file_opens_nothing(tmp_path, monkeypatch):
    planted = "[serve]\nhosts = evil.example\norigins = https://evil.example\n"
    text = f"[vid2context]\nversion = 1\n{planted}"
    (tmp_path / "settings.ini").write_text(text)
    monkeypatch.chdir(tmp_path)
    service = Service(tmp_path / "library")
    assert service.settings.serve.hosts == ()
    assert any("hosts was left out" in notice for notice in service.notices)


def test_ctrl_c_ends_it_without_a_traceback(library):
    with serve(*library) as (running, _):
        assert running.end(signal.SIGINT) == 130
        running.drained.join(30)
    assert running.log[-1] == "stopped\n"
    assert not {"Traceback", "error"} & set(re.findall(r"\w+", "".join(running.log)))


def test_hostile_titles_stay_data(ask):
    found = ask.get("/api/v1/search", params={"q": "ignore all rules"}).json()
    assert HOSTILE in {m["video_title"] for m in found["moments"]}
    page = ask.get("/")
    assert "img src=x" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    head = ask.head("/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == page.headers["content-length"]


def test_the_description_holds_under_fuzz(library):
    home, settings = library
    app = make_app(lambda: Service(home, settings_file=settings), threads=1)
    names, caps = own_names("127.0.0.1", 1, settings=Serve()), Serve(rate=10**6)
    gate = Admission(app, token="t" * 32, names=names, settings=caps)
    headers = {"host": "127.0.0.1:1", "authorization": f"Bearer {'t' * 32}"}
    schema = schemathesis.openapi.from_asgi(
        "/api/v1/openapi.json", gate, headers=headers
    )
    told = schema.raw_schema
    assert set(told["components"]["securitySchemes"]) == {"token"}
    for path, routes in told["paths"].items():
        for method, route in routes.items():
            assert route["description"], (path, method)
            body = route.get("requestBody", {}).get("content", {})
            assert not body or body["application/json"]["examples"], (path, method)
    elsewhere = [ignored_auth, positive_data_acceptance]
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @calm
        @given(case=operation.as_strategy())
        def fuzzed(case):
            case.call_and_validate(headers=headers, excluded_checks=elsewhere)

        fuzzed()
        tried += 1
    assert tried == 11
