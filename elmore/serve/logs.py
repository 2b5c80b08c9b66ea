"""Log one JSON object per line to stderr; never any text that users sent.

An unexpected error is logged with its type and the end of its traceback. Its message is left out,
because it may quote the text.
"""

import json
import logging
import time
import traceback
from pathlib import Path


class JSONLines(logging.Formatter):
    """Formats a record as JSON: time, level, event, and the fields of `extra={"fields": …}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{clock}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage().strip(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1]:
            line |= describe_error(record.exc_info[1])
        return json.dumps(line)


def describe_error(error: BaseException) -> dict[str, object]:
    """Return the type of an error and the end of its traceback, without its message."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    frames_text = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "through": frames_text}


def log_to_stderr() -> None:
    """Log as JSON to stderr: every request, and warnings of all other modules."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("elmore.serve").setLevel(logging.INFO)
