"""What must be right outside the file before a pipeline starts: folders, brokers, topics, the master.

A shell: it asks, and makes what it was told to make. Collects problems, each with its line, and changes nothing while
it checks.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Final

from oncelog.admin import Admin
from oncelog.client.config import ClientConfig
from oncelog.client.settings import nearest
from oncelog.errors import OncelogError, TopicAlreadyExists
from oncelog.printable import counted
from oncelog.spark.checkpoint import Checkpoint
from oncelog.spark.options import CLIENT_PREFIX
from oncelog.spark.pipeline.document import Problem
from oncelog.spark.pipeline.values import BOOTSTRAP, Pipeline, Sink, Source
from oncelog.spark.sink.checkpoint import OWNER as PREFIX
from oncelog.spark.sink.checkpoint import check_owner

OWNER_FILE: Final = "oncelog-pipeline.json"
MASTER_TIMEOUT_S: Final = 10.0
DEFAULT_MASTER_PORT: Final = 7077
MASTER_SCHEME: Final = "spark://"


def problems_outside(pipeline: Pipeline, *, is_startable: bool = True) -> list[Problem]:
    """If the section [pipeline] is wrong, what it says is not looked at."""
    return [
        *(_checkpoint_problems(pipeline) if is_startable else ()),
        *(master_problems(pipeline) if is_startable else ()),
        *_path_problems(pipeline.sources),
        *_topic_problems(pipeline),
    ]


def prepare(pipeline: Pipeline) -> list[str]:
    """Make what may be made, now that everything was checked. Says what was made."""
    made = []
    for sink in pipeline.sinks:
        if sink.topic is not None and sink.create_partitions is not None and _create(sink, sink.topic):
            made.append(f"topic {sink.topic} with {counted(sink.create_partitions, 'partition')}")
    if _is_local(pipeline.checkpoint):
        os.makedirs(pipeline.checkpoint, exist_ok=True)
        with open(os.path.join(pipeline.checkpoint, OWNER_FILE), "w") as file:
            json.dump({"pipeline": pipeline.name}, file)
    return made


# --- the checkpoint ---------------------------------------------------------------------------------------------------


def _is_local(path: str) -> bool:
    return "://" not in path


def _checkpoint_problems(pipeline: Pipeline) -> Iterator[Problem]:
    folder = pipeline.checkpoint
    if not _is_local(folder):
        return
    text = _owner_problem(folder, pipeline.name) if os.path.exists(folder) else _making_problem(folder)
    if text is not None:
        yield pipeline.section.problem(f'"checkpoint": {text}', "checkpoint")
        return
    for sink in pipeline.sinks:
        if PREFIX in sink.options:
            try:
                check_owner(Checkpoint(pipeline.checkpoint_of(sink)), sink.options[PREFIX])
            except OncelogError as error:
                yield sink.problem(str(error), PREFIX, "name")


def _owner_problem(folder: str, name: str) -> str | None:
    if not os.path.isdir(folder):
        return f"{folder} is not a folder"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written to"
    if not os.listdir(folder):
        return None
    try:
        with open(os.path.join(folder, OWNER_FILE)) as file:
            owner = json.load(file)["pipeline"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{folder} has files and is not a checkpoint of a pipeline ({OWNER_FILE} would say so); choose another"
    if owner != name:
        return f'{folder} belongs to the pipeline "{owner}"; choose another folder, or give the pipeline its old name'
    return None


def _making_problem(folder: str) -> str | None:
    parent = os.path.dirname(folder)
    while not os.path.exists(parent):
        parent = os.path.dirname(parent)
    if os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK):
        return None
    return f"{folder} cannot be made: {parent} cannot be written to"


# --- the master, and files that are read ------------------------------------------------------------------------------


def master_problems(pipeline: Pipeline) -> Iterator[Problem]:
    """Spark itself would try for minutes."""
    if not pipeline.master.startswith(MASTER_SCHEME):
        return
    failures = []
    for address in pipeline.master.removeprefix(MASTER_SCHEME).split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection(
                (host or address, int(port) if host else DEFAULT_MASTER_PORT), MASTER_TIMEOUT_S
            ):
                return
        except (OSError, ValueError) as error:
            failures.append(f"{address}: {error}")
    yield pipeline.section.problem(f'"master" does not answer ({"; ".join(failures)}): is it started?', "master")


def _path_problems(sources: Iterable[Source]) -> Iterator[Problem]:
    for source in sources:
        path = source.options.get("path")
        is_plain = path is not None and _is_local(path) and not any(sign in path for sign in "*?[{")
        if is_plain and not os.path.exists(str(path)):
            yield source.section.problem(f'"path": there is no {path}', "path")


# --- topics -----------------------------------------------------------------------------------------------------------


def _topic_problems(pipeline: Pipeline) -> Iterator[Problem]:
    known: dict[str, frozenset[str] | str] = {}
    members: tuple[Source | Sink, ...] = (*pipeline.sources, *pipeline.sinks)
    for member in members:
        topics = _topics_of(member)
        if BOOTSTRAP not in member.options:
            continue
        servers = member.options[BOOTSTRAP]
        if servers not in known:
            known[servers] = _topics_at(member.options)
        found = known[servers]
        if isinstance(found, str):
            yield member.section.problem(found, BOOTSTRAP)
            continue
        for topic in topics:
            if topic not in found:
                yield member.section.problem(_missing_topic(topic, servers, found, member), *_TOPIC_KEYS)


_TOPIC_KEYS: Final = ("topic", "subscribe", "assign")


def _topics_of(member: Source | Sink) -> tuple[str, ...]:
    """Those that must be there already."""
    if isinstance(member, Sink):
        return () if member.topic is None or member.create_partitions is not None else (member.topic,)
    if "subscribe" in member.options:
        return tuple(topic.strip() for topic in member.options["subscribe"].split(","))
    return tuple(json.loads(member.options["assign"])) if "assign" in member.options else ()


def _missing_topic(topic: str, servers: str, found: frozenset[str], member: Source | Sink) -> str:
    near = nearest(topic, sorted(found))
    hint = f'; did you mean "{near}"?' if near else ""
    make = "add create = true, or" if isinstance(member, Sink) else "make it with"
    return f'there is no topic "{topic}" at {servers}{hint} ({make} `oncelog topics create {topic}`)'


def _topics_at(options: Any) -> frozenset[str] | str:
    """The names of all topics, or why nobody can say."""
    try:
        with Admin(_admin_settings(options)) as admin:
            return frozenset(topic.name for topic in admin.list_topics())
    except OncelogError as error:
        return str(error)


def _create(sink: Sink, topic: str) -> bool:
    with Admin(_admin_settings(sink.options)) as admin:
        try:
            admin.create_topic(topic, partitions=sink.create_partitions or 1)
        except TopicAlreadyExists:
            return False
    return True


def _admin_settings(options: Any) -> dict[str, str]:
    """What matters for asking about topics; the rest is for producers and consumers."""
    known = {field.name for field in fields(ClientConfig)}
    settings = {
        key.removeprefix(CLIENT_PREFIX): value for key, value in options.items() if key.startswith(CLIENT_PREFIX)
    }
    return {key: value for key, value in settings.items() if key.replace(".", "_") in known}
