"""Why node messages are rejected."""

from __future__ import annotations

from enum import StrEnum

from controller.errors import DetsError


class RejectCause(StrEnum):
    """Why a message is rejected; each cause is counted."""

    LENGTH = "length"
    NOT_A_FRAME = "not-a-frame"
    VERSION = "version"
    FABRIC = "fabric"
    ROW = "row"
    VALUE = "value"
    NOT_OWNED = "not-owned"
    TOKEN = "token"
    ORDER = "order"
    LATE = "late"
    PAIRS = "pairs"


class MessageRejectedError(DetsError):
    """A message is rejected."""

    def __init__(self, cause: RejectCause, text: str) -> None:
        self.cause = cause
        super().__init__(text)
