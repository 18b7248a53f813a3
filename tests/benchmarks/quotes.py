"Verify quotes: a thousand claims over an hour, single quotes over ten hours."

import math
import random
import statistics
import time
from collections import Counter
from pathlib import Path

from bench import machine, optional, race, show

from vid2context.citations import verify_quote
from vid2context.matching import best_anywhere
from vid2context.quote_studies import talk_from

ROOT = Path(__file__).parents[2]
TIMES = 40  # Quotes in one run
CHECKED = 10  # Quotes that the literal looks for


def ten_hours(text: str, draw: random.Random) -> str:
    "Ten hours of talk: stretches of an hour in a new order, and words of its own."
    words = text.split()
    found = []
    while len(found) < 100_000:
        at = draw.randrange(len(words) - 60)
        found += words[at : at + 60]
        found.append(f"mark{len(found)}")
    return " ".join(found[:100_000])


def claims_of(index, draw: random.Random, n: int) -> list[tuple[str, float]]:
    "70 % exact, 15 % with a tenth of the words changed, 15 % from elsewhere."
    made, words = [], [*index.words]
    for _ in range(n):
        size, kind = draw.randint(8, 20), draw.random()
        at = draw.randrange(len(words) - size)
        quote = words[at : at + size]
        if kind > 0.85:
            at = (at + len(words) // 2) % len(words)
        elif kind > 0.7:
            quote = [w if draw.random() > 0.1 else draw.choice(words) for w in quote]
        made.append((" ".join(quote), index.start_s(at)))
    return made


def hour(text: str) -> None:
    draw = random.Random(20260810)
    talk = talk_from(text)
    claims = claims_of(talk.words, draw, 1000)
    verify_quote(talk, *claims[0])
    rounds, spent = [], []
    for _ in range(5):
        began, used = time.perf_counter(), time.process_time()
        results = [verify_quote(talk, quote, at_s) for quote, at_s in claims]
        rounds.append(time.perf_counter() - began)
        spent.append(time.process_time() - used)
    accepted = sum(result["accepted"] for result in results)
    middle = statistics.median(rounds)
    print("\n## 1,000 claims over an hour, strict included\n")
    print(f"{len(talk.words.words):,} words; {accepted} accepted")
    span = f"{min(rounds):.3f}–{max(rounds):.3f}"
    print(f"median {middle:.3f} s of 5 rounds, {span}; aim 1 s")
    print(f"processor time {statistics.median(spent):.3f} s")
    print(machine())


def literal(words: list[str], quote: list[str]) -> tuple[int, int, int]:
    "Try every stretch: most hits, fewest words, smallest start."
    best = (0, 0, 0)
    for first in range(len(words)):
        left, hits = Counter(quote), 0
        for length, word in enumerate(
            words[first : first + math.ceil(1.25 * len(quote))], 1
        ):
            if left[word] > 0:
                left[word] -= 1
                hits += 1
                best = min(best, (-hits, length, first))
    return best


def fast(index, quote: list[str]):
    found = best_anywhere(index, Counter(quote), at_s=0.0)
    return found and (-found.hits, found.after - found.first, found.first)


def anywhere(text: str) -> None:
    draw = random.Random(7)
    index = talk_from(ten_hours(text, draw)).words
    words = [*index.words]
    quotes = []
    for _ in range(TIMES):
        size = draw.randint(15, 25)
        at = draw.randrange(len(words) - size)
        quote = [
            w if draw.random() > 0.1 else draw.choice(words)
            for w in words[at : at + size]
        ]
        quotes.append(quote)
    fuzz, joined = optional("rapidfuzz.fuzz"), " ".join(words)
    runners = {
        "ours, whole talk": lambda: [fast(index, quote) for quote in quotes],
        "rapidfuzz partial_ratio_alignment": None
        if fuzz is None
        else lambda: [
            fuzz.partial_ratio_alignment(" ".join(q), joined) for q in quotes
        ],
    }
    taken = race(runners, rounds=7)
    slow, spent, same = [], [], 0
    for quote in quotes[:CHECKED]:
        began, used = time.perf_counter(), time.process_time()
        found = literal(words, quote)
        slow.append(TIMES * (time.perf_counter() - began))
        spent.append(TIMES * (time.process_time() - used))
        passes = 5 * -found[0] >= 4 * len(quote)
        same += fast(index, quote) == (found if passes else None)
    assert same == CHECKED
    taken["literal, every stretch"], taken.cpu["literal, every stretch"] = slow, spent
    show(
        f"One quote of 15–25 words in {len(words):,} words",
        taken,
        per=TIMES,
        notes={"ours, whole talk": f"same stretch as the literal, {same} of {CHECKED}"},
        reach={"rapidfuzz partial_ratio_alignment": 7, "literal, every stretch": 700},
    )


def main() -> None:
    text = (ROOT / "data/runs/quotes/talk.txt").read_text()
    hour(text)
    anywhere(text)


if __name__ == "__main__":
    main()
