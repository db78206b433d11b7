"""Error replies of a switch: the error type and code of OpenFlow 1.3.5, section 7.4.4, as an exception."""

from __future__ import annotations

from controller.openflow.constants import ErrorType, error_code


class OpenFlowReplyError(Exception):
    """The present message gets this error as reply; nothing of the message has been done."""

    def __init__(self, error_type: ErrorType, code_name: str) -> None:
        self.type = error_type
        self.code = error_code(error_type, code_name)
        super().__init__(f"{error_type.name} / {code_name}")
