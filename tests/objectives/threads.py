"""Ranks as threads of one process: a stand-in for the transport between processes.

One rank works at a time, until it waits for another. So nothing here says how well sending and
working overlap, nor what NCCL does; what the ranks compute is the same.
"""

import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

PATIENCE = 120  # seconds that a rank waits for another


class Ended(Exception):
    """Another rank failed."""


class Room:
    """Where the ranks of a batch meet: letters to each of them, in the order they were sent."""

    def __init__(self, size: int) -> None:
        self.size, self.failed = size, False
        self.turn = threading.Condition()
        self.letters: dict[tuple[int, Any], list[Tensor]] = {}

    def send(self, rank: int, what: Any, tensors: Sequence[Tensor]) -> None:
        self.letters[rank, what] = [x.detach().clone() for x in tensors]
        self.turn.notify_all()

    def receive(self, rank: int, what: Any) -> list[Tensor]:
        there = self.turn.wait_for(lambda: self.failed or (rank, what) in self.letters, PATIENCE)
        if self.failed or not there:
            raise Ended
        return self.letters.pop((rank, what))


class Rank:
    """The transport of one rank."""

    def __init__(self, room: Room, rank: int) -> None:
        self.room, self.rank, self.size, self.number = room, rank, room.size, 0

    def gather(self, rows: Tensor) -> list[Tensor]:
        self.number += 1
        for rank in range(self.size):
            self.room.send(rank, (self.number, self.rank), [rows])
        return [self.room.receive(self.rank, (self.number, r))[0] for r in range(self.size)]

    def sum(self, numbers: Tensor) -> Tensor:
        return torch.stack(self.gather(numbers)).sum(0)

    def start(self, sent: Sequence[Tensor], like: Sequence[Tensor]) -> "_Letter":
        self.number += 1
        if sent:
            self.room.send((self.rank - 1) % self.size, (self.number, "next"), sent)
        return _Letter(self, self.number, like)


class _Letter:
    def __init__(self, rank: Rank, number: int, like: Sequence[Tensor]) -> None:
        self.rank, self.number = rank, number
        self.like = [(x.shape, x.dtype, x.device) for x in like]

    def wait(self) -> list[Tensor]:
        if not self.like:
            return []
        found = self.rank.room.receive(self.rank.rank, (self.number, "next"))
        assert [(x.shape, x.dtype, x.device) for x in found] == self.like
        return found


def run(size: int, work: Callable[[Rank], Any]) -> list[Any]:
    """Call it on every rank; what each returns. What fails on one of them fails here."""
    room = Room(size)
    results: list[Any] = [None] * size
    problems: list[str] = []

    def one(rank: int) -> None:
        with room.turn:
            try:
                results[rank] = work(Rank(room, rank))
            except Ended:
                problems.append(f"rank {rank} waited for another")
            except BaseException:
                problems.insert(0, f"on rank {rank}:\n{traceback.format_exc()}")
            finally:
                room.failed = bool(problems)
                room.turn.notify_all()

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * PATIENCE)
    assert not problems, "\n".join(problems)
    assert not room.letters, "letters that nobody read"
    return results
