"""The assignment problem (Kuhn, 1955), by shortest augmenting paths (Jonker, Volgenant, 1987).

SciPy's `linear_sum_assignment` does the same; it is not used because SciPy is not a requirement of
the core package, and coreference alone would need it.

Shapes: N rows, M columns.
"""

import numpy as np
from jaxtyping import Float


def maximize_assignment(scores: Float[np.ndarray, "N M"]) -> list[tuple[int, int]]:
    """Return pairs of rows and columns, each used once at most, with the greatest sum of scores.

    Rows are added one by one along the shortest augmenting path. Dual prices of rows and columns
    keep all reduced costs at zero or above.
    """
    if scores.shape[0] > scores.shape[1]:
        return sorted((row, column) for column, row in maximize_assignment(scores.T))
    num_rows, num_columns = scores.shape
    costs = -scores.astype(np.float64)
    row_price, column_price = np.zeros(num_rows), np.zeros(num_columns)
    owner = np.full(num_columns, -1)
    for entering in range(num_rows):
        shortest = np.full(num_columns, np.inf)
        before = np.full(num_columns, -1)  # the column from which a column was reached
        done = np.zeros(num_columns, dtype=bool)
        row, reached, column = entering, 0.0, -1
        while row >= 0:
            through = reached + costs[row] - row_price[row] - column_price
            better = ~done & (through < shortest)
            shortest[better], before[better] = through[better], column
            column = int(np.where(done, np.inf, shortest).argmin())
            reached = shortest[column]
            done[column] = True
            row = int(owner[column])
        passed = done & (owner >= 0)
        row_price[entering] += reached
        row_price[owner[passed]] += reached - shortest[passed]
        column_price[passed] -= reached - shortest[passed]
        while column >= 0:  # exchange along the chain, back to the row that entered
            previous = int(before[column])
            owner[column] = entering if previous < 0 else owner[previous]
            column = previous
    return sorted((int(row), column) for column, row in enumerate(owner.tolist()) if row >= 0)
