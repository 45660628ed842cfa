"""Writing a report: beside its place, to the disk, then renamed in one step."""
import contextlib
import fcntl
import os
import re
import stat
import sys

from .log import Stop


def write(path, data):
    """Bytes or text to a path; "-" or None is standard output. Exit 70 when it cannot be written."""
    data = data.encode("utf-8") if isinstance(data, str) else data
    try:
        if path in (None, "-"):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        _replace(os.path.realpath(path), data)
    except OSError as why:
        raise Stop(70, f"{path or 'standard output'} cannot be written: {why.strerror}") from None


def _replace(path, data):
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with open(path, "wb") as device:
            device.write(data)
        return
    temporary = f"{path}.tmp-{os.getpid()}"
    _remove_left(path)
    with open(temporary, "xb") as file:
        _lock(file, fcntl.LOCK_EX)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.rename(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise


# As runner/report.c does it: a writer that lives holds a lock on its file.

def _lock(fd, how):
    """False when somebody else holds it."""
    try:
        fcntl.flock(fd, how)
    except OSError as why:
        return not isinstance(why, BlockingIOError)
    return True


def _remove_left(path):
    """Remove what killed writers left beside this report."""
    folder, name = os.path.split(path)
    with contextlib.suppress(OSError):    # it hinders nobody
        for entry in os.listdir(folder):
            if re.fullmatch(re.escape(name) + r"\.tmp-[0-9]+", entry):
                with open(os.path.join(folder, entry), "rb", opener=_open_to_lock) as left:
                    if _lock(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
                        os.unlink(os.path.join(folder, entry))


def _open_to_lock(path, flags):
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
