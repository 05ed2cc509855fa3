"""Java's PriorityQueue: with equal weights its order depends on how its heap is kept.

Python's heapq takes other elements first among equals, and Kafka's assignments would differ.
Java's source: PriorityQueue.siftUp and siftDown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class LeastFirst(Generic[T]):
    """Elements with the least weight first; an element's weight may change while it is out."""

    __slots__ = ("_heap", "_weight")

    def __init__(self, weight: Callable[[T], float], elements: Iterable[T] = ()) -> None:
        self._heap: list[tuple[float, T]] = []
        self._weight = weight
        for one in elements:
            self.add(one)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, element: T) -> None:
        """Put an element in."""
        heap, weight = self._heap, self._weight(element)
        at = len(heap)
        heap.append((weight, element))
        while at:
            parent = (at - 1) >> 1
            if weight >= heap[parent][0]:
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = weight, element

    def take(self) -> T:
        """Take out an element of the least weight."""
        heap = self._heap
        first, last = heap[0][1], heap.pop()
        size, at = len(heap), 0
        if size:
            while at < size >> 1:
                child = 2 * at + 1
                if child + 1 < size and heap[child][0] > heap[child + 1][0]:
                    child += 1
                if last[0] <= heap[child][0]:
                    break
                heap[at] = heap[child]
                at = child
            heap[at] = last
        return first
