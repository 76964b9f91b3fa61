"""The round in which a classic group forms a generation, as one member takes part in it: what it offers, which protocol
was chosen, what it assigns if it leads, what it gets; and afterwards, whether what the round was held for still holds.

Sends nothing. What makes no sense in an answer raises InconsistentGroupProtocol.
"""

from __future__ import annotations

from oncelog.client.consumer_records import NO_GENERATION
from oncelog.client.membership.consumer_protocol import PROTOCOL_TYPE, decode_assignment, encode_subscription
from oncelog.client.membership.leader import Leader
from oncelog.client.membership.membership import MembershipSettings
from oncelog.client.metadata_cache import MetadataCache
from oncelog.errors import InconsistentGroupProtocol
from oncelog.types import TopicPartition
from oncelog.wire.codec import MalformedMessage, Message


class ClassicRound:
    def __init__(self, settings: MembershipSettings, metadata: MetadataCache) -> None:
        self.topics: frozenset[str] = frozenset()
        """What we joined for."""
        self.protocol_name = ""
        self.assignments: dict[str, bytes] = {}
        """What each member gets, if we lead."""
        self._settings = settings
        self._metadata = metadata
        self._leader: Leader | None = None
        self._last_owned: frozenset[TopicPartition] = frozenset()  # what sticky assignors remember, and since when
        self._last_generation_id = NO_GENERATION

    def begin(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation_id: int) -> dict[str, bytes]:
        """What we say of ourselves in JoinGroup, by assignor. `owned` is from that generation."""
        self.topics = topics
        return {
            assignor.name: encode_subscription(
                topics,
                user_data=assignor.user_data(self._last_owned, self._last_generation_id),
                owned=owned,
                generation_id=generation_id,
                rack=self._settings.client_rack or None,
            )
            for assignor in self._settings.assignors
        }

    def joined(self, body: Message) -> bool:
        """Takes in the answer to JoinGroup. Returns whether `assign` comes before SyncGroup."""
        self.protocol_name = body["protocol_name"] or ""
        assignor = next((one for one in self._settings.assignors if one.name == self.protocol_name), None)
        if assignor is None or body["protocol_type"] not in (None, PROTOCOL_TYPE):
            what = f"{body['protocol_type']} {self.protocol_name!r}"
            raise InconsistentGroupProtocol(f"the group uses {what}, which this member did not offer")
        self.assignments = {}
        self._leader = None
        if body["leader"] != body["member_id"]:
            return False
        self._leader = Leader(assignor, body["members"], self._metadata)
        if body["skip_assignment"]:
            self._leader.skip()
            return False
        return True

    @property
    def is_led(self) -> bool:
        """By us."""
        return self._leader is not None

    @property
    def knows_topics(self) -> bool:
        """For the leader: what all members want is known well enough to be assigned."""
        assert self._leader is not None
        return self._leader.knows_topics

    def assign(self) -> None:
        """For the leader: fills `assignments`. Raises whatever an assignor of the user's does."""
        assert self._leader is not None
        self.assignments = self._leader.assign()

    def assigned(self, body: Message, generation_id: int) -> frozenset[TopicPartition]:
        """What the answer to SyncGroup gives us."""
        try:
            if body["protocol_name"] not in (None, self.protocol_name):
                raise MalformedMessage(f"it is made for the protocol {body['protocol_name']!r}")
            assigned = decode_assignment(body["assignment"])
        except MalformedMessage as garbled:
            raise InconsistentGroupProtocol(f"the leader's assignment makes no sense: {garbled}") from garbled
        self._last_owned, self._last_generation_id = assigned, generation_id
        return assigned

    # --- afterwards -------------------------------------------------------------------------------------------------

    @property
    def group_topics(self) -> frozenset[str]:
        """What all members want, as far as we are the one to know."""
        return frozenset() if self._leader is None else self._leader.topics

    def why_again(self, topics: frozenset[str] | None) -> str | None:
        """The topics, of which these are ours by now, are not those any more that the group joined for."""
        if topics not in (None, self.topics):
            return "the topics of the subscription changed"
        if self._leader is not None and self._leader.is_outdated:
            return "topics of the group came, went or grew"
        return None

    def forget(self) -> None:
        """What we had is others' by now."""
        self._last_owned = frozenset()
        self._last_generation_id = NO_GENERATION
        self._leader = None
