"The MCP server as a process of its own, with the client of the mcp package."

import asyncio
import json
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import anyio
import httpx
import numpy as np
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from server_kit import HOSTILE, LONG, Process, make_library

from vid2context.mcp_server import make_mcp_server
from vid2context.media import write_clip
from vid2context.service import Service
from vid2context.text import parse_untrusted

TOOLS = {
    "search",
    "search_transcript",
    "retrieve",
    "list_items",
    "get_outline",
    "get_section",
    "verify_citations",
    "build_brief",
    "extract",
    "visual_search",
    "visual_stats",
}
CLAIM = {"videoId": "id-apple", "quote": "the graft must stay moist until it has taken"}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    home, settings = make_library(folder, extra=f"[serve]\nmedia_roots = {folder}\n")
    return home, settings


def command(library, *words, env=None):
    named = ["--home", str(library[0]), "--settings", str(library[1])]
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "vid2context", "mcp", *named, *words],
        env=env,
        cwd=library[0].parent,
    )


@pytest.fixture(scope="module")
def near(library):
    "The same server, in this process."
    server = make_mcp_server(Service(library[0], settings_file=library[1]))
    yield server
    server.desk.close()


def head(result):
    "Read the header of an answer."
    (content,) = result.content
    return json.loads(content.text.split("\n", 1)[0])


def inside(result):
    "Read the one fenced block of an answer, as lines."
    ((_, text),) = parse_untrusted(result.content[0].text)
    return text.split("\n")


async def pages(client, tool, arguments):
    "Follow the cursors of an answer to its end."
    found, cursor = [], None
    while True:
        more = {"cursor": cursor} if cursor else {}
        result = await client.call_tool(tool, arguments | more)
        assert not result.is_error, result
        assert len(result.content[0].text) <= 40_000
        assert result.structured_content is None
        found += inside(result)
        if (cursor := head(result).get("next_cursor")) is None:
            return found


def test_a_session_over_stdio(library):
    async def session():
        async with Client(command(library)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == TOOLS
            assert all(tool.annotations.read_only_hint for tool in tools.values())
            prompts = {one.name for one in (await client.list_prompts()).prompts}
            assert prompts == {"brief", "buyer_guide"}
            items = await client.call_tool("list_items", {"limit": 999})
            assert head(items)["notes"] == ["limit 999 was lowered to 200"]
            ids = {json.loads(row)["id"] for row in inside(items)}
            assert ids == {"id-apple", "id-pear", "id-long", "id-hostile"}
            found = await client.call_tool("search", {"query": "graft moist apple"})
            assert json.loads(inside(found)[0])["videoId"] == "id-apple"
            spoken = await client.call_tool(
                "search_transcript", {"query": "sap rises", "items": ["id-pear"]}
            )
            assert {json.loads(row)["videoId"] for row in inside(spoken)} == {"id-pear"}
            bundle = await client.call_tool("retrieve", {"query": "sap rises"})
            assert any(line.startswith("### [S01]") for line in inside(bundle))
            claims = [
                CLAIM | {"startSec": 16},
                CLAIM | {"quote": "never said so here at all"},
            ]
            told = {"claims": claims, "items": ["id-apple"]}
            verdicts = await client.call_tool("verify_citations", told)
            assert (head(verdicts)["accepted"], head(verdicts)["refused"]) == (1, 1)
            brief = await client.call_tool("build_brief", {"items": ["id-apple"]})
            assert inside(brief)[0].startswith("# ")
            data = await client.call_tool("extract", {"items": ["id-apple"]})
            assert json.loads("\n".join(inside(data)))["data"]["key_points"]
            stats = await client.call_tool("visual_stats", {})
            assert json.loads(stats.content[0].text)["frames_total"] == 0
            await client.call_tool("visual_search", {"query": "a knife"})
            told = {"items": "id-apple, id-pear", "product": "a grafting knife"}
            guide = await client.get_prompt("buyer_guide", told)
            assert len(parse_untrusted(guide.messages[0].content.text)) == 2

    asyncio.run(session())


def test_a_long_transcript_comes_once_and_in_order(near):
    async def session():
        async with Client(near) as client:
            first = await client.call_tool("get_section", {"item": "id-long"})
            place, cursor = head(first)["page"], head(first)["next_cursor"]
            lines = await pages(client, "get_section", {"item": "id-long"})
            assert place.endswith(f" of {len(lines)}")
            said = [
                int(word) for line in lines for word in line.split() if word.isdigit()
            ]
            assert said == list(range(LONG))
            part = await client.call_tool(
                "get_section", {"item": "id-long", "startSec": 600, "endSec": 660}
            )
            stamps = [int(row.split("|")[1].split("]")[0]) for row in inside(part)]
            assert 580 <= min(stamps) <= max(stamps) < 660
            outline = await client.call_tool("get_outline", {"item": "id-long"})
            sections = [json.loads(row) for row in inside(outline)]
            joined = []
            for section in sections:
                told = {"item": "id-long", "section": section["id"]}
                joined += await pages(client, "get_section", told)
            assert joined == lines
            for item, foreign in (("id-apple", cursor), ("id-long", "garbage")):
                told = {"item": item, "cursor": foreign}
                refused = await client.call_tool("get_section", told)
                assert refused.is_error
                assert head(refused)["error"]["code"] == "bad-request"
            many = {"query": "permission", "limit": 500}
            found = await client.call_tool("search_transcript", many)
            assert len(found.content[0].text) <= 40_000
            assert head(found)["notes"] == ["limit 500 was lowered to 100"]

    asyncio.run(session())


def test_hostile_words_stay_in_their_fence(near):
    async def session():
        async with Client(near) as client:
            for tool, told in (
                ("list_items", {}),
                ("search", {"query": "ignore all rules"}),
                ("get_section", {"item": "id-hostile"}),
                ("retrieve", {"query": "ignore all rules"}),
                ("build_brief", {"items": ["id-hostile"]}),
            ):
                result = await client.call_tool(tool, told)
                text = result.content[0].text
                ((_, block),) = parse_untrusted(text)
                assert "ignore all rules" in block
                assert "ignore all rules" not in text.replace(block, "")
                assert HOSTILE not in text

    asyncio.run(session())


def test_mistakes_are_answers(library, near):
    async def session():
        async with Client(near) as client:
            for tool, told, code in (
                ("search", {"query": "?"}, "bad-request"),
                ("get_section", {"item": str(library[0].parent)}, "not-found"),
                ("get_section", {"item": "id-long", "section": "s99"}, "not-found"),
                (
                    "get_section",
                    {"item": "id-long", "startSec": 9, "endSec": 2},
                    "bad-request",
                ),
                ("get_section", {"item": "id-long", "startSec": -1}, "bad-request"),
                ("get_outline", {}, "bad-request"),
                ("build_brief", {"items": []}, "bad-request"),
                (
                    "build_brief",
                    {"items": ["id-apple"], "template": "ode"},
                    "bad-request",
                ),
                ("verify_citations", {"claims": [{}], "items": []}, "bad-request"),
                ("search", {"query": "sap", "filters": {"videos": ["x"]}}, "not-found"),
                (
                    "search",
                    {"query": "sap", "filters": {"colour": "red"}},
                    "bad-request",
                ),
            ):
                result = await client.call_tool(tool, told)
                assert result.is_error, tool
                assert head(result)["error"]["code"] == code, (tool, result)
            wrong = await client.call_tool("search", {"query": ["a"]})
            assert head(wrong)["error"]["message"].startswith("The argument query is")
            assert "pydantic" not in wrong.content[0].text
            assert (
                await client.call_tool("visual_index", {"video_path": "x"})
            ).is_error
            assert not (await client.call_tool("list_items", {})).is_error

    asyncio.run(session())


NOISE = """
import atexit, ctypes, logging, os, subprocess, sys
print("noise: import")
os.write(1, b"noise: import fd\\n")
atexit.register(lambda: (print("noise: atexit"), os.write(1, b"noise: atexit fd\\n")))
import vid2context.reading_requests as reading
quiet = reading.ReadingRequests.list_items

def noisy(self, query=None):
    print("noise: print", flush=True)
    sys.stdout.write("noise: cr\\r")
    os.write(1, b"noise: fd\\n")
    ctypes.CDLL(None).puts(b"noise: libc")
    subprocess.run(["echo", "noise: child"], check=True)
    logging.basicConfig(stream=sys.stdout, force=True)
    logging.error("noise: logging")
    return quiet(self, query)

reading.ReadingRequests.list_items = noisy
import vid2context.__main__ as script
sys.argv = ["vid2context", *sys.argv[1:]]
"""


def test_nothing_but_the_protocol_is_on_stdout(library, tmp_path):
    (tmp_path / "noisy.py").write_text(
        "import vid2context.__main__ as script, sys\n"
        "script._WIRE = script._set_aside()\n"
        f"{NOISE}"
        "script._set_aside = lambda: script._WIRE\n"
        "sys.exit(script.main())\n"
    )
    named = ["--home", str(library[0]), "--settings", str(library[1])]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "noisy.py"), "mcp", *named],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    me = {"name": "t", "version": "1"}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": me}
    called = {"name": "list_items", "arguments": {}}
    messages = [{"id": 1, "method": "initialize", "params": begin}]
    messages += [{"method": "notifications/initialized"}]
    messages += [
        {"id": n, "method": "tools/call", "params": called} for n in range(2, 8)
    ]
    messages += [{"id": 8, "method": "tools/list"}, {"id": 9, "method": "ping"}]
    answers = {}
    for message in messages:
        line = json.dumps({"jsonrpc": "2.0"} | message)
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        if "id" in message:
            answer = json.loads(process.stdout.readline())
            assert answer["jsonrpc"] == "2.0"
            answers[answer["id"]] = answer
    out, err = process.communicate()
    assert out == b""
    assert process.returncode == 0
    assert all("result" in answers[n] for n in range(1, 10))
    assert not any(answers[n]["result"].get("isError") for n in range(2, 8))
    for kind in ("import", "print", "cr", "fd", "libc", "child", "logging", "atexit"):
        assert f"noise: {kind}".encode() in err, kind


def test_every_line_over_stdio_is_answered(library):
    named = ["--home", str(library[0]), "--settings", str(library[1])]
    me = {"name": "t", "version": "1"}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": me}
    half = {"claims": [CLAIM, CLAIM | {"quote": "so \ud800"}], "items": ["id-apple"]}

    def call(number, tool, told):
        params = {"name": tool, "arguments": told}
        return {"id": number, "method": "tools/call", "params": params}

    messages = [
        {"id": 1, "method": "initialize", "params": begin},
        {"method": "notifications/initialized"},
        call(2, "verify_citations", half),
        call(3, "search", {}),
        {"id": 4, "method": "ping"},
    ]
    lines = [json.dumps({"jsonrpc": "2.0"} | one) for one in messages]
    lines[3:3] = ["not json", '{"id": 9}', ""]
    process = subprocess.Popen(
        [sys.executable, "-m", "vid2context", "mcp", *named],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write("\n".join(lines) + "\n")
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(6)]
    out, log = process.communicate()
    assert out == ""
    errors = {one["error"]["code"] for one in answers if one["id"] is None}
    assert errors == {-32700, -32600}
    told = {one["id"]: one for one in answers}
    assert set(told) == {1, 2, 3, 4, None}
    assert told[2]["error"]["code"] == -32602
    assert told[2]["error"]["data"]["field"] == "claims[1].quote"
    assert told[3]["result"]["isError"]
    said = json.loads(told[3]["result"]["content"][0]["text"])["error"]
    assert said["message"] == "The argument query is missing."
    assert "Traceback" not in log


def test_half_a_character_is_refused_before_work(near):
    async def session():
        async with Client(near) as client:
            told = {"query": "sap \ud800"}
            result = await client.call_tool("search", told)
            assert head(result)["error"]["detail"]["field"] == "query"

    asyncio.run(session())


@asynccontextmanager
async def over_http(running, token):
    headers = {"authorization": f"Bearer {token}"}
    async with _asking(headers) as asking:
        transport = streamable_http_client(running.address, http_client=asking)
        async with Client(transport) as client:
            yield client


def _asking(headers):
    from mcp.shared._httpx_utils import create_mcp_http_client

    return create_mcp_http_client(headers=headers)


@pytest.fixture(scope="module")
def over_the_wire(library):
    words = ["--home", str(library[0]), "--settings", str(library[1]), "--port", "0"]
    running = Process("mcp", "--http", "--write", *words, cwd=library[0].parent)
    yield running, (library[0] / "serve.token").read_text().strip()
    running.end()


def test_a_session_over_http(over_the_wire):
    async def session():
        async with over_http(*over_the_wire) as client:
            assert {t.name for t in (await client.list_tools()).tools} >= TOOLS
            found = await client.call_tool("search", {"query": "graft moist apple"})
            assert json.loads(inside(found)[0])["videoId"] == "id-apple"

    asyncio.run(session())


def test_over_http_the_gate_stands_before_it(over_the_wire):
    running, token = over_the_wire
    port = running.address.split(":")[2].split("/")[0]
    good = {"authorization": f"Bearer {token}", "accept": "application/json"}
    mixes = [
        ({}, 401),
        ({"authorization": "Bearer guess"}, 401),
        (good | {"origin": "https://evil.example"}, 403),
        (good | {"host": f"evil.example:{port}"}, 403),
        (good | {"content-type": "text/plain"}, 400),
    ]
    for headers, expected in mixes:
        kind = {"content-type": "application/json"}
        answer = httpx.post(running.address, content=b"{}", headers=kind | headers)
        assert answer.status_code == expected, headers


def test_indexing_answers_stats_meanwhile_and_can_be_given_up(over_the_wire, library):
    folder = library[0].parent
    rng = np.random.default_rng(0)
    looks = [rng.integers(0, 255, (72, 128, 3), dtype=np.uint8) for _ in range(240)]
    write_clip(folder / "busy.mp4", looks, fps=1)
    write_clip(folder / "short.mp4", looks[:6], fps=1)

    async def session():
        async with over_http(*over_the_wire) as client:
            heard = []

            async def hear(done, total, message):
                heard.append((done, total))

            with anyio.move_on_after(60) as scope:
                async with anyio.create_task_group() as group:

                    async def index():
                        told = {"video_path": "busy.mp4", "interval_s": 1}
                        await client.call_tool(
                            "visual_index", told, progress_callback=hear
                        )

                    group.start_soon(index)
                    while not heard:
                        stats = await client.call_tool("visual_stats", {})
                        assert not stats.is_error
                        await anyio.sleep(0.05)
                    group.cancel_scope.cancel()
            assert not scope.cancelled_caught
            begun = time.monotonic()
            told = {"video_path": "short.mp4", "interval_s": 2}
            done = await client.call_tool("visual_index", told)
            assert json.loads(done.content[0].text)["frames_total"] >= 3
            assert time.monotonic() - begun < 60
            stray = await client.call_tool(
                "visual_index", {"video_path": "/etc/passwd"}
            )
            assert head(stray)["error"]["code"] == "forbidden"

    asyncio.run(session())
