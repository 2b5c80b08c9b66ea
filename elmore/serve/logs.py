"""One JSON object a line on stderr, for machines to read; never a word of what users sent.

An error that nobody expected is told by its type and the places it came through. Its message stays
out, because it may quote the text.
"""

import json
import logging
import time
import traceback
from pathlib import Path


class JSONLines(logging.Formatter):
    """A record as JSON: time, level, what happened, and what `extra={"fields": …}` says."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{clock}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage().strip(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1]:
            line |= described(record.exc_info[1])
        return json.dumps(line)


def described(error: BaseException) -> dict[str, object]:
    """Say what an error is and where it came from, without its message."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "through": places}


def to_stderr() -> None:
    """Send everything there as JSON: each request, and of others what went wrong."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("elmore.serve").setLevel(logging.INFO)
