"""The base of what requests and answers hold."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RestModel(BaseModel):
    """A model that pydantic builds when it is first used: most are used by ``/v1/openapi.json`` alone."""

    model_config = ConfigDict(defer_build=True)
