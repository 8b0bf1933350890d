"""Sums of floats as whole numbers, so that the order of adding does not matter."""

from butfor.kernels.compiled import bare

LIMBS = 10  # eight of 32 bits from 2^-96 on, and how many items count as +inf and as -inf
LOWEST = -96  # exponent of the lowest bit that is kept
ABOVE, BELOW = 8, 9

FRACTION = (1 << 52) - 1  # bits of a float: a sign, 11 of the exponent, 52 of the fraction
SPECIAL = 0x7FF  # exponent of inf and nan
TOO_LARGE = 1023 + 159  # exponent of 2^159
SHIFT = 1023 + 52 + LOWEST  # exponent at which the last bit of a float is the lowest one
LIMB = (1 << 32) - 1


@bare
def add_exactly(group, bits, limbs):
    """Add to limbs [G, K, 10] the floats whose bits [n, K] are given, row i to group[i].

    Bits below the lowest one are cut off. What is nan, infinite or at least 2^159 is counted.
    """
    for i in range(len(group)):
        for k in range(bits.shape[1]):
            exponent = (bits[i, k] >> 52) & SPECIAL
            shift = exponent - SHIFT
            if shift <= -53:
                continue
            total = limbs[group[i], k]
            fraction = bits[i, k] & FRACTION
            if exponent >= TOO_LARGE:
                unknown = exponent == SPECIAL and fraction != 0
                total[ABOVE] += unknown or bits[i, k] >= 0
                total[BELOW] += unknown or bits[i, k] < 0
                continue
            sign = 1 if bits[i, k] >= 0 else -1
            whole = fraction | (FRACTION + 1)
            if shift < 0:
                whole >>= -shift
                shift = 0
            limb, left = shift >> 5, shift & 31
            low = (whole & LIMB) << left
            high = ((whole >> 32) << left) + (low >> 32)
            total[limb] += sign * (low & LIMB)
            total[limb + 1] += sign * (high & LIMB)
            total[limb + 2] += sign * (high >> 32)
