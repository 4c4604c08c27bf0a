"""What every part of the spec is made of: the base of its models, and rules that the API server can check itself."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


def cel(rule: str, message: str, expression: str | None = None) -> dict[str, Any]:
    """A CEL rule for the API server, as extra schema of a field or a model."""
    entry = {"rule": rule, "message": message}
    if expression is not None:
        entry["messageExpression"] = expression
    return {"x-kubernetes-validations": [entry]}


class Model(BaseModel):
    """What all parts share: camelCase outside, unknown fields refused, nothing changes after construction."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        validate_by_alias=True,
        validate_by_name=True,
    )
