"""JSON documents of any length: the members of the outermost object, the items of an array one by one.

Only a part of the file is in memory at a time. What JSON does not know (NaN, Infinity) and an object with the
same key twice are errors.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from foundation.errors import InputError
from foundation.one_line import one_line
from workloads.swf.swf_job import STREAM_FAULTS, open_trace, stream_fault

PIECE = 1 << 18
LONGEST_ITEM = 1 << 24
"""Characters that one item, or one member that is not streamed, may take."""

_BLANK = " \t\r\n"
_IN_NUMBERS = "0123456789.eE+-"


class RepeatedKeyError(ValueError):
    """An object has a key twice."""


def no_constant(name: str) -> Any:
    """Refuse what JSON does not know, for ``parse_constant``."""
    raise ValueError(f"{name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RepeatedKeyError(f"the key {one_line(twice, 40)!r} is there twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=no_constant, object_pairs_hook=_object)


class _Text:
    """The text of a file, of which ``data`` from ``at`` on is in memory."""

    def __init__(self, path: Path, read: Callable[[int], bytes]) -> None:
        self.path = path
        self.data = ""
        self.at = 0
        self.ended = False
        self._before = 0
        self._read = read
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def more(self) -> bool:
        """Read on; return whether there was anything."""
        if self.ended:
            return False
        try:
            raw = self._read(max(PIECE, len(self.data) - self.at))
            text = self._decoder.decode(raw, final=not raw)
        except STREAM_FAULTS as error:
            raise stream_fault(self.path, error, readable=False) from error
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path} is no JSON document: it is not in UTF-8") from error
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from error
        self.ended = not raw
        self._before += self.at
        self.data, self.at = self.data[self.at :] + text, 0
        return True

    def peek(self) -> str:
        """Return the next character that is no blank, or nothing at the end."""
        while True:
            while self.at < len(self.data) and self.data[self.at] in _BLANK:
                self.at += 1
            if self.at < len(self.data):
                return self.data[self.at]
            if not self.more():
                return ""

    def take(self, wanted: str) -> None:
        """Pass over a character that has to be here."""
        found = self.peek()
        if found != wanted:
            raise self.fault(f"{wanted!r} is missing" if found else "it ends too early")
        self.at += 1

    def value(self) -> Any:
        """Return the next value."""
        self.peek()
        while True:
            try:
                found, end = _DECODER.raw_decode(self.data, self.at)
            except json.JSONDecodeError as error:
                # What is cut off is read to its end; a number at the end of the text may go on.
                if self.ended or len(self.data) - self.at > LONGEST_ITEM:
                    raise self.fault(error.msg.lower(), error.pos - self.at) from error
            except RepeatedKeyError as error:
                raise self.fault(str(error)) from error
            except (ValueError, RecursionError) as error:
                what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
                raise self.fault(one_line(what, 80)) from error
            else:
                goes_on = end == len(self.data) or self.data[end] in _IN_NUMBERS
                if self.ended or not goes_on:
                    self.at = end
                    return found
            self.more()

    def fault(self, what: str, further: int = 0) -> InputError:
        """Return the error for what is wrong here, or so many characters further on."""
        return InputError(f"{self.path}: character {self._before + self.at + further + 1:,}: {what}")


def members(path: Path, streamed: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of the outermost object of ``path``, plain or gzip, in the file's order.

    Parameters
    ----------
    path
        The file.
    streamed
        Members that are not read whole, with what they begin with: of an array (``[``) each item is yielded
        by itself under the member's key, of an object (``{``) each (key, value).

    Raises
    ------
    InputError
        The file cannot be read or is no such document; the message says where.
    """
    if not path.is_file():
        raise InputError(
            f"cannot read {path}: {'it is a folder' if path.is_dir() else 'there is no such file'}"
        )
    with open_trace(path) as stream:
        text = _Text(path, stream.read)
        if text.peek() != "{":
            raise InputError(f"{path} is no JSON object: it does not begin with a brace")
        seen: set[str] = set()
        for key in _pairs(text):
            if key in seen:
                raise text.fault(f"the key {one_line(key, 40)!r} is there twice")
            seen.add(key)
            kind = streamed.get(key)
            if kind is None:
                yield key, text.value()
                continue
            if text.peek() != kind:
                raise InputError(f"{path}: {key}: is no {'array' if kind == '[' else 'object'}")
            if kind == "[":
                for _ in _parts(text, "[", "]"):
                    yield key, text.value()
            else:
                for name in _pairs(text):
                    yield key, (name, text.value())
        if text.peek():
            raise text.fault("something follows the end of the document")


def _pairs(text: _Text) -> Iterator[str]:
    """Yield each key of an object; who iterates reads its value."""
    for _ in _parts(text, "{", "}"):
        key = text.value() if text.peek() == '"' else None
        if not isinstance(key, str):
            raise text.fault("a key in quotes is missing")
        text.take(":")
        yield key


def _parts(text: _Text, first: str, last: str) -> Iterator[None]:
    """Stop at each member of an object, or item of an array; who iterates reads it."""
    text.take(first)
    if text.peek() == last:
        text.take(last)
        return
    while True:
        yield
        if text.peek() != ",":
            text.take(last)
            return
        text.take(",")
