"""Run `elmore` commands that do not outlive the script that starts them.

A script that is killed (SIGKILL) cannot end its children, and a training that goes on holds the GPU
and the lock of its run folder. So Linux kills them: it sends a process the signal that it has asked
for when the thread that started it ends.
"""

import os
import sys
from collections.abc import Sequence

# In the new process and before elmore, because `preexec_fn` is not safe beside threads. The request
# survives `execv`. A parent that has gone by then sends no signal any more.
_ASK_AND_START = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
parent, *words = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(parent):
    sys.exit("the script that started this has ended")
os.execv(sys.executable, [sys.executable, "-m", "elmore", *words])
"""


def elmore_command(words: Sequence[str]) -> list[str]:
    """Return the command line of `elmore WORDS`, for a child of this process.

    On Linux the command is killed when the thread that started it has ended: start it in the main
    thread, or in one that waits for it.
    """
    return [sys.executable, "-c", _ASK_AND_START, str(os.getpid()), *words]
