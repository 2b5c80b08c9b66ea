"""A budget of bytes for all answers that clients have not taken yet.

A request reserves the size of its answer before it is computed, and gives it back when the answer
has been sent or the client is gone. So clients that do not read cost no more than the budget.
"""

from fastapi import HTTPException

SMALL_BYTES = 1 << 16
_SHARE_OF_SMALL = 8  # one of so many parts of the budget is for small answers alone


class UnsentBytes:
    """The budget. Only the event loop touches it.

    Large answers leave an eighth of it to small ones, so that a few clients that do not read their
    large answers do not keep everybody else from being served.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0

    @property
    def largest(self) -> int:
        """How many bytes one answer may have."""
        return self.limit - self.limit // _SHARE_OF_SMALL

    def reserve(self, more: int, total: int) -> None:
        """Take `more` bytes for an answer of `total` bytes, or refuse it.

        Raises:
            HTTPException: 413 if there can never be room for it, 503 if there is none now.
        """
        if total > self.largest:
            raise HTTPException(
                413,
                f"the answer would have {total} bytes of numbers, one may have {self.largest}; "
                "send the texts in several requests, or ask for fewer layers",
            )
        room = self.limit if total <= SMALL_BYTES else self.largest
        if self.reserved + more > room:
            raise HTTPException(
                503,
                f"answers that other clients have not taken yet fill {self.reserved} of "
                f"{self.limit} bytes; come again in 10 s",
                {"Retry-After": "10"},
            )
        self.reserved += more


class Reservation:
    """What one request holds of the budget."""

    def __init__(self, unsent: UnsentBytes) -> None:
        self._unsent = unsent
        self._size = 0

    def resize(self, size: int) -> None:
        """Hold so many bytes from now on, or raise the refusal of the budget."""
        if size > self._size:
            self._unsent.reserve(size - self._size, size)
        else:
            self._unsent.reserved -= self._size - size
        self._size = size

    def release(self) -> None:
        """Hold nothing."""
        self.resize(0)
