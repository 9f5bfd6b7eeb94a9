"""What printed kernels call: few instructions, and special functions least of all.

Exponentials are powers of 2, a reciprocal is the square of a reciprocal root: one instruction each,
where a division takes eight. Import this where Triton is installed.
"""

# Triton reads the annotations and the source of a kernel: what it calls has no types to check.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)
_MUCH = tl.constexpr(2.0**60)  # 1 + exp(-s) beyond this: the sigmoid is 0 for all that is added


@triton.jit
def exp(s):
    return tl.exp2(s * _LOG2_E)


@triton.jit
def inverse_of(s):
    root = tl.rsqrt(s)
    return root * root


@triton.jit
def log_sum_exp(s, axis: tl.constexpr):
    largest = tl.max(s, axis)
    largest = tl.where(largest == -float("inf"), 0.0, largest)
    return largest + tl.log(tl.sum(exp(s - tl.expand_dims(largest, axis)), axis))


@triton.jit
def log_of_sums(largest, total):
    """Of columns of (number, sum) that stand for exp(number) * sum."""
    most = tl.max(largest, 0)
    most = tl.where(most == -float("inf"), 0.0, most)
    return most + tl.log(tl.sum(total * exp(largest - most[None, :]), 0))


@triton.jit
def sigmoid_and_softplus(s):
    small = exp(-tl.abs(s))
    inverse = inverse_of(1.0 + small)
    # log(1 + small) / small to a relative error of 2e-7, the least that any polynomial of this
    # degree has on 0 to 1: billions of small ones add up, and 1 + small would round them.
    part = small * 0.005364883225411177 - 0.030066121369600296
    part = part * small + 0.079205222427845
    part = part * small - 0.13753871619701385
    part = part * small + 0.19153691828250885
    part = part * small - 0.2485717386007309
    part = part * small + 0.3332132399082184
    part = part * small - 0.49999648332595825
    part = part * small + 1.0
    return tl.where(s >= 0.0, inverse, small * inverse), tl.maximum(s, 0.0) + part * small


@triton.jit
def sigmoids(u, v):
    """1 / (1 + u²) and 1 / (1 + v²): one reciprocal for both."""
    u, v = tl.minimum(u * u + 1.0, _MUCH), tl.minimum(v * v + 1.0, _MUCH)
    inverse = inverse_of(u * v)
    return inverse * v, inverse * u


@triton.jit
def hardest_of(s, number, axis: tl.constexpr):
    """The largest, and the first number where it is."""
    hardest = tl.max(s, axis)
    return hardest, tl.min(tl.where(s == tl.expand_dims(hardest, axis), number, 2**30), axis)
