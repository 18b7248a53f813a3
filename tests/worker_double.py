"""A worker that speaks protocol 1, and misbehaves in the way its argument names."""

import json
import os
import sys
import time

WAY = sys.argv[1]
STATE = sys.argv[2] if len(sys.argv) > 2 else None  # Made by the first that breaks


def say(value):
    answers.write(json.dumps(value).encode() + b"\n")
    answers.flush()


def is_first():
    if STATE is None or not os.path.exists(STATE):  # noqa: PTH110
        if STATE is not None:
            open(STATE, "w").close()  # noqa: PTH123
        return True
    return False


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
