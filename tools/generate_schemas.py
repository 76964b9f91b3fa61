"""Writes src/oncelog/wire/schemas/*.json from the message definitions that Apache Kafka ships inside its jars.

    python tools/generate_schemas.py [DIRECTORY_OF_JARS]

The output depends only on the jars: one file per message, one field per line, names in snake_case, in Kafka's own
format otherwise. Left out: comments, documentation, and what only Kafka's Java generator needs (`entityType`,
`mapKey`, `ignorable`, `zeroCopy`, `listeners`). A version that Kafka marks unstable is not carried.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

DEFAULT_JARS = Path.home() / ".cache" / "oncelog" / "kafka" / "libs"
TARGET = Path(__file__).resolve().parent.parent / "src" / "oncelog" / "wire" / "schemas"


def _words(text: str) -> list[str]:
    return text.split()


APIS = _words("""
Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup
DescribeGroups ListGroups SaslHandshake ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId
OffsetForLeaderEpoch AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers TxnOffsetCommit DescribeAcls CreateAcls
DeleteAcls DescribeConfigs AlterConfigs DescribeLogDirs SaslAuthenticate CreatePartitions DeleteGroups ElectLeaders
IncrementalAlterConfigs AlterPartitionReassignments ListPartitionReassignments OffsetDelete DescribeClientQuotas
AlterClientQuotas DescribeUserScramCredentials AlterUserScramCredentials UpdateFeatures DescribeCluster
DescribeProducers DescribeTransactions ListTransactions ConsumerGroupHeartbeat ConsumerGroupDescribe
ListConfigResources DescribeTopicPartitions
""")

CLIENT_DATA = _words("""
RequestHeader ResponseHeader ConsumerProtocolAssignment ConsumerProtocolSubscription EndTxnMarker LeaderChangeMessage
SnapshotHeaderRecord SnapshotFooterRecord KRaftVersionRecord VotersRecord
""")

METADATA_RECORDS = _words("""
AbortTransactionRecord AccessControlEntryRecord BeginTransactionRecord BrokerRegistrationChangeRecord ClientQuotaRecord
ConfigRecord EndTransactionRecord FeatureLevelRecord FenceBrokerRecord NoOpRecord PartitionChangeRecord PartitionRecord
ProducerIdsRecord RegisterBrokerRecord RegisterControllerRecord RemoveAccessControlEntryRecord RemoveTopicRecord
RemoveUserScramCredentialRecord TopicRecord UnfenceBrokerRecord UnregisterBrokerRecord UserScramCredentialRecord
""")

GROUP_RECORDS = _words("""
ConsumerGroupCurrentMemberAssignment ConsumerGroupMemberMetadata ConsumerGroupMetadata ConsumerGroupPartitionMetadata
ConsumerGroupRegularExpression ConsumerGroupTargetAssignmentMember ConsumerGroupTargetAssignmentMetadata GroupMetadata
LegacyOffsetCommit OffsetCommit
""")

MESSAGES_BY_JAR: dict[str, list[str]] = {
    "kafka-clients": [f"{api}{kind}" for api in APIS for kind in ("Request", "Response")] + CLIENT_DATA,
    "kafka-metadata": METADATA_RECORDS,
    "kafka-group-coordinator": [f"{record}{part}" for record in GROUP_RECORDS for part in ("Key", "Value")],
    "kafka-transaction-coordinator": ["TransactionLogKey", "TransactionLogValue"],
}

FIELD_ATTRIBUTES = ("type", "versions", "nullableVersions", "taggedVersions", "tag", "flexibleVersions", "default")


def snake_case(name: str) -> str:
    """`TopicId` -> `topic_id`, `TopicIDs` -> `topic_ids`."""
    name = re.sub(r"IDs\b", "Ids", name).replace("KRaft", "Kraft")
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return spaced.lower()


def parse_definition(text: str) -> dict[str, Any]:
    return json.loads(re.sub(r"(?m)^\s*//.*$", "", text))


def compact_field(field: dict[str, Any]) -> dict[str, Any]:
    compact: dict[str, Any] = {"name": snake_case(field["name"])}
    # A JSON `null` default is "none given" to Kafka's generator; only the string "null" means null.
    compact.update({key: field[key] for key in FIELD_ATTRIBUTES if field.get(key) is not None})
    if isinstance(compact.get("default"), bool):
        compact["default"] = str(compact["default"]).lower()
    elif "default" in compact:
        compact["default"] = str(compact["default"])
    if "fields" in field:
        compact["fields"] = [compact_field(inner) for inner in field["fields"]]
    return compact


def request_name(name: str) -> str:
    """The request of a response; `ResponseHeader` and all other messages are their own."""
    return f"{name.removesuffix('Response')}Request" if name.endswith("Response") else name


def stable_versions(definition: dict[str, Any], request: dict[str, Any]) -> str:
    """Only requests are marked unstable; their responses go with them."""
    versions: str = definition["validVersions"]
    if not request.get("latestVersionUnstable"):
        return versions
    lowest, _, highest = versions.partition("-")
    return f"{lowest}-{int(highest) - 1}"


def compact_message(definition: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    compact: dict[str, Any] = {"name": definition["name"], "type": definition["type"]}
    if "apiKey" in definition:
        compact["apiKey"] = definition["apiKey"]
    compact["validVersions"] = stable_versions(definition, request)
    compact["flexibleVersions"] = definition["flexibleVersions"]
    if "commonStructs" in definition:
        compact["commonStructs"] = [
            {"name": struct["name"], "fields": [compact_field(field) for field in struct["fields"]]}
            for struct in definition["commonStructs"]
        ]
    compact["fields"] = [compact_field(field) for field in definition["fields"]]
    return compact


def render(value: Any, indent: int = 0) -> str:
    """JSON with one field per line, so that a change of Kafka's shows as a change of lines."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {render(inner, indent)}" for key, inner in value.items()) + "}"
    if isinstance(value, list) and value:
        pad = " " * (indent + 1)
        return "[\n" + ",\n".join(pad + render(inner, indent + 1) for inner in value) + "]"
    return json.dumps(value)


def find_jar(directory: Path, prefix: str) -> Path:
    jars = [path for path in directory.glob(f"{prefix}-*.jar") if re.fullmatch(rf"{prefix}-[\d.]+\.jar", path.name)]
    if len(jars) != 1:
        raise SystemExit(f"expected one {prefix}-VERSION.jar in {directory}, found {len(jars)}")
    return jars[0]


def generate(jars: Path) -> dict[str, str]:
    """The text of every definition, by the message's name."""
    texts = {}
    for prefix, names in MESSAGES_BY_JAR.items():
        with zipfile.ZipFile(find_jar(jars, prefix)) as jar:
            entries = {Path(entry).stem: entry for entry in jar.namelist() if re.match(r"common/\w+/\w+\.json$", entry)}
            for name in names:
                definition = parse_definition(jar.read(entries[name]).decode())
                request = parse_definition(jar.read(entries[request_name(name)]).decode())
                texts[name] = render(compact_message(definition, request)) + "\n"
    return texts


def main(arguments: list[str]) -> int:
    texts = generate(Path(arguments[0]) if arguments else DEFAULT_JARS)
    TARGET.mkdir(parents=True, exist_ok=True)
    for stale in TARGET.glob("*.json"):
        stale.unlink()
    for name, text in texts.items():
        (TARGET / f"{name}.json").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
