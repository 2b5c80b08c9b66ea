"""A budget of bytes for all responses that clients have not received yet.

A request reserves the size of its response before that is computed, and releases it when the
response is sent or the client has disconnected. So clients that do not read cost no more memory
than the budget.
"""

from fastapi import HTTPException

SMALL_BYTES = 1 << 16
_SMALL_FRACTION = 8  # 1/8 of the budget is for small responses alone


class SendBudget:
    """The budget. Only the event loop uses it.

    Large responses leave an eighth of it to small ones, so that a few clients that do not read
    their large responses do not block everybody else.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0

    @property
    def largest(self) -> int:
        """Maximal size of one response in bytes."""
        return self.limit - self.limit // _SMALL_FRACTION

    def reserve(self, more: int, total: int) -> None:
        """Reserve `more` bytes for a response of `total` bytes.

        Raises:
            HTTPException: 413 if it can never fit, 503 if it does not fit now.
        """
        if total > self.largest:
            raise HTTPException(
                413,
                f"the response would have {total} bytes of numbers, the limit is {self.largest}; "
                "send the texts in several requests, or ask for fewer layers",
            )
        limit = self.limit if total <= SMALL_BYTES else self.largest
        if self.reserved + more > limit:
            raise HTTPException(
                503,
                f"responses that other clients have not received yet take {self.reserved} of "
                f"{self.limit} bytes; retry in 10 s",
                {"Retry-After": "10"},
            )
        self.reserved += more


class Reservation:
    """The part of the budget that one request holds."""

    def __init__(self, unsent: SendBudget) -> None:
        self._unsent = unsent
        self._size = 0

    def resize(self, size: int) -> None:
        """Hold this many bytes from now on, or raise the HTTPException of the budget."""
        if size > self._size:
            self._unsent.reserve(size - self._size, size)
        else:
            self._unsent.reserved -= self._size - size
        self._size = size

    def release(self) -> None:
        """Release all bytes."""
        self.resize(0)
