"""Agreement by the definitions, pair by pair; ratings are lists of lists, None for a gap."""

from itertools import permutations


def percent(ratings):
    shares = []
    for row in ratings:
        pairs = list(permutations([value for value in row if value is not None], 2))
        if pairs:
            shares.append(sum(a == b for a, b in pairs) / len(pairs))
    return sum(shares) / len(shares)


def alpha(ratings):
    """One minus observed over expected disagreement of pairable values (Krippendorff 2011)."""
    units = [[value for value in row if value is not None] for row in ratings]
    units = [unit for unit in units if len(unit) >= 2]
    values = [value for unit in units for value in unit]
    observed = 0.0
    for unit in units:
        observed += sum(a != b for a, b in permutations(unit, 2)) / (len(unit) - 1)
    observed /= len(values)
    expected = sum(a != b for a, b in permutations(values, 2))
    expected /= len(values) * (len(values) - 1)
    return None if expected == 0 else 1 - observed / expected


def ac1(ratings, categories):
    """Gwet 2014, Handbook of inter-rater reliability: chance by mean shares of categories."""
    rated = [[value for value in row if value is not None] for row in ratings]
    rated = [row for row in rated if row]
    chance = 0.0
    for category in categories:
        share = sum(row.count(category) / len(row) for row in rated) / len(rated)
        chance += share * (1 - share)
    chance /= len(categories) - 1
    return (percent(ratings) - chance) / (1 - chance)


def kappa(pairs, categories):
    n = len(pairs)
    observed = sum(a == b for a, b in pairs) / n
    chance = sum(
        sum(a == category for a, _ in pairs) / n * sum(b == category for _, b in pairs) / n
        for category in categories
    )
    return None if abs(1 - chance) < 1e-12 else (observed - chance) / (1 - chance)
