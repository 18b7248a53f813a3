"""The quote rule, written down word for word: every interval, nothing clever."""

import math
import unicodedata
from collections import Counter

APOSTROPHES = {
    *(0x27, 0x60, 0xB4, 0x2018, 0x2019, 0x201B, 0x2B9, 0x2BB, 0x2BC, 0x2BD, 0x2032),
    *(0xFF07, 0x55A, 0x5F3, 0xA78C),
}


def words(text):
    text = "".join(c for c in text if ord(c) not in APOSTROPHES)
    text = unicodedata.normalize("NFKD", text)
    text = unicodedata.normalize("NFKD", text.lower())
    kept = []
    for char in text:
        code, category = ord(char), unicodedata.category(char)
        order = unicodedata.combining(char)
        selector = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF
        accent = category in ("Mn", "Mc") and (
            order == 1 or 10 <= order <= 36 or order >= 200
        )
        if code in APOSTROPHES or category == "Me" or code == 0x34F:
            continue
        if selector or accent:
            continue
        if code == 0x200B:
            kept.append(" ")
        elif category == "Cf":
            continue
        else:
            kept.append(char if category[0] in "LNM" else " ")
    return unicodedata.normalize("NFC", "".join(kept)).split()


def flat(segments):
    """Words as (word, start, end), segments sorted and their ends filled in."""
    ranked = sorted(
        segments, key=lambda s: (s[0], max(s[0], s[0] if s[1] is None else s[1]))
    )
    found = []
    for k, (start, end, text) in enumerate(ranked):
        if end is None:
            end = ranked[k + 1][0] if k + 1 < len(ranked) else start
        found += [(word, start, max(start, end)) for word in words(text)]
    return found


def overlap(some, quote):
    return (Counter(some) & Counter(quote)).total()


def best(spoken, quote, inside, stop, at):
    """Most hits, fewest words, nearest start, smallest i."""
    found, said = None, [word for word, _, _ in spoken]
    longest = math.ceil(1.25 * len(quote))
    for i in inside:
        for j in range(i + 1, min(i + longest, stop + 1, len(said)) + 1):
            hits = overlap(said[i:j], quote)
            if overlap(said[i + 1 : j], quote) == hits:
                continue
            rank = (-hits, j - i, abs(spoken[i][1] - at), i, j)
            found = rank if found is None else min(found, rank)
    return found


def verdict(segments, quote_text, at):
    spoken, quote = flat(segments), words(quote_text)
    n = len(quote)
    if n == 0:
        return {"reason": "no-quote", "score": 0.0}
    if n < 4:
        return {"reason": "quote-too-short", "score": 0.0}
    inside = [
        i
        for i, (_, start, end) in enumerate(spoken)
        if start <= at + 30 and end >= at - 30
    ]
    near = best(spoken, quote, inside, inside[-1] + n if inside else 0, at)
    score = -near[0] / n if near else 0.0
    if near and 5 * -near[0] >= 4 * n:
        return {
            "reason": None,
            "score": score,
            "startSec": spoken[near[3]][1],
            "endSec": spoken[near[4] - 1][2],
            "span": [near[3], near[4]],
        }
    whole = best(spoken, quote, range(len(spoken)), len(spoken), at)
    found = -whole[0] / n if whole else 0.0
    if whole and 5 * -whole[0] >= 4 * n:
        return {
            "reason": "quote-at-other-time",
            "score": score,
            "foundAtSec": spoken[whole[3]][1],
            "found_score": found,
        }
    return {"reason": "quote-not-found", "score": score, "found_score": found}


def alignments(quote, source, marked=lambda word: False):
    """Every order-keeping alignment that leaves no marked word unpaired."""

    def grow(a, b, pairs):
        yield pairs
        for x in range(a, len(quote)):
            for y in range(b, len(source)):
                if quote[x] == source[y]:
                    yield from grow(x + 1, y + 1, [*pairs, (x, y)])

    for pairs in grow(0, 0, []):
        if not pairs:
            continue
        left, right = {x for x, _ in pairs}, {y for _, y in pairs}
        inner = range(pairs[0][1], pairs[-1][1] + 1)
        lost = any(marked(w) for x, w in enumerate(quote) if x not in left)
        added = any(marked(source[y]) for y in inner if y not in right)
        if not lost and not added:
            yield len(pairs), -len(inner)


def best_alignment(quote, source, marked=lambda word: False):
    found = max(alignments(quote, source, marked), default=None)
    return (found[0], -found[1]) if found else None
