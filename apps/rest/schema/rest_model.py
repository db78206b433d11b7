"""The base of requests' and responses' models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RestModel(BaseModel):
    """A model that pydantic builds at its first use: most are used by ``/v1/openapi.json`` only."""

    model_config = ConfigDict(defer_build=True)
