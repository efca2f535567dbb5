"""Text on its way to the native module."""

from __future__ import annotations


def encodable(text: str) -> str:
    """The text in characters that all have an encoding.

    A lone surrogate has none, but Python makes them of bytes that are no text, as in names of files. They are
    shown by their number.
    """
    return str.encode(text, "utf-8", "backslashreplace").decode()
