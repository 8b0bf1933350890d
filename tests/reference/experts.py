"""The experts' view by its definitions, one case at a time."""

import math

from scipy.stats import t as student


def joined(stratum, case):
    """Join strata with fewer than two answers, unless complete, with the next or the last but one.

    Stratum 0, the flagged cases, stays apart.
    """
    numbers = sorted(set(stratum) - {0})
    for place, h in enumerate(numbers):
        answered = sum(stratum[i] == h for i in case)
        if answered < min(2, list(stratum).count(h)) and len(numbers) > 1:
            place = min(place, len(numbers) - 2)
            into, gone = numbers[place : place + 2]
            return joined([into if one == gone else one for one in stratum], case)
    return stratum


def value(predicted, stratum, case, answer):
    """Return mean(CF) + Σ W_h · mean of (E - CF) over the answered cases of stratum h."""
    n = len(predicted)
    stratum = joined(stratum, case)
    total = sum(predicted) / n
    for h in sorted(set(stratum)):
        found = [e - predicted[i] for i, e in zip(case, answer, strict=True) if stratum[i] == h]
        total += list(stratum).count(h) / n * sum(found) / len(found)
    return total


def fixed(predicted, stratum, case, answer, confidence=0.95):
    """Return the fixed interval where every stratum has enough answers, not cut off."""
    n = len(predicted)
    variance = below = 0.0
    for h in sorted(set(stratum)):
        found = [e - predicted[i] for i, e in zip(case, answer, strict=True) if stratum[i] == h]
        size, m = list(stratum).count(h), len(found)
        if m == size:
            continue
        mean = sum(found) / m
        spread = sum((x - mean) ** 2 for x in found) / (m - 1)
        part = (size / n) ** 2 * (1 - m / size) * spread / m
        variance += part
        below += part**2 / (m - 1)
    center = value(predicted, stratum, case, answer)
    if variance == 0:
        return center, center
    half = student.ppf((1 + confidence) / 2, variance**2 / below) * math.sqrt(variance)
    return center - half, center + half


class Game:
    """Bets on the next value, one at a time, for one belief about the means of strata.

    `strata` are (size, planned, least, most) each. After `see`, `capital` is what a gambler who
    started with 1 has; nothing about a value is used before it is seen.
    """

    def __init__(self, strata, means, threshold, *, largest, hedge, early):
        self.strata, self.means, self.threshold = strata, means, threshold
        self.largest, self.hedge, self.early = largest, hedge, early
        self.least = min(least for _, _, least, _ in strata)
        self.most = max(most for _, _, _, most in strata)
        self.seen = [[] for _ in strata]
        self.total = (self.least + self.most) / 2  # of a value in the middle and those seen
        self.squares = ((self.most - self.least) / 4) ** 2
        self.number = 1
        self.larger = [1.0 for _ in strata]
        self.smaller = [1.0 for _ in strata]

    def stake(self, h):
        size, planned, _, _ = self.strata[h]
        sampled = [s for s in self.strata if s[1] < s[0]] or self.strata
        draws = sum(s[1] for s in sampled)
        stands = sum(s[0] for s in sampled) / draws
        time = self.early * draws * max(1, self.number / sum(s[1] for s in self.strata))
        best = math.sqrt(2 * self.threshold / (self.squares / self.number * time))
        return best * (size / planned / stands) * (1 - len(self.seen[h]) / size)

    def see(self, h, x):
        size, _, least, most = self.strata[h]
        stake = self.stake(h)
        expected = (size * self.means[h] - sum(self.seen[h])) / (size - len(self.seen[h]))
        up = min(stake, self.largest / max(expected - least, 1e-12))
        down = min(stake, self.largest / max(most - expected, 1e-12))
        self.larger[h] *= 1 + up * (x - expected)
        self.smaller[h] *= 1 - down * (x - expected)
        mean = self.total / self.number
        self.squares += (x - mean) ** 2
        self.total += x
        self.number += 1
        self.seen[h].append(x)

    @property
    def capital(self):
        both = zip(self.larger, self.smaller, strict=True)
        return math.prod((1 - self.hedge) * a + self.hedge * b for a, b in both)


def intraclass(rows):
    """Return ICC(1) of lists of answers, one list per case (Shrout and Fleiss 1979)."""
    n, total = len(rows), sum(map(len, rows))
    mean = sum(map(sum, rows)) / total
    means = [sum(row) / len(row) for row in rows]
    pairs = list(zip(rows, means, strict=True))
    msb = sum(len(row) * (m - mean) ** 2 for row, m in pairs) / (n - 1)
    msw = sum((x - m) ** 2 for row, m in pairs for x in row) / (total - n)
    k = (total - sum(len(row) ** 2 for row in rows) / total) / (n - 1)
    return (msb - msw) / (msb + (k - 1) * msw)
