"""The best way to pair rows with columns (Kuhn, 1955; as shortest paths: Jonker, Volgenant, 1987).

Shapes: N rows, M columns.
"""

import numpy as np
from jaxtyping import Float


def maximize_assignment(worth: Float[np.ndarray, "N M"]) -> list[tuple[int, int]]:
    """Pair each row or each column, whichever are fewer, so that the sum of worths is greatest.

    Rows enter one by one. Each takes a column along the cheapest chain of exchanges, and prices on
    rows and columns keep every reduced cost at zero or above, so that chain is a shortest path.
    """
    if worth.shape[0] > worth.shape[1]:
        return sorted((row, column) for column, row in maximize_assignment(worth.T))
    num_rows, num_columns = worth.shape
    costs = -worth.astype(np.float64)
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
