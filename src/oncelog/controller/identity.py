"""`meta.properties`: which cluster, node and directory a data folder belongs to, in Kafka's format.

Written once, when a folder is first used. A folder that belongs to another node is refused: two nodes that shared one
history would both be wrong.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from oncelog.errors import OncelogError
from oncelog.log.storage import Storage

FILE_NAME = "meta.properties"
FORMAT_VERSION = "1"


class WrongDataFolder(OncelogError):
    """The data folder belongs to another node, or its meta.properties cannot be read."""


class Identity(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: UUID


def load_or_create(storage: Storage, directory: str, node_id: int, new_id: Callable[[], UUID]) -> Identity:
    path = f"{directory}/{FILE_NAME}"
    if storage.exists(path):
        return _load(storage.read_all(path).decode("utf-8", "replace"), path, node_id)
    identity = Identity(encode_id(_printable(new_id)), node_id, _printable(new_id))
    lines = (
        f"cluster.id={identity.cluster_id}",
        f"directory.id={encode_id(identity.directory_id)}",
        f"node.id={node_id}",
        f"version={FORMAT_VERSION}",
    )
    storage.write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    return identity


def _load(text: str, path: str, node_id: int) -> Identity:
    pairs = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    found = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        identity = Identity(found["cluster.id"], int(found["node.id"]), decode_id(found["directory.id"]))
    except (KeyError, ValueError) as error:
        raise WrongDataFolder(f"{path} cannot be read: {error}; restore it, or use another data folder") from error
    if found.get("version") != FORMAT_VERSION:
        raise WrongDataFolder(f"{path} has version {found.get('version')}; only {FORMAT_VERSION} is known")
    if identity.node_id != node_id:
        raise WrongDataFolder(
            f"{path} says that this folder belongs to node {identity.node_id}, and this is node {node_id}; "
            f"start with node.id={identity.node_id}, or use another data folder"
        )
    return identity


def encode_id(value: UUID) -> str:
    """As Kafka prints ids: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_id(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(f"{text} is no id") from error


def _printable(new_id: Callable[[], UUID]) -> UUID:
    """An id that does not begin with a dash, which command lines would take for an option. Kafka does the same."""
    while True:
        candidate = new_id()
        if not encode_id(candidate).startswith("-"):
            return candidate
