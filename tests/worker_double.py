"""A worker that speaks protocol 1, and misbehaves in the way its argument names.

With a number as its third argument it answers well, but for the picture of that
number: the pictures that any worker with the same second argument saw are counted."""

import base64
import hashlib
import json
import os
import struct
import sys
import time

WAY = sys.argv[1]
STATE = sys.argv[2] if len(sys.argv) > 2 else None  # Made by the first that breaks
AT = int(sys.argv[3]) if len(sys.argv) > 3 else None
FRAME = (160, 90)  # Only pictures of this size are counted


def say(value):
    answers.write(json.dumps(value).encode() + b"\n")
    answers.flush()


def is_first():
    if STATE is None or not os.path.exists(STATE):  # noqa: PTH110
        if STATE is not None:
            open(STATE, "w").close()  # noqa: PTH123
        return True
    return False


def places(raw, sizes):
    "Give the numbers of pictures by what they show: the first one seen is number 1."
    with open(f"{STATE}.seen", "a+") as file:  # noqa: PTH123
        file.seek(0)
        known = file.read().split()
        found, at = [], 0
        for wide, high in sizes:
            digest = hashlib.sha256(raw[at : at + 3 * wide * high]).hexdigest()
            at += 3 * wide * high
            if (wide, high) == FRAME and digest not in known:
                known.append(digest)
                file.write(f"{digest}\n")
            found.append(known.index(digest) + 1 if digest in known else 0)
    return found


def vector(angle, *, dim=3):
    row = [1.0, 0.1 * (angle % 7), 0.1 * (angle % 11)][:dim]
    length = sum(x * x for x in row) ** 0.5
    return base64.b64encode(
        struct.pack(f"<{dim}f", *(x / length for x in row))
    ).decode()


def well(asked, raw):
    "Answer as a model would, by the numbers of the pictures."
    numbers = places(raw, asked["sizes"])
    if asked["op"] == "caption":
        return [f"a plate with the number {n}" for n in numbers]
    if asked["op"] == "read":
        box = [[0, 0], [8, 0], [8, 4], [0, 4]]
        line = {"box": box, "confidence": 0.9}
        return [[{**line, "text": f"plate {n}"}] for n in numbers]
    return [vector(n) for n in numbers] or [vector(len(t)) for t in asked["texts"]]


def wrong(result):
    "Spoil the last of several answers in the way that was named."
    nan = base64.b64encode(struct.pack("<3f", float("nan"), 0, 1)).decode()
    ways = {"empty": "", "short": vector(1, dim=2), "nan": nan, "none": None}
    return [*result[:-1], ways[WAY]] if WAY in ways else result


answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
if WAY == "wrong-protocol":
    say({"hello": {"protocol": 2}})
if WAY == "never-starts":
    time.sleep(600)
if WAY == "junk-hello":
    answers.write(b"Loading model...\n")
    answers.flush()
about = {"id": "double", "version": "1", "languages": ["en"]}
say({"hello": {"protocol": 1, "provider": "double", "descriptor": about, "pid": 1}})
if WAY == "floods":
    for i in range(20_000):
        sys.stderr.write(f"warning {i}: " + "x" * 200 + "\n")
if WAY == "floods-without-lines":
    sys.stderr.write("y" * 5_000_000)
    sys.stderr.flush()
while line := sys.stdin.buffer.readline():
    asked = json.loads(line)
    if asked["op"] == "bye":
        break
    if WAY == "never-reads":
        time.sleep(600)
    raw = sys.stdin.buffer.read(asked["payload"])
    answer = {"id": asked["id"], "ok": True, "result": [len(raw)]}
    if AT is not None:
        answer["result"] = well(asked, raw)
        if AT not in places(raw, asked["sizes"]):
            say(answer)
            continue
        answer["result"] = wrong(answer["result"])
    if WAY == "prints":
        print("I am thinking")
        os.write(1, b"and writing to descriptor one\n")
    if WAY in ("dies", "dies-once") and (WAY == "dies" or is_first()):
        sys.stderr.write("Segmentation fault, surely\n")
        sys.stderr.flush()
        os._exit(139)
    if WAY == "hangs" or (WAY == "hangs-once" and is_first()):
        if os.fork() == 0:  # A child that only the death of the group ends
            time.sleep(600)
        time.sleep(600)
    if WAY == "wrong-number":
        answer["id"] = 999
    if WAY == "long-line":
        answer["result"] = "z" * 2**21
    if WAY == "no-json":
        answers.write(b"{broken\n")
        answers.flush()
    if WAY == "no-object":
        answers.write(b"[1]\n")
        answers.flush()
    if WAY == "raises":
        error = {"type": "ValueError", "message": "frame 37 is upside down"}
        answer = {"id": asked["id"], "ok": False, "error": error}
    if WAY == "reads":
        box = [[0, 0], [8, 0], [8, 4], [0, 4]]
        answer["result"] = [[{"text": "TIDE", "box": box, "confidence": 0.9}]]
    if WAY == "pid":
        answer["result"] = [os.getpid()]
    say(answer)
