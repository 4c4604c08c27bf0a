"""Units in the spec's strings: durations as Go writes them (``1m30s``), quantities as Kubernetes does (``1Gi``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"

_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_DURATION_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_QUANTITY_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** (n + 1) for n, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (n + 1) for n, unit in enumerate("KMGTPE")},
}


def seconds(duration: str) -> float:
    """Seconds in a duration such as ``500ms`` or ``1m30s``. Raises ``ValueError`` for anything else."""
    if len(duration) > 32 or not re.match(DURATION_PATTERN, duration):
        raise ValueError("must be a duration such as 500ms, 3s or 1m30s")
    return float(sum(Decimal(n) * _DURATION_UNITS[unit] for n, unit in _DURATION_PART.findall(duration)))


def quantity(text: str) -> Decimal:
    """The number in a Kubernetes quantity such as ``1Gi`` or ``500m``. Raises ``ValueError`` for anything else."""
    match = re.match(QUANTITY_PATTERN, text) if len(text) <= 32 else None
    if match is None:
        raise ValueError("must be a quantity such as 1Gi or 500m")
    unit = match.group(2) or ""
    return Decimal(text.removesuffix(unit)) * _QUANTITY_UNITS[unit]


@dataclass(frozen=True, slots=True)
class DurationWithin:
    """Bounds of a duration field, inclusive: for pydantic's validation and, as CEL, for the API server's."""

    minimum: str
    maximum: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._within, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        rule = f"duration(self) >= duration('{self.minimum}') && duration(self) <= duration('{self.maximum}')"
        return {
            "type": "string",
            "pattern": DURATION_PATTERN,
            "maxLength": 32,
            "x-kubernetes-validations": [{"rule": rule, "message": self._message}],
        }

    @property
    def _message(self) -> str:
        return f"must be between {self.minimum} and {self.maximum}"

    def _within(self, value: str) -> str:
        if not seconds(self.minimum) <= seconds(value) <= seconds(self.maximum):
            raise ValueError(self._message)
        return value


def _positive_quantity(value: str) -> str:
    if quantity(value) <= 0:
        raise ValueError("must be more than zero")
    return value


Quantity = Annotated[
    str,
    AfterValidator(_positive_quantity),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": QUANTITY_PATTERN,
            "maxLength": 32,
            "x-kubernetes-validations": [
                {
                    "rule": "isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
                    "message": "must be a quantity of more than zero",
                }
            ],
        }
    ),
]


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


ResourceQuantity = Annotated[
    str,
    BeforeValidator(_number_as_text),  # `cpu: 2` is what people write, and the API server takes it
    AfterValidator(_positive_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY_PATTERN,
        }
    ),
]
