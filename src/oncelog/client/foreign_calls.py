"""What the calls and arguments of confluent-kafka, kafka-python and aiokafka are called here.

Tables: `hinting` puts them into errors. A test goes through what those libraries have, so that none is missing.
"""

from __future__ import annotations

from oncelog.client.hinting import BY_POSITION, Calls

_NO_SASL = "there is no TLS and no SASL yet; connect to a PLAINTEXT listener of the broker"
_CLUSTER_ID = "use Admin(...).describe_cluster().cluster_id"
_TIMEOUT = "use timeout, in seconds"

_ON_DELIVERY = "on_delivery=..., called with (metadata, error)"

_PRODUCER = {
    # confluent-kafka's.
    "produce": f"use send(topic, value, key, {_ON_DELIVERY})",
    "produce_batch": "use send_many(topic, records), or send_table()",
    "purge": "use close(0): what is not delivered fails, and its futures say so",
    "list_topics": "use partitions_for(topic), or Admin(...).list_topics()",
    "cluster_id": _CLUSTER_ID,
    "set_sasl_credentials": _NO_SASL,
    # kafka-python's.
    "bootstrap_connected": "see is_connected",
    "max_usable_produce_magic": "records are always of version 2",
    # Of several.
    "begin_transaction": "use begin(), or `with producer.transaction():` around all of it",
    "commit_transaction": "use commit(), or `with producer.transaction():` around all of it",
    "abort_transaction": "use abort(), or `with producer.transaction():` around all of it",
}
_SEND_OFFSETS = {
    "positions": 'use offsets, a mapping such as {("orders", 0): 5}',
    "group_metadata": "use group, which takes consumer.group_metadata() or a group's name",
    "group_id": "use group, which takes consumer.group_metadata() or a group's name",
}
_NO_MORE_THAN_BROKERS = "; all else is a setting, given by its name"

PRODUCER = Calls(
    methods={
        **_PRODUCER,
        "poll": "leave it out; callbacks run in a thread of the producer's own, and flush() waits for all of them",
        "send_and_wait": "use send(...).result()",
        "create_batch": "use send(): the producer makes batches of records",
        "send_batch": "use send_many(topic, records): the producer makes batches of them",
        "start": "leave it out; it has started",
        "stop": "use close()",
    },
    arguments={
        "send_offsets_to_transaction": _SEND_OFFSETS,
        "metrics": {"raw": "metrics() has one number for each name"},
        "close": {"null_logger": 'use logging.getLogger("oncelog")'},
    },
    constructor=f"make one with Producer(bootstrap_servers, linger_ms=5){_NO_MORE_THAN_BROKERS}",
)

ASYNC_PRODUCER = Calls(
    methods={
        **{name: remedy.replace("`with ", "`async with ") for name, remedy in _PRODUCER.items()},
        "produce_batch": "use send() for each record, and await the futures together, or send_table()",
        "list_topics": "use Admin(...).list_topics()",
        "partitions_for": "use Admin(...).describe_topic(topic).partitions",
        "poll": "leave it out; callbacks run in the event loop, and `await flush()` waits for all of them",
        "send_and_wait": "use `await send(...)`",
        "create_batch": "use send(): the producer makes batches of records",
        "send_batch": "use send() for each record, and await the futures together",
        "stop": "use `await close()`",
    },
    arguments={
        "send_offsets_to_transaction": _SEND_OFFSETS,
        "metrics": PRODUCER.arguments["metrics"],
    },
    constructor=f"make one with AsyncProducer(bootstrap_servers, linger_ms=5){_NO_MORE_THAN_BROKERS}",
)

_CONSUMER = {
    # confluent-kafka's.
    "consume": "use poll(timeout, max_records=...)",
    "store_offsets": "use commit(record) or commit_async(record), with enable_auto_commit=False",
    "get_watermark_offsets": 'use beginning_offsets(("orders", 0)) and end_offsets(("orders", 0))',
    "list_topics": "use topics() and partitions_for_topic(topic), or Admin(...).list_topics()",
    "consumer_group_metadata": "use group_metadata()",
    "memberid": "see group_metadata().member_id",
    "incremental_assign": "use assign() with all partitions that are to be read; those it has keep their positions",
    "incremental_unassign": "use assign() with the partitions that are left; they keep their positions",
    "unassign": "use assign([])",
    "cluster_id": _CLUSTER_ID,
    "set_sasl_credentials": _NO_SASL,
    # kafka-python's and aiokafka's.
    "bootstrap": "leave it out; it connects by itself, and is_connected tells",
    "bootstrap_connected": "see is_connected",
    "getmany": "use poll(timeout, max_records=...), with seconds; it returns a list over all partitions",
    "getone": "use poll(None, max_records=1), or iterate: `for record in consumer:`",
    "highwater": 'use end_offsets(("orders", 0)), or lag(("orders", 0)) for what is left to read',
    "last_stable_offset": 'use end_offsets(("orders", 0)), with isolation_level="read_committed"',
    "last_poll_timestamp": "see metrics()",
    "seek_to_committed": "use seek(partition, committed(partition)[partition])",
    "stop": "use close()",
}
_SUBSCRIBE = {
    "on_assign": "use on_assigned, called with (consumer, partitions)",
    "on_revoke": "use on_revoked, called with (consumer, partitions)",
    "listener": "use on_assigned, on_revoked and on_lost, functions of (consumer, partitions)",
    "pattern": "give the pattern as topics: a text that begins with ^, or a compiled one",
}
_PARTITIONS = 'give partitions one after the other or as a list: ("orders", 0)'
_CONSUMER_ARGUMENTS = {
    "subscribe": _SUBSCRIBE,
    "close": {
        "timeout_ms": _TIMEOUT,
        "autocommit": "what was handed out is committed if enable_auto_commit is on, and not otherwise",
    },
    "commit": {
        "message": "give the record alone: commit(record)",
        "asynchronous": "use commit_async() where it is not to be waited for; commit() waits",
        "timeout_ms": _TIMEOUT,
    },
    "commit_async": {"callback": "use on_commit, called with (offsets, error)"},
    "committed": {
        "partition": _PARTITIONS,
        "partitions": _PARTITIONS,
        "metadata": "each value has it: committed(partition)[partition].metadata",
        "timeout_ms": _TIMEOUT,
    },
    "position": {"partitions": "use partition, for each of them", "timeout_ms": _TIMEOUT},
    "beginning_offsets": {"partitions": _PARTITIONS, "timeout_ms": _TIMEOUT},
    "end_offsets": {"partitions": _PARTITIONS, "timeout_ms": _TIMEOUT},
    "offsets_for_times": {
        "timestamps": 'use timestamps_ms, such as {("orders", 0): 1700000000000}',
        "partitions": 'use timestamps_ms, such as {("orders", 0): 1700000000000}',
        "timeout_ms": _TIMEOUT,
    },
    "pause": {"partitions": _PARTITIONS},
    "resume": {"partitions": _PARTITIONS},
    "seek_to_beginning": {"partitions": _PARTITIONS},
    "seek_to_end": {"partitions": _PARTITIONS},
    "metrics": {"raw": "metrics() has one number for each name"},
}
POLL = {
    "timeout_ms": _TIMEOUT,
    "num_messages": "use max_records",
    "update_offsets": "a position moves on with what poll() returns; seek() goes back",
}
"""Of `Consumer.poll`."""

CONSUMER = Calls(
    methods={**_CONSUMER, "start": "leave it out; it has started"},
    arguments=_CONSUMER_ARGUMENTS,
    constructor="make one with Consumer(bootstrap_servers, group_id=...), and say what to read with"
    f" subscribe(topics){_NO_MORE_THAN_BROKERS}",
)

ASYNC_CONSUMER = Calls(
    methods={
        **_CONSUMER,
        "getmany": "use `await poll(timeout, max_records=...)`, with seconds; it returns a list over all partitions",
        "getone": "use `await poll(None, max_records=1)`, or iterate: `async for record in consumer:`",
        "seek_to_committed": "use seek(partition, (await committed(partition))[partition])",
        "stop": "use `await close()`",
    },
    arguments=_CONSUMER_ARGUMENTS,
    constructor="make one with AsyncConsumer(bootstrap_servers, group_id=...), and say what to read with"
    f" `await subscribe(topics)`{_NO_MORE_THAN_BROKERS}",
)

_NO_ACLS = "there are no users and no ACLs yet"
_NO_MOVES = "a broker of oncelog has one replica of each partition, in one folder; use Apache Kafka's own tools"
_PER_TOPIC = "there are no request objects: "
_RESOURCES = 'give the type and the name: describe_configs("topic", "orders")'
_WAITS = "each request takes request_timeout_ms at most, a setting of the Admin"
_RAISES = "what goes wrong is raised"
_COORDINATOR = "the group's coordinator is found"
_ALL_BROKERS = "all brokers are asked"

ADMIN = Calls(
    methods={
        # Of several.
        "create_topics": f'{_PER_TOPIC}use create_topic("orders", partitions=3, configs={{"retention.ms": 60000}}) for'
        " each",
        "delete_topics": 'use delete_topic("orders") for each',
        "describe_topics": 'use describe_topic("orders") for each, or list_topics() for all',
        "describe_acls": _NO_ACLS,
        "create_acls": _NO_ACLS,
        "delete_acls": _NO_ACLS,
        "describe_user_scram_credentials": _NO_ACLS,
        "alter_user_scram_credentials": _NO_ACLS,
        "elect_leaders": _NO_MOVES,
        # confluent-kafka's.
        "list_consumer_groups": "use list_groups()",
        "describe_consumer_groups": 'use describe_group("billing") for each',
        "delete_consumer_groups": 'use delete_group("billing") for each',
        "list_consumer_group_offsets": 'use list_group_offsets("billing")',
        "alter_consumer_group_offsets": 'use alter_group_offsets("billing", {("orders", 0): 5})',
        "incremental_alter_configs": 'use alter_configs("topic", "orders", assign={"retention.ms": 60000})',
        "cluster_id": "use describe_cluster().cluster_id",
        "poll": "leave it out; each call returns when it is done",
        "set_sasl_credentials": _NO_SASL,
        # kafka-python's.
        "describe_groups": 'use describe_group("billing") for each',
        "delete_groups": 'use delete_group("billing") for each',
        "reset_group_offsets": 'use alter_group_offsets(), with what list_offsets({("orders", 0): "earliest"}) found',
        "remove_group_members": 'use remove_static_members("billing", instance_ids)',
        "reset_configs": 'use alter_configs("topic", "orders", remove=["retention.ms"])',
        "list_partition_offsets": 'use list_offsets({("orders", 0): "latest"})',
        "list_config_resources": "use list_topics() and describe_cluster().nodes",
        "abort_transaction": "use abort_hanging(partition, producer_id, producer_epoch, coordinator_epoch)",
        "wait_for_topics": "leave it out; create_topic() returns when every broker knows the topic",
        "describe_topic_partitions": 'see describe_topic("orders").partitions',
        "api_versions": "use describe_features(); versions are agreed upon with each broker",
        "get_broker_version_data": "use describe_features(); versions are agreed upon with each broker",
        "update_features": "features are set where the cluster is formatted; describe_features() tells them",
        "describe_metadata_quorum": "use describe_cluster().controller_id",
        "describe_log_dirs": _NO_MOVES,
        "alter_replica_log_dirs": _NO_MOVES,
        "alter_partition_reassignments": _NO_MOVES,
        "list_partition_reassignments": _NO_MOVES,
        # aiokafka's.
        "start": "leave it out; it connects with the first call",
    },
    arguments={
        "list_topics": {"topic": 'use describe_topic("orders") for one of them', "timeout": _WAITS},
        "create_topic": {
            "num_partitions": "use partitions",
            "topic_configs": "use configs",
            "config": "use configs",
            "timeout_ms": _WAITS,
            BY_POSITION: 'give all but the name by name: create_topic("orders", partitions=3, replication_factor=1)',
        },
        "create_partitions": {
            "topic_partitions": 'give the name and the new number: create_partitions("orders", 6)',
            "new_partitions": 'give the name and the new number: create_partitions("orders", 6)',
            "new_total_count": "use total_count",
            "timeout_ms": _WAITS,
            "raise_errors": _RAISES,
        },
        "alter_configs": {
            "config_resources": 'use alter_configs("topic", "orders", assign={"retention.ms": 60000})',
            "resources": 'use alter_configs("topic", "orders", assign={"retention.ms": 60000})',
            "raise_on_unknown": _RAISES,
            "incremental": "settings that are not named are always left as they are",
            BY_POSITION: 'give the changes by name: alter_configs("topic", "orders", assign={"retention.ms": 60000})',
        },
        "alter_client_quotas": {
            "entries": 'use alter_client_quotas({"client-id": "importer"}, assign={"producer_byte_rate": 1_000_000})',
            BY_POSITION: 'give the limits by name: alter_client_quotas({"client-id": "importer"},'
            ' assign={"producer_byte_rate": 1_000_000})',
        },
        "describe_configs": {
            "config_resources": _RESOURCES,
            "resources": _RESOURCES,
            "include_synonyms": "each entry has its value and where it comes from",
            "config_filter": "it returns all settings, by key",
        },
        "describe_features": {"send_request_to_controller": "use node, for a certain broker"},
        "describe_producers": {"broker_id": "the leader of each partition is asked"},
        "list_offsets": {"topic_partition_offsets": 'use specs, such as {("orders", 0): "latest"}'},
        "delete_records": {
            "records_to_delete": 'use before_offsets, such as {("orders", 0): 6}',
            "topic_partition_offsets": 'use before_offsets, such as {("orders", 0): 6}',
            "timeout_ms": _WAITS,
            "partition_leader_id": "the leader of each partition is asked",
        },
        "list_groups": {"broker_ids": _ALL_BROKERS, "states_filter": "use states", "types_filter": "use types"},
        "list_group_offsets": {"group_specs": "use group_id, for each group"},
        "alter_group_offsets": {"group_coordinator_id": _COORDINATOR},
        "delete_group_offsets": {"group_coordinator_id": _COORDINATOR},
        "find_hanging_transactions": {"broker_ids": "use partitions; their leaders are asked"},
        "list_transactions": {
            "broker_ids": _ALL_BROKERS,
            "producer_id_filters": "use producer_ids",
            "state_filters": "use states",
            "duration_filter_ms": "use older_than_ms",
            "transactional_id_pattern": "use pattern",
        },
    },
    constructor=f"make one with Admin(bootstrap_servers){_NO_MORE_THAN_BROKERS}",
)

_UNTIL_IDLE = "use until_idle, the seconds without a record after which it ends"

RUNNER = {
    "topic": 'use topics, such as ["orders"]',
    "group": "it is the consumer's: Consumer(..., group_id=...)",
    "group_id": "it is the consumer's: Consumer(..., group_id=...)",
    "db": "use database, the second argument",
    "retries": "use attempts, which counts the first one too",
    "dead_letter_topic": "use dead_letter=once.DeadLetter(producer, topic)",
    "until_end": f"it is an argument of run(): {_UNTIL_IDLE}",
    "until_idle": "it is an argument of run()",
    "max_records": "it is an argument of run()",
}
"""Of `once.Runner`."""
RUN = {
    "until_end": _UNTIL_IDLE,
    "timeout": _UNTIL_IDLE,
    "limit": "use max_records",
    "topics": "it is an argument of Runner(...)",
    "stop": "call stop() of the runner, from any thread",
    BY_POSITION: "write run(max_records=100), run(until_idle=5.0) or both",
}
"""Of `once.Runner.run`."""

PROCESS = {
    "group_id": "use group",
    "topic": "use source",
    "topics": "use source",
    "input": "use source",
    "output": "use target",
    "servers": "use bootstrap_servers",
    "until_idle": "use until_end=True, which ends when all is read that was there",
    "attempts": "use retries, which does not count the first one",
    "batch_size": "use batch_records",
}
"""Of `process` and `process_async`."""

_BY_NAME = "Admin(...) has no request objects: "

NAMES = {
    "KafkaProducer": "use oncelog.Producer",
    "KafkaConsumer": "use oncelog.Consumer",
    "KafkaAdminClient": "use oncelog.Admin",
    "AdminClient": "use oncelog.Admin",
    "AIOKafkaProducer": "use oncelog.AsyncProducer",
    "AIOKafkaConsumer": "use oncelog.AsyncConsumer",
    "SerializingProducer": "use oncelog.Producer, with key_serializer and value_serializer",
    "DeserializingConsumer": "use oncelog.Consumer, with key_deserializer and value_deserializer",
    "Message": "use oncelog.ConsumerRecord, whose key, value and so on are no calls",
    "KafkaException": "use oncelog.KafkaError",
    "KafkaTimeoutError": "use TimeoutError, which each error of ours is that says so",
    "NoBrokersAvailable": "use oncelog.BrokersUnreachable",
    "NewTopic": f"{_BY_NAME}use create_topic(name, partitions=3)",
    "NewPartitions": f"{_BY_NAME}use create_partitions(name, total_count)",
    "ConfigResource": f'{_BY_NAME}use describe_configs("topic", name) or alter_configs("topic", name, ...)',
    "ConsumerRebalanceListener": "use subscribe(topics, on_assigned=..., on_revoked=..., on_lost=...)",
    "OFFSET_BEGINNING": "use consumer.seek_to_beginning(), or auto_offset_reset",
    "OFFSET_END": "use consumer.seek_to_end(), or auto_offset_reset",
    "OFFSET_STORED": "use consumer.committed(partition)",
    "OFFSET_INVALID": "use consumer.committed(partition), which has None where nothing is committed",
}
"""What those libraries export."""
