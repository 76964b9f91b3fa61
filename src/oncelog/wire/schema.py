"""Message definitions: one JSON file per message, read when it is first asked for.

Owns the meaning of the definitions (which field exists in which version, its default, whether it may be null). Never
touches the bytes of a message: that is `codec`.
"""

from __future__ import annotations

import json
import pkgutil
from functools import cache
from typing import Any
from uuid import UUID

from oncelog.errors import UnsupportedVersion
from oncelog.named_tuple import NamedTuple
from oncelog.wire.versions import VersionRange

ZERO_UUID = UUID(int=0)
"""What the protocol writes where there is no id."""

ARRAY_PREFIX = "[]"

_INTEGERS = frozenset({"int8", "int16", "uint16", "int32", "int64"})
_PRIMITIVES = _INTEGERS | {"bool", "float64", "string", "bytes", "records", "uuid"}


class Field(NamedTuple):
    name: str
    type: str
    versions: VersionRange
    nullable: VersionRange
    tagged: VersionRange
    tag: int
    flexible: VersionRange | None
    """Where this field alone departs from its message (the client id of a request header)."""
    default_text: str
    fields: tuple[Field, ...]

    @property
    def is_array(self) -> bool:
        return self.type.startswith(ARRAY_PREFIX)

    @property
    def element_type(self) -> str:
        return self.type.removeprefix(ARRAY_PREFIX)

    @property
    def is_struct(self) -> bool:
        """The field, or each element of it, is a message of its own."""
        return self.element_type not in _PRIMITIVES

    def default(self) -> Any:
        """A fresh value, so that no two messages share a list."""
        if self.default_text == "null" or self.type == "records":
            return None
        if self.is_array:
            return []
        if self.is_struct:
            return {field.name: field.default() for field in self.fields}
        return _primitive_default(self.type, self.default_text)


def _primitive_default(type_name: str, text: str) -> Any:
    if type_name in _INTEGERS:
        return int(text or "0", 0)
    if type_name == "bool":
        return text == "true"
    if type_name == "string":
        return text
    assert text == "", f"a default for {type_name}: {text}"
    return {"float64": 0.0, "bytes": b"", "uuid": ZERO_UUID}[type_name]


class MessageSchema(NamedTuple):
    name: str
    api_key: int | None
    valid: VersionRange
    flexible: VersionRange
    fields: tuple[Field, ...]

    def check_version(self, version: int) -> None:
        if not self.valid.includes(version):
            raise UnsupportedVersion(f"{self.name} exists in versions {self.valid}, not {version}")


@cache
def load_schema(name: str) -> MessageSchema:
    data = pkgutil.get_data(__package__, f"schemas/{name}.json")
    assert data is not None
    definition = json.loads(data)
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    return MessageSchema(
        name=definition["name"],
        api_key=definition.get("apiKey"),
        valid=VersionRange.parse(definition["validVersions"]),
        flexible=VersionRange.parse(definition["flexibleVersions"]),
        fields=_fields(definition["fields"], common),
    )


def _fields(definitions: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]]) -> tuple[Field, ...]:
    return tuple(_field(definition, common) for definition in definitions)


def _field(definition: dict[str, Any], common: dict[str, list[dict[str, Any]]]) -> Field:
    inner = definition.get("fields") or common.get(definition["type"].removeprefix(ARRAY_PREFIX), [])
    tagged = VersionRange.parse(definition.get("taggedVersions"))
    flexible = definition.get("flexibleVersions")
    return Field(
        name=definition["name"],
        type=definition["type"],
        versions=VersionRange.parse(definition.get("versions", definition.get("taggedVersions"))),
        nullable=VersionRange.parse(definition.get("nullableVersions")),
        tagged=tagged,
        tag=definition.get("tag", -1),
        flexible=None if flexible is None else VersionRange.parse(flexible),
        default_text=definition.get("default", ""),
        fields=_fields(inner, common),
    )
