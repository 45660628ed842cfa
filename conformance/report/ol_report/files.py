"""Writing a report: beside its place, to the disk, then renamed in one step."""
import os
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
    # A run that was killed may have left one, and process ids come again.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
