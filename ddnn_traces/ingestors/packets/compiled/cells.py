"""Sums of cells by window and flow. Sorting the cells of many flows in NumPy took longer than reading their packets."""

from __future__ import annotations

import numpy as np

from ddnn_traces.ingestors.packets.compiled import compiled
from ddnn_traces.jit import inlined

_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS


@inlined
def _digit(value, least, shift):
    return np.int64((np.uint64(value) - np.uint64(least)) >> shift & np.uint64(_DIGITS - 1))


@compiled
def sum_cells(cells):
    """The sums of the cells of a window and flow, ordered by both. cells: int64 (columns, n), the first two are these.

    A radix sort from the last digit of the flow to the first one of the window, each pass of which keeps equals in
    their order.
    """
    columns, size = cells.shape
    order, sorted_by_digit = np.arange(size), np.empty(size, np.int64)
    for column in (1, 0):
        least, span = cells[column].min(), np.uint64(cells[column].max()) - np.uint64(cells[column].min())
        shift = np.uint64(0)
        while shift < np.uint64(64) and span >> shift:
            begins = np.zeros(_DIGITS + 1, np.int64)
            for i in range(size):
                begins[_digit(cells[column, i], least, shift) + 1] += 1
            begins = np.cumsum(begins)
            for i in range(size):
                digit = _digit(cells[column, order[i]], least, shift)
                sorted_by_digit[begins[digit]] = order[i]
                begins[digit] += 1
            order, sorted_by_digit = sorted_by_digit, order
            shift += np.uint64(_DIGIT_BITS)
    sums, rows = np.empty((columns, size), np.int64), 0
    for i in range(size):
        at = order[i]
        if rows and sums[0, rows - 1] == cells[0, at] and sums[1, rows - 1] == cells[1, at]:
            for column in range(2, columns):
                sums[column, rows - 1] += cells[column, at]
        else:
            for column in range(columns):
                sums[column, rows] = cells[column, at]
            rows += 1
    return sums[:, :rows]
