"""Printing of text from outside: no character moves the cursor, ends a line, hides or reorders other text."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    r"""Return text with escapes (``\x1b``, ``\u202e``) for all characters without a glyph, except those in ``keep``.

    These are control characters (C0, C1), line and paragraph separators, formats (including bidi overrides), spaces
    except the plain one, surrogates, and unassigned characters.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode("ascii") for one in text
    )


def printable_json(text: str) -> str:
    r"""Return an equivalent JSON text with such characters of its strings as ``\uXXXX``; lines stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _json_escape(one) for one in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
