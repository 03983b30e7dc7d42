"""The shared library of this package, its structs, and its failures as exceptions."""
import ctypes
import logging
import pathlib

from ._header import Header

FOLDER = pathlib.Path(__file__).parent
HEADER = Header((FOLDER / "headrace.h").read_text(encoding="utf-8"))
LIBRARY = HEADER.declare(ctypes.CDLL(str(FOLDER / "libheadrace.so.0")))
STATUS = HEADER.constants
VERSION = LIBRARY.headrace_version().decode()


class HeadraceError(RuntimeError):
    """What the engine could not do. `status` is a headrace_status."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class InvalidRequest(HeadraceError, ValueError):
    """What was asked for is not to be had: the message names the field, file or option."""


ASKED_WRONGLY = {STATUS["HEADRACE_INVALID_ARGUMENT"], STATUS["HEADRACE_OUT_OF_RANGE"],
                 STATUS["HEADRACE_UNIMPLEMENTED"]}


def error(status, message=None):
    message = message if message is not None else LIBRARY.headrace_message()
    kind = InvalidRequest if status in ASKED_WRONGLY else HeadraceError
    return kind(status, message.decode(errors="replace"))


def check(status):
    if status:
        raise error(status)


def made(name, *of_engine):
    """A struct that its init function has filled."""
    struct = HEADER.structs[f"headrace_{name}"]()
    getattr(LIBRARY, f"headrace_{name}_init")(*of_engine, ctypes.byref(struct))
    return struct


def text(value, field):
    """A C string's bytes; NUL would end it early."""
    if not isinstance(value, str):
        raise TypeError(f"{field}: a string is wanted, not {value!r}")
    if "\0" in value:
        raise ValueError(f"{field}: a text with NUL")
    return value.encode()


def array(kind, values, field):
    try:
        return (kind * len(values))(*values)
    except TypeError:
        raise TypeError(f"{field}: {values!r} does not hold numbers of the right kind") from None


LEVELS = [logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG]
logger = logging.getLogger("headrace")


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
def log(_, level, line):
    logger.log(LEVELS[min(max(level, 0), 3)], "%s", line.decode(errors="replace"))
