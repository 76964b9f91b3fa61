"""The part of `Admin` that deals with consumer groups: who is in them, what they committed, how to change that.

A group's coordinator is asked, once it is found; a list comes from every broker. Offsets of a group that is being read
cannot be changed by anyone but its members: the coordinator answers UNKNOWN_MEMBER_ID, and so do we, with what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from oncelog.admin.coordinators import CoordinatorAdmin, KeyType
from oncelog.admin.values import GroupDescription, GroupListing, GroupMember
from oncelog.client import arguments as checked
from oncelog.client.arguments import OffsetsInput, Partitions
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.client.leaders import by_topic, raise_error
from oncelog.client.metadata import Node
from oncelog.errors import GroupIdNotFound, UnknownMemberId, UnsupportedVersion
from oncelog.types import NO_OFFSET, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import MalformedMessage, Message, decode

T = TypeVar("T")

LAST_OFFSET_FETCH_OF_ONE_GROUP = 7
LAST_OFFSET_COMMIT_BY_NAME = 9
NO_GENERATION = -1
CLASSIC, CONSUMER = "classic", "consumer"
CONSUMER_PROTOCOL = "consumer"
DEAD = "Dead"
OLDEST_ASSIGNMENT = 0
"""Newer versions of an assignment begin like the oldest one."""
ASSIGNMENT_VERSION_BYTES = 2


class GroupAdmin(CoordinatorAdmin):
    def list_groups(
        self, *, states: str | Collection[str] = (), types: str | Collection[str] = ()
    ) -> list[GroupListing]:
        """Every group of the cluster, by name; only those of the given states and types, if any are given."""
        request: Message = {
            "states_filter": checked.texts(states, "states"),
            "types_filter": checked.texts(types, "types"),
        }

        def ask() -> list[GroupListing]:
            found = []
            for node in self._client.refresh_metadata(()).nodes.values():
                answer = self._client.request(ApiKey.LIST_GROUPS, request, node=node)
                raise_error(answer, str(node), "groups of")
                found += [_listing(one) for one in answer["groups"]]
            return found

        return sorted(self._client.retrying(ask), key=lambda group: group.group_id)

    def describe_group(self, group_id: str) -> GroupDescription:
        """Its state, and its members with their partitions. Raises GroupIdNotFound."""
        try:
            return self._describe(
                group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group_id]}, _described_consumer_group
            )
        except (GroupIdNotFound, UnsupportedVersion):
            pass  # a group of the classic protocol, or a broker that knows no other
        described = self._describe(group_id, ApiKey.DESCRIBE_GROUPS, {"groups": [group_id]}, _described_classic_group)
        if described.state == DEAD and not self.list_group_offsets(group_id):
            raise GroupIdNotFound(f"there is no group {group_id!r}; see `oncelog groups list`")
        return described

    def _describe(
        self, group_id: str, api_key: ApiKey, request: Message, read: Callable[[Message], GroupDescription]
    ) -> GroupDescription:
        def ask(coordinator: Node) -> GroupDescription:
            (group,) = self._client.request(api_key, request, node=coordinator)["groups"]
            raise_error(group, group_id, "group")
            return read(group)

        return self._at_group(group_id, ask)

    def list_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed, everywhere; empty for a group that does not exist."""
        request: Message = {"group_id": group_id, "topics": None}

        def ask(coordinator: Node) -> dict[TopicPartition, OffsetAndMetadata]:
            answer = self._client.request(
                ApiKey.OFFSET_FETCH, request, node=coordinator, max_version=LAST_OFFSET_FETCH_OF_ONE_GROUP
            )
            raise_error(answer, group_id, "group")
            found = {}
            for topic in answer["topics"]:
                for one in topic["partitions"]:
                    partition = TopicPartition(topic["name"], one["partition_index"])
                    raise_error(one, str(partition), "partition")
                    if one["committed_offset"] != NO_OFFSET:
                        found[partition] = OffsetAndMetadata(
                            one["committed_offset"], one["metadata"] or "", one["committed_leader_epoch"]
                        )
            return found

        return self._at_group(group_id, ask)

    def alter_group_offsets(self, group_id: str, offsets: OffsetsInput) -> None:
        """Commit offsets in the name of a group that nobody reads at the moment. Creates the group if need be:
        `alter_group_offsets("billing", {("orders", 0): 5})`."""
        wanted = checked.offsets(offsets)
        request: Message = {
            "group_id": group_id,
            "generation_id_or_member_epoch": NO_GENERATION,
            "member_id": "",
            "topics": by_topic(
                wanted,
                lambda partition: {
                    "committed_offset": wanted[partition].offset,
                    "committed_leader_epoch": wanted[partition].leader_epoch,
                    "committed_metadata": wanted[partition].metadata,
                },
            ),
        }

        def ask(coordinator: Node) -> None:
            answer = self._client.request(
                ApiKey.OFFSET_COMMIT, request, node=coordinator, max_version=LAST_OFFSET_COMMIT_BY_NAME
            )
            self._raise_partition_errors(answer, group_id)

        self._at_group(group_id, ask)  # an offset commit may be repeated: it says the same again

    def delete_group_offsets(self, group_id: str, partitions: Partitions) -> None:
        """Forget what a group has committed for some partitions. Raises GroupSubscribedToTopic while it is read."""
        request: Message = {"group_id": group_id, "topics": by_topic(checked.partitions(partitions), lambda _: {})}

        def ask(coordinator: Node) -> None:
            answer = self._client.request(ApiKey.OFFSET_DELETE, request, node=coordinator)
            raise_error(answer, group_id, "group")
            self._raise_partition_errors(answer, group_id)

        self._at_group(group_id, ask)

    def delete_group(self, group_id: str) -> None:
        """Raises NonEmptyGroup, GroupIdNotFound."""
        request: Message = {"groups_names": [group_id]}

        def ask(coordinator: Node) -> None:
            (result,) = self._client.request(ApiKey.DELETE_GROUPS, request, node=coordinator)["results"]
            raise_error(result, group_id, "group")

        self._at_group(group_id, ask)

    def remove_static_members(self, group_id: str, instance_ids: str | Iterable[str]) -> None:
        """Let static members go at once, before their sessions end."""
        names = checked.texts(instance_ids, "instance_ids")
        members = [{"member_id": "", "group_instance_id": one, "reason": "removed by Admin"} for one in names]

        def ask(coordinator: Node) -> None:
            answer = self._client.request(
                ApiKey.LEAVE_GROUP, {"group_id": group_id, "members": members}, node=coordinator
            )
            raise_error(answer, group_id, "group")
            for one in answer["members"]:
                raise_error(one, one["group_instance_id"], "static member")

        self._at_group(group_id, ask)

    def _at_group(self, group_id: str, ask: Callable[[Node], T]) -> T:
        checked.text(group_id, "group_id")
        return self._at_coordinator(KeyType.GROUP, group_id, ask)

    @staticmethod
    def _raise_partition_errors(answer: Message, group_id: str) -> None:
        for topic in answer["topics"]:
            for one in topic["partitions"]:
                if one["error_code"] == UnknownMemberId.code:
                    raise UnknownMemberId(
                        f"group {group_id!r} has members, which alone may change its offsets: stop them first"
                    )
                raise_error(one, f"{topic['name']}-{one['partition_index']}", "partition")


def _listing(group: Message) -> GroupListing:
    return GroupListing(
        group["group_id"], group.get("group_type") or CLASSIC, group.get("group_state") or "", group["protocol_type"]
    )


def _described_classic_group(group: Message) -> GroupDescription:
    is_consumer = group["protocol_type"] in (CONSUMER_PROTOCOL, "")
    return GroupDescription(
        group_id=group["group_id"],
        type=CLASSIC,
        state=group["group_state"],
        protocol_type=group["protocol_type"],
        assignor=group["protocol_data"],
        epoch=None,
        members=tuple(
            GroupMember(
                member_id=one["member_id"],
                instance_id=one.get("group_instance_id"),
                client_id=one["client_id"],
                client_host=one["client_host"],
                assignment=_classic_assignment(one["member_assignment"]) if is_consumer else frozenset(),
                epoch=None,
            )
            for one in group["members"]
        ),
    )


def _classic_assignment(data: bytes) -> frozenset[TopicPartition]:
    """What the leader of the group wrote; members may be other programs, and say anything."""
    if not data:
        return frozenset()
    try:
        assignment, _ = decode("ConsumerProtocolAssignment", OLDEST_ASSIGNMENT, data, ASSIGNMENT_VERSION_BYTES)
    except MalformedMessage:
        return frozenset()
    return frozenset(
        TopicPartition(topic["topic"], index)
        for topic in assignment["assigned_partitions"]
        for index in topic["partitions"]
    )


def _described_consumer_group(group: Message) -> GroupDescription:
    return GroupDescription(
        group_id=group["group_id"],
        type=CONSUMER,
        state=group["group_state"],
        protocol_type=CONSUMER_PROTOCOL,
        assignor=group["assignor_name"],
        epoch=group["group_epoch"],
        members=tuple(
            GroupMember(
                member_id=one["member_id"],
                instance_id=one["instance_id"],
                client_id=one["client_id"],
                client_host=one["client_host"],
                assignment=frozenset(
                    TopicPartition(topic["topic_name"], index)
                    for topic in one["assignment"]["topic_partitions"]
                    for index in topic["partitions"]
                ),
                epoch=one["member_epoch"],
            )
            for one in group["members"]
        ),
    )
