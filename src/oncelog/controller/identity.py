"""`meta.properties`: which cluster, node and directory a data folder belongs to, in Kafka's format.

Written once, when a folder is first used. A folder that belongs to another node is refused: two nodes that shared one
history would both be wrong.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from uuid import UUID

from oncelog.errors import OncelogError
from oncelog.log.folders import NOT_LOGS, partition_of, see_doctor
from oncelog.log.storage import Storage
from oncelog.named_tuple import NamedTuple
from oncelog.printable import excerpt

FILE_NAME = "meta.properties"
FORMAT_VERSION = "1"
CHECKPOINT_SUFFIX = "-checkpoint"


class WrongDataFolder(OncelogError):
    """The data folder belongs to another node, or its meta.properties cannot be read."""


class Identity(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: UUID


def load_or_create(storage: Storage, directory: str, node_id: int, new_id: Callable[[], UUID]) -> Identity:
    path = f"{directory}/{FILE_NAME}"
    if storage.exists(path):
        return _checked_node(read_identity(storage, directory), path, node_id)
    used = next((name for name in storage.list_directory(directory) if _tells_of_use(name)), None)
    if used is not None:
        raise WrongDataFolder(f"{path} is missing, and the folder is not new ({used}). {see_doctor(directory)}")
    identity = Identity(encode_id(_printable(new_id)), node_id, _printable(new_id))
    write_identity(storage, directory, identity)
    return identity


def _tells_of_use(name: str) -> bool:
    """Whether a folder that has this in it was somebody's already: the file with its identity comes first."""
    return name in NOT_LOGS or name.endswith(CHECKPOINT_SUFFIX) or partition_of(name) is not None


def write_identity(storage: Storage, directory: str, identity: Identity) -> None:
    lines = (
        f"cluster.id={identity.cluster_id}",
        f"directory.id={encode_id(identity.directory_id)}",
        f"node.id={identity.node_id}",
        f"version={FORMAT_VERSION}",
    )
    storage.write_atomically(f"{directory}/{FILE_NAME}", "".join(f"{line}\n" for line in lines).encode())


def check_noted(found: Identity, noted: Identity | None, directory: str) -> None:
    """`noted` is what the folder was when it was last opened, from a file with a checksum."""
    if noted is not None and noted != found:
        raise WrongDataFolder(
            f"{directory}/{FILE_NAME} is damaged: it says {_in_words(found)}; metadata-end-offset-checkpoint, which "
            f"has a checksum, says that the folder was {_in_words(noted)} when it was last used. "
            f"{see_doctor(directory)}"
        )


def _in_words(identity: Identity) -> str:
    directory_id = encode_id(identity.directory_id)
    return f"cluster {excerpt(identity.cluster_id)}, node {identity.node_id}, directory {directory_id}"


def read_identity(storage: Storage, directory: str) -> Identity:
    """Raises WrongDataFolder if the file is not what was written."""
    path = f"{directory}/{FILE_NAME}"
    text = storage.read_all(path).decode("utf-8", "replace")
    pairs = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    found = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        identity = Identity(found["cluster.id"], int(found["node.id"]), decode_id(found["directory.id"]))
    except KeyError as error:
        raise WrongDataFolder(f"{path} cannot be read: it has no {error.args[0]}. {see_doctor(directory)}") from error
    except ValueError as error:
        told = f"node.id={excerpt(found['node.id'])}, directory.id={excerpt(found['directory.id'])}"
        problem = f"a number and an id were expected, and it has {told}"
        raise WrongDataFolder(f"{path} cannot be read: {problem}. {see_doctor(directory)}") from error
    if found.get("version") != FORMAT_VERSION:
        version = excerpt(found.get("version", ""))
        raise WrongDataFolder(f"{path} has version {version}; only {FORMAT_VERSION} is known. {see_doctor(directory)}")
    return identity


def _checked_node(identity: Identity, path: str, node_id: int) -> Identity:
    if identity.node_id != node_id:
        raise WrongDataFolder(
            f"{path} says that this folder belongs to node {identity.node_id}, and this is node {node_id}; "
            f"start with node.id={identity.node_id}, or use another data folder. {see_doctor(path.rpartition('/')[0])}"
        )
    return identity


def encode_id(value: UUID) -> str:
    """As Kafka prints ids: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_id(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(f"{text} is not an id") from error


def _printable(new_id: Callable[[], UUID]) -> UUID:
    """An id that does not begin with a dash, which command lines would take for an option. Kafka does the same."""
    while True:
        candidate = new_id()
        if not encode_id(candidate).startswith("-"):
            return candidate
