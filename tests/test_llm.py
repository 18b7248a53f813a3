"The chain and its client, against a real server on this machine."

import json
import random
import threading
import time
from dataclasses import replace
from email.utils import formatdate
from itertools import pairwise

import pytest
from llm_server import FAULTS, GOOD, ScriptedServer, Turn

from vid2context import llm
from vid2context.asking_rungs import CONTEXT_SHARE, WAIT_MARGIN_S, Question, Run
from vid2context.chain import LONGEST_REST_S, Chain, open_chain
from vid2context.core import UsageError, Vid2ContextError
from vid2context.gathering import reader
from vid2context.llm import MAX_ANSWER_BYTES, LlmClient
from vid2context.options import Llm, Rung, Settings
from vid2context.settings import load_settings, set_option
from vid2context.templates import SINGLE_ANSWER

ASK = [{"role": "user", "content": "Hello"}]
NOON = 1_800_000_000.0


class Hours:
    "A clock that moves when somebody sleeps."

    def __init__(self):
        self.now, self.slept = NOON, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def rung(name, server, **more):
    facts = {"kind": "keyless", "model": "m", "context_tokens": 32_000} | more
    return Rung(name, base_url=server.base_url, **facts)


def run_of(*rungs, hours=None, waits=3, environ=None, policy="free-first", **more):
    hours = hours or Hours()
    options = more.pop("options", Llm())
    extractive = more.pop("extractive", False)
    chain = Chain(
        rungs,
        options=options,
        extractive=extractive,
        clock=lambda: hours.now,
        sleep=hours.sleep,
        environ=environ or {},
    )
    return Run(chain, policy, waits, **more)


def question(**more):
    return replace(Question("single", ASK, 10, reader(SINGLE_ANSWER)), **more)


def outcomes(run):
    return [(a.rung, a.outcome) for a in run.attempts]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_answer_is_read(name):
    with ScriptedServer([GOOD[name]]) as server:
        run = run_of(rung("a", server))
        answer = run.ask(question())
    assert (answer.rung, answer.value["claims"]) == ("a", [])
    assert run.attempts[0].outcome == "ok"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_becomes_its_outcome_and_the_next_rung_answers(name):
    turn, outcome, status = FAULTS[name]
    with ScriptedServer([turn]) as bad, ScriptedServer([GOOD["plain"]]) as good:
        first, second = rung("a", bad), rung("b", good, context_tokens=64_000)
        run = run_of(first, second)
        assert run.ask(question()).rung == "b"
    assert outcomes(run) == [("a", outcome), ("b", "ok")]
    assert run.attempts[0].status == status
    assert len(run.attempts[0].error) <= 250


def test_no_redirect_is_followed_and_nothing_reaches_its_target():
    with ScriptedServer([GOOD["plain"]]) as target:
        away = {"Location": f"{target.base_url}/chat/completions"}
        for status in (301, 302, 303, 307, 308):
            with ScriptedServer([Turn(status=status, headers=away)]) as server:
                run = run_of(rung("a", server))
                with pytest.raises(Vid2ContextError) as caught:
                    run.ask(question())
            assert caught.value.code == "upstream"
            assert outcomes(run) == [("a", "refused")]
    assert target.requests == []


def test_an_answer_of_the_largest_size_is_read_and_one_byte_more_is_not():
    around = len(Turn("").payload())
    room = MAX_ANSWER_BYTES - around
    with ScriptedServer([Turn("x" * room), Turn("x" * (room + 1))]) as server:
        client = LlmClient(rung("a", server))
        assert client.ask(ASK, max_tokens=9).outcome == "ok"
        assert client.ask(ASK, max_tokens=9).outcome == "bad-answer"


def test_silence_and_drips_end_at_the_time_limit():
    with ScriptedServer([Turn("late", delay_s=30)]) as server:
        client = LlmClient(rung("a", server), timeout_s=1)
        began = time.monotonic()
        assert client.ask(ASK, max_tokens=9).outcome == "unavailable"
    assert time.monotonic() - began < 20


def test_a_cancelled_call_stops_while_the_server_is_silent():
    with ScriptedServer([Turn("late", delay_s=60)]) as server:
        stop = threading.Event()
        threading.Timer(0.3, stop.set).start()
        run = run_of(rung("a", server), cancel=stop.is_set)
        began = time.monotonic()
        with pytest.raises(Vid2ContextError) as caught:
            run.ask(question())
    assert caught.value.code == "cancelled"
    assert time.monotonic() - began < 30
    assert len(server.requests) == 1


def test_a_cancelled_wait_stops_within_a_second_of_it():
    hours, asked = Hours(), []

    def cancel():
        asked.append(hours.now)
        return hours.now >= NOON + 3

    with ScriptedServer([FAULTS["too many"][0]]) as server:
        run = run_of(rung("a", server), hours=hours, cancel=cancel)
        with pytest.raises(Vid2ContextError, match="Cancelled"):
            run.ask(question())
    assert hours.now == NOON + 3
    assert max(b - a for a, b in pairwise(asked)) <= 1


def test_retry_after_in_seconds_as_a_date_and_absent():
    date = formatdate(NOON + 30, usegmt=True)
    waits = {"7": 7, date: 30, None: 60, "soon": 60}
    for value, rest_s in waits.items():
        headers = {} if value is None else {"Retry-After": value}
        busy = Turn(status=429, headers=headers)
        hours = Hours()
        with ScriptedServer([busy, GOOD["plain"]]) as server:
            run = run_of(rung("a", server), hours=hours)
            assert run.ask(question()).rung == "a"
        assert hours.now - NOON == rest_s + WAIT_MARGIN_S, value
        assert max(hours.slept) <= 1.0


def test_too_long_a_rest_is_off_for_the_run():
    busy = Turn(status=429, headers={"Retry-After": str(int(LONGEST_REST_S) + 1)})
    hours = Hours()
    with ScriptedServer([busy, GOOD["plain"]]) as server:
        run = run_of(rung("a", server), hours=hours)
        for _ in range(2):
            with pytest.raises(Vid2ContextError) as caught:
                run.ask(question())
            assert (caught.value.code, caught.value.retryable) == ("rate-limited", True)
        assert (len(server.requests), hours.slept) == (1, [])


def test_a_call_waits_no_more_often_than_it_may():
    with ScriptedServer([FAULTS["too many"][0]]) as server:
        run = run_of(rung("a", server), waits=2)
        with pytest.raises(Vid2ContextError) as caught:
            run.ask(question())
        assert caught.value.code == "rate-limited"
        assert (run.waits, len(server.requests)) == (2, 3)
        with pytest.raises(Vid2ContextError):
            run.ask(question())
        assert run.waits == 2


def test_progress_says_until_when_it_waits():
    told = []
    busy = Turn(status=429, headers={"Retry-After": "2"})
    with ScriptedServer([busy, GOOD["plain"]]) as server:
        run = run_of(rung("a", server), progress=lambda *facts: told.append(facts))
        run.tell("single", 0, 1)
        run.ask(question())
    times = [at for _, _, _, at in told]
    assert times[0] is None and times[-1] is None
    assert {at for at in times if at} == {NOON + 2 + WAIT_MARGIN_S}


@pytest.mark.parametrize(
    ("turns", "code"),
    [
        (["too many"], "rate-limited"),
        (["wrong key"], "auth"),
        (["wrong key", "forbidden"], "auth"),
        (["wrong key", "empty"], "upstream"),
        (["broken"], "upstream"),
        (["no money", "too many"], "rate-limited"),
    ],
)
def test_the_error_says_what_was_wrong(turns, code):
    servers = [ScriptedServer([FAULTS[name][0]]) for name in turns]
    try:
        for server in servers:
            server.__enter__()
        rungs = [rung(str(n), server) for n, server in enumerate(servers)]
        run = run_of(*rungs, waits=0)
        with pytest.raises(Vid2ContextError) as caught:
            run.ask(question())
    finally:
        for server in servers:
            server.__exit__(None, None, None)
    assert caught.value.code == code


def test_nobody_to_ask_is_unavailable_and_names_the_remedy():
    run = run_of(extractive=True)
    with pytest.raises(Vid2ContextError, match="name a rung") as caught:
        run.ask(question(step="reduce:1"))
    assert caught.value.code == "unavailable"
    keyed = Rung("k", "paid", "https://m.example/v1", "m", api_key_env="NO_KEY")
    run = run_of(keyed)
    with pytest.raises(Vid2ContextError, match="NO_KEY") as caught:
        run.ask(question())
    assert caught.value.code == "unavailable"


def test_a_prompt_too_long_goes_only_to_a_larger_context():
    with (
        ScriptedServer([FAULTS["too long"][0]]) as a,
        ScriptedServer([GOOD["plain"]]) as b,
        ScriptedServer([GOOD["plain"]]) as c,
    ):
        rungs = [rung("a", a), rung("b", b), rung("c", c, context_tokens=64_000)]
        run = run_of(*rungs)
        assert run.ask(question()).rung == "c"
        assert b.requests == []
    assert outcomes(run) == [("a", "too-long"), ("b", "skipped"), ("c", "ok")]


def test_a_key_goes_only_to_its_own_rung():
    with (
        ScriptedServer([FAULTS["broken"][0]]) as a,
        ScriptedServer([FAULTS["broken"][0]]) as b,
        ScriptedServer([GOOD["plain"]]) as c,
    ):
        rungs = [
            rung("a", a, kind="free-key", api_key_env="KEY_A"),
            rung("b", b, kind="free-key", api_key_env="KEY_B"),
            rung("c", c),
        ]
        run = run_of(*rungs, environ={"KEY_A": "aaa-1", "KEY_B": "bbb-2"})
        assert run.ask(question()).rung == "c"
        sent = [json.dumps(s.requests[0]["headers"]) for s in (a, b, c)]
    assert ["aaa-1" in s for s in sent] == [True, False, False]
    assert ["bbb-2" in s for s in sent] == [False, True, False]
    assert "authorization" not in sent[2]


def test_no_key_is_kept_in_attempts_errors_or_reprs():
    leak = Turn(status=400, body=b'{"error": {"message": "key sk-secret-9 unknown"}}')
    with ScriptedServer([leak]) as server:
        one = rung("a", server, kind="free-key", api_key_env="K")
        run = run_of(one, environ={"K": "sk-secret-9"})
        with pytest.raises(Vid2ContextError) as caught:
            run.ask(question())
        sent = server.requests[0]["headers"]["authorization"]
    assert sent == "Bearer sk-secret-9"
    kept = [str(caught.value), repr(run.attempts), repr(one), repr(run.chain.rungs)]
    assert not any("sk-secret-9" in text for text in kept)


@pytest.mark.parametrize(
    "url",
    [
        "http://models.example/v1",
        "http://127.0.0.1.example/v1",
        "http://0.0.0.0/v1",
        "http://[::ffff:8.8.8.8]/v1",
        "http://user@127.0.0.1/v1",
        "ftp://127.0.0.1/v1",
        "//127.0.0.1/v1",
        "http://",
        "http://[::1",
        "",
    ],
)
def test_an_unsafe_address_is_refused_before_anything_is_sent(url):
    with pytest.raises(UsageError) as caught:
        LlmClient(Rung("a", base_url=url, model="m"))
    assert caught.value.code == "invalid_setting"


def test_a_found_settings_file_opens_no_network(tmp_path, monkeypatch):
    with ScriptedServer([GOOD["plain"]]) as server:
        planted = (
            "[vid2context]\n[llm]\nrungs = evil\npolicy = quality\n"
            f"[llm.evil]\nbase_url = {server.base_url}\nmodel = m\n"
            "kind = free-key\napi_key_env = HOME\n"
        )
        (tmp_path / "settings.ini").write_text(planted)
        found = load_settings(start=tmp_path, environ={})
        named = load_settings(tmp_path / "settings.ini", environ={})
        assert (found.rungs, found.llm) == ((), Llm())
        assert len(found.notices) == 6
        assert open_chain(found).rungs == ()
        assert [r.name for r in open_chain(named).rungs] == ["evil"]
        assert server.requests == []


def test_rungs_by_variables_and_by_arguments():
    environ = {
        "VID2CONTEXT_LLM_RUNGS": "near, extractive",
        "VID2CONTEXT_LLM_NEAR_BASE_URL": "http://127.0.0.1:1/v1",
        "VID2CONTEXT_LLM_NEAR_CONTEXT_TOKENS": "4096",
    }
    overrides = {"llm.near.model": "m", "llm.policy": "local"}
    found = load_settings(environ=environ, overrides=overrides)
    (near,) = open_chain(found).rungs
    assert (near.context_tokens, near.model, found.llm.policy) == (4096, "m", "local")
    with pytest.raises(UsageError, match="kind"):
        set_option(Settings(), "llm.near", "kind", "cheap")


def test_a_local_rung_is_looked_for_once_and_not_asked_when_it_is_down():
    with ScriptedServer([GOOD["plain"]], has_models=False) as down:
        run = run_of(rung("a", down, kind="local"))
        for _ in range(2):
            with pytest.raises(Vid2ContextError) as caught:
                run.ask(question())
        assert caught.value.code == "unavailable"
        assert down.requests == []
    assert [a.outcome for a in run.attempts] == ["skipped", "skipped"]


def test_the_sdk_is_asked_for_by_name_when_it_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(Vid2ContextError, match=r"\[llm\]"):
        llm._sdk()


def test_invariants_of_the_chain_in_random_weather():
    "No request to a rung that cools, is off or too small; waits stay in bounds."
    draw = random.Random(20260810)
    names = [*FAULTS]
    names = [n for n in names if not n.startswith("10 MB")]
    for _ in range(40):
        turns = {
            name: [
                GOOD["plain"] if draw.random() < 0.3 else FAULTS[draw.choice(names)][0]
                for _ in range(6)
            ]
            for name in "abc"
        }
        servers = {name: ScriptedServer(script) for name, script in turns.items()}
        hours = Hours()
        try:
            for server in servers.values():
                server.__enter__()
            rungs = [
                rung(
                    name,
                    server,
                    context_tokens=draw.choice([4_000, 8_000, 64_000]),
                    kind=draw.choice(["keyless", "paid", "free-key"]),
                    api_key_env=draw.choice(["KEY", "NONE"]),
                    quality=draw.randrange(100),
                )
                for name, server in servers.items()
            ]
            policy = draw.choice(["free-first", "free", "quality"])
            waits = draw.randrange(3)
            run = run_of(
                *rungs, hours=hours, waits=waits, environ={"KEY": "k"}, policy=policy
            )
            for n in range(4):
                tokens = draw.choice([10, 3_000, 20_000])
                step = f"map:v:{n}"
                try:
                    run.ask(question(step=step, tokens=tokens))
                except Vid2ContextError as error:
                    assert error.code in (
                        "rate-limited",
                        "auth",
                        "upstream",
                        "unavailable",
                    )
                fits = {
                    r.name: tokens + 4000 <= CONTEXT_SHARE * r.context_tokens
                    for r in rungs
                }
                for attempt in run.attempts:
                    if attempt.step == step and attempt.outcome != "skipped":
                        assert fits[attempt.rung]
        finally:
            for server in servers.values():
                server.__exit__(None, None, None)
        assert run.waits <= waits
        check_manners(run, rungs, servers, policy)


def check_manners(run, rungs, servers, policy):
    "Compare what was sent with what the attempts say."
    sent = {name: len(server.requests) for name, server in servers.items()}
    noted = {name: 0 for name in servers}
    off = set()
    for attempt in run.attempts:
        if attempt.outcome == "skipped":
            continue
        assert attempt.rung not in off
        noted[attempt.rung] += 1
        if attempt.outcome == "auth":
            off.add(attempt.rung)
    assert sent == noted
    for one in rungs:
        if one.kind == "paid" and policy == "free":
            assert sent[one.name] == 0
        if one.kind != "keyless" and one.api_key_env == "NONE":
            assert sent[one.name] == 0
