"""Triton kernel: scores of chosen candidates, whose vectors are read once and kept nowhere.

A program works MANY candidates of one query, WIDE numbers of each at a time.

Import this where Triton is installed.
"""

# Triton reads the annotations and the source of a kernel: what it calls has no types to check.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

import triton
import triton.language as tl


# Lists of another length need no kernel of their own; vectors do, for aligned reads.
@triton.jit(do_not_specialize=["keep"])
def score(
    queries,  # (rows, size)
    candidates,  # (candidates, size)
    where,  # (rows, keep) the candidates of each query
    found,  # (rows, keep) their scores, to be written
    keep,
    size,
    MANY: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The products of each query with the candidates of its list."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * MANY + tl.arange(0, MANY)
    there = place < keep
    chosen = tl.load(where + row * keep + place, mask=there, other=0).to(tl.int64)
    total = tl.zeros((MANY, WIDE), dtype=tl.float32)
    for start in range(0, size, WIDE):
        column = start + tl.arange(0, WIDE)
        inside = column < size
        query = tl.load(queries + row * size + column, mask=inside, other=0.0)
        mask = there[:, None] & inside[None, :]
        part = tl.load(candidates + chosen[:, None] * size + column[None, :], mask=mask, other=0.0)
        total += query[None, :] * part
    tl.store(found + row * keep + place, tl.sum(total, 1), mask=there)
