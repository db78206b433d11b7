"""Operations that are described on demand, because descriptions take most of the time.

``DescribedApi`` and ``DescribedBlueprint`` are the library's classes with that difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.openapi import OpenAPI


class _DeferredDescription:
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._undescribed: deque[tuple[str, Callable[..., Any], dict[str, Any]]] = deque()
        super().__init__(*arguments, **options)

    def _collect_openapi_info(self, rule: str, func: Callable[..., Any], **options: Any) -> Any:
        # The operation is registered now; without ``doc_ui`` the library skips its description.
        self._undescribed.append((rule, func, options))
        return super()._collect_openapi_info(rule, func, **{**options, "doc_ui": False})  # type: ignore[misc]

    def describe(self, yield_control: Callable[[], None]) -> None:
        """Describe the remaining operations, one at a time."""
        while self._undescribed:
            rule, func, options = self._undescribed.popleft()
            super()._collect_openapi_info(rule, func, **options)  # type: ignore[misc]
            yield_control()


class DescribedBlueprint(_DeferredDescription, APIBlueprint):
    """Operations below one prefix."""


class DescribedApi(_DeferredDescription, OpenAPI):
    """The application with its description in ``api_doc``, complete after ``describe``."""

    def describe_all(self, blueprint: DescribedBlueprint, yield_control: Callable[[], None]) -> None:
        """Describe the operations of the blueprint, then those of the application itself."""
        blueprint.describe(yield_control)
        self.paths.update(blueprint.paths)
        self.components_schemas.update(blueprint.components_schemas)
        self.describe(yield_control)
