"""Exact sums of floats in integer limbs, so that the order of addition does not matter."""

from butfor.kernels.compiled import bare

FRACTION = (1 << 52) - 1  # a float has 1 sign bit, 11 exponent bits and 52 fraction bits
SPECIAL = 0x7FF  # exponent of inf and nan
LIMB = (1 << 32) - 1


@bare
def add_exactly(group, bits, limbs, lowest):
    """Add floats, given by their bits [n, K], to limbs [L + 2, G, K], row i to group[i].

    The L limbs have 32 bits each, starting at 2^lowest. Lower bits are cut off. Values that are
    nan, infinite or too large for the limbs are counted in the last two.
    """
    above, below = limbs.shape[0] - 2, limbs.shape[0] - 1
    too_large = min(1023 + lowest + 32 * above, SPECIAL)
    lowest_shift = 1023 + 52 + lowest  # exponent at which the last bit of a float is the lowest one
    for i in range(len(group)):
        g = group[i]
        for k in range(bits.shape[1]):
            exponent = (bits[i, k] >> 52) & SPECIAL
            fraction = bits[i, k] & FRACTION
            if exponent >= too_large:
                unknown = exponent == SPECIAL and fraction != 0
                limbs[above, g, k] += unknown or bits[i, k] >= 0
                limbs[below, g, k] += unknown or bits[i, k] < 0
                continue
            whole = fraction
            if exponent > 0:
                whole |= FRACTION + 1
            shift = max(exponent, 1) - lowest_shift
            if whole == 0 or shift <= -53:
                continue
            if shift < 0:
                whole >>= -shift
                shift = 0
            sign = 1 if bits[i, k] >= 0 else -1
            limb, left = shift >> 5, shift & 31
            low = (whole & LIMB) << left
            high = ((whole >> 32) << left) + (low >> 32)
            limbs[limb, g, k] += sign * (low & LIMB)
            if high > 0:
                limbs[limb + 1, g, k] += sign * (high & LIMB)
            if high > LIMB:
                limbs[limb + 2, g, k] += sign * (high >> 32)
