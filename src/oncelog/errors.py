"""Kafka's errors as exceptions: one class per error code, named after Kafka's own constant.

`OUT_OF_ORDER_SEQUENCE_NUMBER` (45) is `OutOfOrderSequenceNumber`. A handler raises the class with a message that
says what was found and what was expected; the wire carries the code, and the message where the API has a field
for it. `retriable` says whether sending the same request again can succeed; `stale_metadata` whether the client
should refresh its metadata first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

MAX_MESSAGE_CHARACTERS = 1_000
"""How long an error's message may be: it may repeat what a client sent, and must fit an answer, once per item."""


class OncelogError(Exception):
    """Base of everything oncelog raises on purpose."""


def clipped(message: str) -> str:
    """So much of an error's message as is told."""
    half = MAX_MESSAGE_CHARACTERS // 2
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else f"{message[:half]}...{message[-half:]}"


class KafkaError(OncelogError):
    """An error that has a code in Kafka's protocol."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    stale_metadata: ClassVar[bool] = False
    record_errors: Sequence[tuple[int, str]] = ()
    """Of a refused batch: which of its records are at fault, and what is wrong with each."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(clipped(message or self._default_message()))

    @property
    def message(self) -> str:
        return str(self.args[0])

    @classmethod
    def _default_message(cls) -> str:
        return (cls.__doc__ or cls.name).strip()


NONE = 0


class UnknownServerError(KafkaError):
    """The broker met an error it has no code for; its own log says more."""

    code = -1
    name = "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRange(KafkaError):
    """The offset lies outside the log; reset the position to the earliest or latest offset."""

    code = 1
    name = "OFFSET_OUT_OF_RANGE"


class CorruptMessage(KafkaError):
    """A record batch is damaged: its checksum or its structure is wrong."""

    code = 2
    name = "CORRUPT_MESSAGE"
    retriable = True


class UnknownTopicOrPartition(KafkaError):
    """No such topic or partition on this broker; create it, or refresh the metadata."""

    code = 3
    name = "UNKNOWN_TOPIC_OR_PARTITION"
    retriable = True
    stale_metadata = True


class InvalidFetchSize(KafkaError):
    """Invalid fetch size."""

    code = 4
    name = "INVALID_FETCH_SIZE"


class LeaderNotAvailable(KafkaError):
    """Leader not available."""

    code = 5
    name = "LEADER_NOT_AVAILABLE"
    retriable = True
    stale_metadata = True


class NotLeaderOrFollower(KafkaError):
    """This broker does not lead the partition; refresh the metadata and ask the leader."""

    code = 6
    name = "NOT_LEADER_OR_FOLLOWER"
    retriable = True
    stale_metadata = True


class RequestTimedOut(KafkaError):
    """Request timed out."""

    code = 7
    name = "REQUEST_TIMED_OUT"
    retriable = True


class BrokerNotAvailable(KafkaError):
    """Broker not available."""

    code = 8
    name = "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailable(KafkaError):
    """Replica not available."""

    code = 9
    name = "REPLICA_NOT_AVAILABLE"
    retriable = True
    stale_metadata = True


class MessageTooLarge(KafkaError):
    """The batch is larger than `max.message.bytes` of the topic; split it or raise the limit."""

    code = 10
    name = "MESSAGE_TOO_LARGE"


class StaleControllerEpoch(KafkaError):
    """Stale controller epoch."""

    code = 11
    name = "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLarge(KafkaError):
    """Offset metadata too large."""

    code = 12
    name = "OFFSET_METADATA_TOO_LARGE"


class NetworkException(KafkaError):
    """Network exception."""

    code = 13
    name = "NETWORK_EXCEPTION"
    retriable = True
    stale_metadata = True


class CoordinatorLoadInProgress(KafkaError):
    """Coordinator load in progress."""

    code = 14
    name = "COORDINATOR_LOAD_IN_PROGRESS"
    retriable = True


class CoordinatorNotAvailable(KafkaError):
    """No coordinator can serve this key now; retry later."""

    code = 15
    name = "COORDINATOR_NOT_AVAILABLE"
    retriable = True


class NotCoordinator(KafkaError):
    """Not coordinator."""

    code = 16
    name = "NOT_COORDINATOR"
    retriable = True


class InvalidTopicException(KafkaError):
    """Topic names hold 1 to 249 characters of [a-zA-Z0-9._-], and are neither `.` nor `..`."""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(KafkaError):
    """Record list too large."""

    code = 18
    name = "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicas(KafkaError):
    """Not enough replicas."""

    code = 19
    name = "NOT_ENOUGH_REPLICAS"
    retriable = True


class NotEnoughReplicasAfterAppend(KafkaError):
    """Not enough replicas after append."""

    code = 20
    name = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    retriable = True


class InvalidRequiredAcks(KafkaError):
    """`acks` is 0, 1 or -1 (all)."""

    code = 21
    name = "INVALID_REQUIRED_ACKS"


class IllegalGeneration(KafkaError):
    """Illegal generation."""

    code = 22
    name = "ILLEGAL_GENERATION"


class InconsistentGroupProtocol(KafkaError):
    """Inconsistent group protocol."""

    code = 23
    name = "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupId(KafkaError):
    """Invalid group id."""

    code = 24
    name = "INVALID_GROUP_ID"


class UnknownMemberId(KafkaError):
    """Unknown member id."""

    code = 25
    name = "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeout(KafkaError):
    """Invalid session timeout."""

    code = 26
    name = "INVALID_SESSION_TIMEOUT"


class RebalanceInProgress(KafkaError):
    """Rebalance in progress."""

    code = 27
    name = "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSize(KafkaError):
    """Invalid commit offset size."""

    code = 28
    name = "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailed(KafkaError):
    """Topic authorization failed."""

    code = 29
    name = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailed(KafkaError):
    """Group authorization failed."""

    code = 30
    name = "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailed(KafkaError):
    """Cluster authorization failed."""

    code = 31
    name = "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestamp(KafkaError):
    """Invalid timestamp."""

    code = 32
    name = "INVALID_TIMESTAMP"


class UnsupportedSaslMechanism(KafkaError):
    """Unsupported sasl mechanism."""

    code = 33
    name = "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslState(KafkaError):
    """Illegal sasl state."""

    code = 34
    name = "ILLEGAL_SASL_STATE"


class UnsupportedVersion(KafkaError):
    """This API or version is not served here; ask ApiVersions for what is."""

    code = 35
    name = "UNSUPPORTED_VERSION"


class TopicAlreadyExists(KafkaError):
    """A topic of this name exists already."""

    code = 36
    name = "TOPIC_ALREADY_EXISTS"


class InvalidPartitions(KafkaError):
    """The partition count is not one this request may ask for."""

    code = 37
    name = "INVALID_PARTITIONS"


class InvalidReplicationFactor(KafkaError):
    """The replication factor does not fit the number of brokers."""

    code = 38
    name = "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignment(KafkaError):
    """Invalid replica assignment."""

    code = 39
    name = "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfig(KafkaError):
    """A config key or value is not valid."""

    code = 40
    name = "INVALID_CONFIG"


class NotController(KafkaError):
    """Not controller."""

    code = 41
    name = "NOT_CONTROLLER"
    retriable = True


class InvalidRequest(KafkaError):
    """The request contradicts itself or a limit."""

    code = 42
    name = "INVALID_REQUEST"


class UnsupportedForMessageFormat(KafkaError):
    """Unsupported for message format."""

    code = 43
    name = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolation(KafkaError):
    """Policy violation."""

    code = 44
    name = "POLICY_VIOLATION"


class OutOfOrderSequenceNumber(KafkaError):
    """The sequence number does not follow this producer's last one: a gap, an old duplicate or a partial overlap."""

    code = 45
    name = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(KafkaError):
    """The broker already has this batch; treat it as written."""

    code = 46
    name = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(KafkaError):
    """A newer epoch of this producer exists, or the epoch does not fit; this instance must stop or re-initialise."""

    code = 47
    name = "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(KafkaError):
    """The transaction is not in a state that allows this."""

    code = 48
    name = "INVALID_TXN_STATE"


class InvalidProducerIdMapping(KafkaError):
    """The producer id does not belong to the transactional id (it may have expired)."""

    code = 49
    name = "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeout(KafkaError):
    """Invalid transaction timeout."""

    code = 50
    name = "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactions(KafkaError):
    """Concurrent transactions."""

    code = 51
    name = "CONCURRENT_TRANSACTIONS"
    retriable = True


class TransactionCoordinatorFenced(KafkaError):
    """A newer transaction coordinator has spoken; this one's marker is refused."""

    code = 52
    name = "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailed(KafkaError):
    """Transactional id authorization failed."""

    code = 53
    name = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabled(KafkaError):
    """Security disabled."""

    code = 54
    name = "SECURITY_DISABLED"


class OperationNotAttempted(KafkaError):
    """Operation not attempted."""

    code = 55
    name = "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(KafkaError):
    """The disk behind this partition failed; the partition is offline until the broker restarts with a healthy disk."""

    code = 56
    name = "KAFKA_STORAGE_ERROR"
    retriable = True
    stale_metadata = True


class LogDirNotFound(KafkaError):
    """Log dir not found."""

    code = 57
    name = "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailed(KafkaError):
    """Sasl authentication failed."""

    code = 58
    name = "SASL_AUTHENTICATION_FAILED"


class UnknownProducerId(KafkaError):
    """The broker holds no state for this producer id (it may have expired)."""

    code = 59
    name = "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgress(KafkaError):
    """Reassignment in progress."""

    code = 60
    name = "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabled(KafkaError):
    """Delegation token auth disabled."""

    code = 61
    name = "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFound(KafkaError):
    """Delegation token not found."""

    code = 62
    name = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(KafkaError):
    """Delegation token owner mismatch."""

    code = 63
    name = "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(KafkaError):
    """Delegation token request not allowed."""

    code = 64
    name = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailed(KafkaError):
    """Delegation token authorization failed."""

    code = 65
    name = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpired(KafkaError):
    """Delegation token expired."""

    code = 66
    name = "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalType(KafkaError):
    """Invalid principal type."""

    code = 67
    name = "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroup(KafkaError):
    """Non empty group."""

    code = 68
    name = "NON_EMPTY_GROUP"


class GroupIdNotFound(KafkaError):
    """Group id not found."""

    code = 69
    name = "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFound(KafkaError):
    """The fetch session is unknown here; start a new one with a full fetch."""

    code = 70
    name = "FETCH_SESSION_ID_NOT_FOUND"
    retriable = True


class InvalidFetchSessionEpoch(KafkaError):
    """The fetch session epoch does not follow the last one; start a new session."""

    code = 71
    name = "INVALID_FETCH_SESSION_EPOCH"
    retriable = True


class ListenerNotFound(KafkaError):
    """Listener not found."""

    code = 72
    name = "LISTENER_NOT_FOUND"
    retriable = True
    stale_metadata = True


class TopicDeletionDisabled(KafkaError):
    """Topic deletion disabled."""

    code = 73
    name = "TOPIC_DELETION_DISABLED"


class FencedLeaderEpoch(KafkaError):
    """The leader epoch sent is older than the broker's; refresh the metadata."""

    code = 74
    name = "FENCED_LEADER_EPOCH"
    retriable = True
    stale_metadata = True


class UnknownLeaderEpoch(KafkaError):
    """The leader epoch sent is newer than the broker's; retry once it has caught up."""

    code = 75
    name = "UNKNOWN_LEADER_EPOCH"
    retriable = True


class UnsupportedCompressionType(KafkaError):
    """The compression type is unknown here, or not allowed for this version."""

    code = 76
    name = "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpoch(KafkaError):
    """Stale broker epoch."""

    code = 77
    name = "STALE_BROKER_EPOCH"


class OffsetNotAvailable(KafkaError):
    """Offset not available."""

    code = 78
    name = "OFFSET_NOT_AVAILABLE"
    retriable = True


class MemberIdRequired(KafkaError):
    """Member id required."""

    code = 79
    name = "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailable(KafkaError):
    """Preferred leader not available."""

    code = 80
    name = "PREFERRED_LEADER_NOT_AVAILABLE"
    retriable = True
    stale_metadata = True


class GroupMaxSizeReached(KafkaError):
    """Group max size reached."""

    code = 81
    name = "GROUP_MAX_SIZE_REACHED"


class FencedInstanceId(KafkaError):
    """Fenced instance id."""

    code = 82
    name = "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailable(KafkaError):
    """Eligible leaders not available."""

    code = 83
    name = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    retriable = True
    stale_metadata = True


class ElectionNotNeeded(KafkaError):
    """Election not needed."""

    code = 84
    name = "ELECTION_NOT_NEEDED"
    retriable = True
    stale_metadata = True


class NoReassignmentInProgress(KafkaError):
    """No reassignment in progress."""

    code = 85
    name = "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopic(KafkaError):
    """Group subscribed to topic."""

    code = 86
    name = "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecord(KafkaError):
    """The record batch breaks a rule of the format; it is refused and must be mended before it is sent again."""

    code = 87
    name = "INVALID_RECORD"


class UnstableOffsetCommit(KafkaError):
    """Unstable offset commit."""

    code = 88
    name = "UNSTABLE_OFFSET_COMMIT"
    retriable = True


class ThrottlingQuotaExceeded(KafkaError):
    """Throttling quota exceeded."""

    code = 89
    name = "THROTTLING_QUOTA_EXCEEDED"
    retriable = True


class ProducerFenced(KafkaError):
    """Producer fenced."""

    code = 90
    name = "PRODUCER_FENCED"


class ResourceNotFound(KafkaError):
    """Resource not found."""

    code = 91
    name = "RESOURCE_NOT_FOUND"


class DuplicateResource(KafkaError):
    """Duplicate resource."""

    code = 92
    name = "DUPLICATE_RESOURCE"


class UnacceptableCredential(KafkaError):
    """Unacceptable credential."""

    code = 93
    name = "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSet(KafkaError):
    """Inconsistent voter set."""

    code = 94
    name = "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersion(KafkaError):
    """Invalid update version."""

    code = 95
    name = "INVALID_UPDATE_VERSION"


class FeatureUpdateFailed(KafkaError):
    """Feature update failed."""

    code = 96
    name = "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationFailure(KafkaError):
    """Principal deserialization failure."""

    code = 97
    name = "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFound(KafkaError):
    """Snapshot not found."""

    code = 98
    name = "SNAPSHOT_NOT_FOUND"


class PositionOutOfRange(KafkaError):
    """Position out of range."""

    code = 99
    name = "POSITION_OUT_OF_RANGE"


class UnknownTopicId(KafkaError):
    """No topic with this id; refresh the metadata."""

    code = 100
    name = "UNKNOWN_TOPIC_ID"
    retriable = True
    stale_metadata = True


class DuplicateBrokerRegistration(KafkaError):
    """Duplicate broker registration."""

    code = 101
    name = "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegistered(KafkaError):
    """Broker id not registered."""

    code = 102
    name = "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicId(KafkaError):
    """Inconsistent topic id."""

    code = 103
    name = "INCONSISTENT_TOPIC_ID"
    retriable = True
    stale_metadata = True


class InconsistentClusterId(KafkaError):
    """Inconsistent cluster id."""

    code = 104
    name = "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFound(KafkaError):
    """Transactional id not found."""

    code = 105
    name = "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(KafkaError):
    """Fetch session topic id error."""

    code = 106
    name = "FETCH_SESSION_TOPIC_ID_ERROR"
    retriable = True


class IneligibleReplica(KafkaError):
    """Ineligible replica."""

    code = 107
    name = "INELIGIBLE_REPLICA"


class NewLeaderElected(KafkaError):
    """New leader elected."""

    code = 108
    name = "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorage(KafkaError):
    """Offset moved to tiered storage."""

    code = 109
    name = "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpoch(KafkaError):
    """Fenced member epoch."""

    code = 110
    name = "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceId(KafkaError):
    """Unreleased instance id."""

    code = 111
    name = "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignor(KafkaError):
    """Unsupported assignor."""

    code = 112
    name = "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpoch(KafkaError):
    """Stale member epoch."""

    code = 113
    name = "STALE_MEMBER_EPOCH"


class MismatchedEndpointType(KafkaError):
    """Mismatched endpoint type."""

    code = 114
    name = "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointType(KafkaError):
    """Unsupported endpoint type."""

    code = 115
    name = "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerId(KafkaError):
    """Unknown controller id."""

    code = 116
    name = "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionId(KafkaError):
    """Unknown subscription id."""

    code = 117
    name = "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLarge(KafkaError):
    """Telemetry too large."""

    code = 118
    name = "TELEMETRY_TOO_LARGE"


class InvalidRegistration(KafkaError):
    """Invalid registration."""

    code = 119
    name = "INVALID_REGISTRATION"


class TransactionAbortable(KafkaError):
    """Transaction abortable."""

    code = 120
    name = "TRANSACTION_ABORTABLE"


class InvalidRecordState(KafkaError):
    """Invalid record state."""

    code = 121
    name = "INVALID_RECORD_STATE"


class ShareSessionNotFound(KafkaError):
    """Share session not found."""

    code = 122
    name = "SHARE_SESSION_NOT_FOUND"
    retriable = True


class InvalidShareSessionEpoch(KafkaError):
    """Invalid share session epoch."""

    code = 123
    name = "INVALID_SHARE_SESSION_EPOCH"
    retriable = True


class FencedStateEpoch(KafkaError):
    """Fenced state epoch."""

    code = 124
    name = "FENCED_STATE_EPOCH"


class InvalidVoterKey(KafkaError):
    """Invalid voter key."""

    code = 125
    name = "INVALID_VOTER_KEY"


class DuplicateVoter(KafkaError):
    """Duplicate voter."""

    code = 126
    name = "DUPLICATE_VOTER"


class VoterNotFound(KafkaError):
    """Voter not found."""

    code = 127
    name = "VOTER_NOT_FOUND"


class InvalidRegularExpression(KafkaError):
    """Invalid regular expression."""

    code = 128
    name = "INVALID_REGULAR_EXPRESSION"


class RebootstrapRequired(KafkaError):
    """Rebootstrap required."""

    code = 129
    name = "REBOOTSTRAP_REQUIRED"


class StreamsInvalidTopology(KafkaError):
    """Streams invalid topology."""

    code = 130
    name = "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpoch(KafkaError):
    """Streams invalid topology epoch."""

    code = 131
    name = "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFenced(KafkaError):
    """Streams topology fenced."""

    code = 132
    name = "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReached(KafkaError):
    """Share session limit reached."""

    code = 133
    name = "SHARE_SESSION_LIMIT_REACHED"
    retriable = True


ERRORS_BY_CODE: dict[int, type[KafkaError]] = {error.code: error for error in KafkaError.__subclasses__()}


def error_for_code(code: int, message: str | None = None) -> KafkaError:
    """The exception for a code that came over the wire; an unknown code keeps its number in the message."""
    error = ERRORS_BY_CODE.get(code)
    if error is None:
        return UnknownServerError(f"error code {code}, which this version of oncelog does not know: {message or ''}")
    return error(message)
