"""The frontier's volume: a claim that the operator makes and enlarges, or one that is there already."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from crawljob.model import Model
from crawljob.units import Quantity

DEFAULT_STORAGE_SIZE = "1Gi"
DEFAULT_ACCESS_MODES = ("ReadWriteOncePod",)

# Defaults are filled in by code: one that the API server stored would make every existingClaim look overdetermined.
_ONE_OR_THE_OTHER = "existingClaim excludes size, storageClassName and accessModes"
_EXCLUSIVE = "!has(self.existingClaim) || (!has(self.size) && !has(self.storageClassName) && !has(self.accessModes))"


def _rules() -> dict[str, Any]:
    """What an edit may do. The field itself is always there (its default is an empty object), so no edit goes past."""

    def given(field: str, otherwise: object) -> tuple[str, str]:
        now, before = (f"(has({of}.{field}) ? {of}.{field} : {otherwise!r})" for of in ("self", "oldSelf"))
        return now, before

    size, size_before = given("size", DEFAULT_STORAGE_SIZE)
    rules = [
        {"rule": _EXCLUSIVE, "message": _ONE_OR_THE_OTHER},
        {
            "rule": f"quantity({size}).compareTo(quantity({size_before})) >= 0",
            "message": "storage.size may only grow",
        },
    ]
    fixed = {"existingClaim": "", "storageClassName": "", "accessModes": list(DEFAULT_ACCESS_MODES)}
    for field, otherwise in fixed.items():
        now, before = given(field, otherwise)
        message = f"storage.{field} cannot be changed"
        rules.append({"rule": f"{now} == {before}", "message": message})
    return {"x-kubernetes-validations": rules}


class Storage(Model):
    """The volume of the frontier."""

    model_config = ConfigDict(json_schema_extra=_rules())

    size: Quantity | None = Field(
        None, description=f"Size of the volume, {DEFAULT_STORAGE_SIZE} without it. It may grow, never shrink."
    )
    storage_class_name: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        description="StorageClass of the volume; the cluster's default without it. It cannot be changed.",
    )
    access_modes: tuple[Literal["ReadWriteOncePod", "ReadWriteOnce"], ...] | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="ReadWriteOncePod without it; ReadWriteOnce only where the storage driver cannot do that. "
        "It cannot be changed.",
    )
    existing_claim: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        description="Name of a PersistentVolumeClaim that is there already, for example one that another CrawlJob "
        "retained; it is neither made nor enlarged nor deleted. It cannot be changed.",
    )
    when_deleted: Literal["Delete", "Retain"] = Field(
        "Delete",
        description="What becomes of the volume when the CrawlJob is deleted; a retained one can be used again by "
        "existingClaim.",
    )

    @property
    def wanted_size(self) -> str:
        """The size of the claim that the operator makes."""
        return self.size or DEFAULT_STORAGE_SIZE

    @property
    def wanted_access_modes(self) -> tuple[str, ...]:
        """The access modes of the claim that the operator makes."""
        return self.access_modes or DEFAULT_ACCESS_MODES

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        given = (self.size, self.storage_class_name, self.access_modes)
        if self.existing_claim is not None and any(value is not None for value in given):
            raise ValueError(_ONE_OR_THE_OTHER)
        return self
