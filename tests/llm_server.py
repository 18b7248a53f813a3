"Answers that providers have really given, and shapes that tests ask for."

import json

from vid2context.scripted_llm import ScriptedServer, Turn

__all__ = ["FAULTS", "GOOD", "ScriptedServer", "Turn", "claim", "said", "single"]


def said(value, **more):
    "Let the model say a JSON value."
    return Turn(json.dumps(value), **more)


def failed(status, message="", code=None, **headers):
    "Let the server refuse, as OpenAI words it."
    error = {"error": {"message": message, "type": code, "code": code}}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Turn(status=status, headers=names, body=json.dumps(error).encode())


def claim(video, second, quote, **more):
    return {
        "id": "a",
        "claim": quote.capitalize(),
        "quote": quote,
        "videoId": video,
        "startSec": second,
        "topic": "General",
    } | more


def single(*claims, topics=()):
    return said({"claims": list(claims), "topics": list(topics)})


PLAIN = '{"claims": [], "topics": []}'
GOOD = {
    "plain": Turn(PLAIN),
    "fenced": Turn(f"```json\n{PLAIN}\n```"),
    "with words around": Turn(f"Sure!\n{PLAIN}\nAnything else {{ask}}?"),
    "after thinking": Turn(f'<think>{{"claims": 1}}</think>{PLAIN}'),
    "more keys": Turn('{"claims": [], "topics": [], "mood": "good"}'),
}
FAULTS = {  # name → turn, outcome, status
    "trailing comma": (Turn('{"claims": [], "topics": [],}'), "bad-answer", 200),
    "truncated": (Turn('{"claims": [{"cl', finish_reason="length"), "bad-answer", 200),
    "cut but whole": (Turn(PLAIN, finish_reason="length"), "bad-answer", 200),
    "wrong enum": (
        single(claim("a", 0, "some words", stance="FOR")),
        "bad-answer",
        200,
    ),
    "declines in words": (Turn("I cannot help with that."), "bad-answer", 200),
    "declines by field": (
        Turn(
            body=json.dumps(
                {"choices": [{"message": {"content": None, "refusal": "No."}}]}
            ).encode()
        ),
        "bad-answer",
        200,
    ),
    "empty": (Turn(""), "bad-answer", 200),
    "a list": (Turn("[1, 2]"), "bad-answer", 200),
    "no completion": (Turn(body=b'{"choices": []}'), "bad-answer", 200),
    "html": (Turn(body=b"<html>busy</html>"), "bad-answer", 200),
    "10 MB": (Turn("x" * 10_000_000), "bad-answer", 200),
    "10 MB of error": (Turn(status=500, body=b"x" * 10_000_000), "bad-answer", 200),
    "compressed": (
        Turn(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),
        "bad-answer",
        200,
    ),
    "too many": (failed(429, "slow down"), "rate-limited", 429),
    "too many, seconds": (failed(429, "later", Retry_After="7"), "rate-limited", 429),
    "no money": (failed(429, "pay", "insufficient_quota"), "auth", 429),
    "wrong key": (failed(401, "bad key"), "auth", 401),
    "forbidden": (failed(403, "not you"), "auth", 403),
    "broken": (Turn(status=500, body=b"oops"), "unavailable", 500),
    "overloaded": (failed(529, "overloaded"), "unavailable", 529),
    "too long": (
        failed(400, "maximum context length is 8192", "context_length_exceeded"),
        "too-long",
        400,
    ),
    "too large": (Turn(status=413), "too-long", 413),
    "unknown field": (failed(400, "unknown field temperature"), "refused", 400),
    "no such model": (failed(404, "no such model"), "refused", 404),
}
