"""Kafka's broker keys that this broker does not serve: which are ignored with a warning, which refused, and why.

The line between the two: a key is ignored if a broker without it keeps every promise (it tunes machinery that does not
exist here, or belongs to share groups and replication, which are not served). It is refused if ignoring
it would break one: nobody who asks for TLS, authentication, an ACL or a limit may be served without it. What Kafka lets
change while it runs is in `kept_keys`; at the start the same line goes through those keys.
"""

from __future__ import annotations

from oncelog.broker.config.broker_keys import BROKER_KEYS
from oncelog.broker.config.definition import ConfigType, nearest, unknown_key
from oncelog.broker.config.kept_keys import KEPT_KEYS
from oncelog.errors import InvalidConfig

_IGNORED = {
    ConfigType.BOOLEAN: """
auto.leader.rebalance.enable controlled.shutdown.enable controller.quorum.auto.join.enable
transaction.two.phase.commit.enable unstable.api.versions.enable unstable.feature.versions.enable
""",
    ConfigType.INT: """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
broker.heartbeat.interval.ms broker.session.timeout.ms connection.failed.authentication.delay.ms
controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quota.window.num
controller.quota.window.size.seconds controller.socket.timeout.ms delete.records.purgatory.purge.interval.requests
fetch.purgatory.purge.interval.requests group.consumer.max.assignment.interval.ms
group.consumer.min.assignment.interval.ms group.coordinator.append.linger.ms group.coordinator.background.threads
group.coordinator.threads group.share.delivery.count.limit group.share.heartbeat.interval.ms
group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms
group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
group.share.min.assignment.interval.ms group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms
group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
group.share.partition.max.record.locks group.share.record.lock.duration.ms group.share.session.timeout.ms
group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
initial.broker.registration.timeout.ms internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
kafka.metrics.polling.interval.secs log.flush.start.offset.checkpoint.interval.ms metadata.log.segment.bytes
metadata.max.idle.interval.ms metrics.num.samples num.replica.alter.log.dirs.threads offsets.commit.timeout.ms
offsets.load.buffer.size producer.purgatory.purge.interval.requests queued.max.requests replica.fetch.backoff.ms
replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
replication.quota.window.size.seconds request.timeout.ms share.coordinator.append.linger.ms
share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
share.coordinator.state.topic.segment.bytes share.coordinator.threads share.coordinator.write.timeout.ms
share.fetch.purgatory.purge.interval.requests socket.listen.backlog.size socket.receive.buffer.bytes
socket.send.buffer.bytes telemetry.max.bytes transaction.state.log.load.buffer.size
""",
    ConfigType.LIST: """
controller.listener.names controller.quorum.bootstrap.servers controller.quorum.voters early.start.listeners
group.share.assignors kafka.metrics.reporters process.roles
""",
    ConfigType.LONG: """
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
internal.metadata.delete.delay.millis leader.imbalance.check.interval.seconds log.dir.failure.timeout.ms
log.initial.task.delay.ms metadata.log.max.snapshot.interval.ms metadata.log.segment.ms metadata.max.retention.bytes
metadata.max.retention.ms metrics.sample.window.ms queued.max.request.bytes
replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms server.max.startup.time.ms
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms unclean.leader.election.interval.ms
""",
    ConfigType.SHORT: """
share.coordinator.state.topic.min.isr share.coordinator.state.topic.replication.factor
""",
    ConfigType.STRING: """
group.share.persister.class.name inter.broker.listener.name metrics.recording.level
""",
}
IGNORED_KEYS: dict[str, ConfigType] = {name: kind for kind, names in _IGNORED.items() for name in names.split()}

_SECURITY = "security is not served yet, and no one who asks for it may be served without it"
_JAVA_CLASS = "it names a Java class, and there is no JVM here to load it"
_TIERED = "there is no tiered storage here"
_ONE_DIRECTORY = "all data lives in one directory, log.dirs"
_LIMIT = "this limit is not served yet"

REFUSED_PREFIXES = {
    "alter.config.policy.": _JAVA_CLASS,
    "authorizer.": _SECURITY,
    "client.quota.callback.": _JAVA_CLASS,
    "config.providers": _JAVA_CLASS,
    "connections.max.reauth.": _SECURITY,
    "cordoned.log.dirs": _ONE_DIRECTORY,
    "create.topic.policy.": _JAVA_CLASS,
    "delegation.token.": _SECURITY,
    "follower.fetch.last.tiered.": _TIERED,
    "listener.name.": _SECURITY,
    "max.connection.creation.rate": _LIMIT,
    "max.connections.per.ip": _LIMIT,
    "metadata.log.dir": _ONE_DIRECTORY,
    "principal.builder.": _JAVA_CLASS,
    "remote.": _TIERED,
    "replica.selector.": _JAVA_CLASS,
    "sasl.": _SECURITY,
    "security.": _SECURITY,
    "ssl.": _SECURITY,
    "super.users": _SECURITY,
}

HARMLESS_SETTINGS = {
    "authorizer.class.name": "",
    "remote.log.storage.system.enable": "false",
    "security.inter.broker.protocol": "PLAINTEXT",
    "ssl.client.auth": "none",
}
"""Keys of the refused groups that files often carry with the value that asks for nothing."""


def is_ignored(name: str, text: str) -> bool:
    """True for a key without a meaning here. Raises InvalidConfig for one that is refused, or that nobody knows."""
    if name in IGNORED_KEYS or HARMLESS_SETTINGS.get(name) == text.strip():
        return True
    if name in KEPT_KEYS and not name.startswith(tuple(REFUSED_PREFIXES)):
        return True
    for prefix, reason in REFUSED_PREFIXES.items():
        if name.startswith(prefix):
            raise InvalidConfig(f"{name}={text} cannot be honoured: {reason}")
    raise unknown_broker_key(name)


def unknown_broker_key(name: str) -> InvalidConfig:
    return unknown_key("broker", name, nearest(name, [*BROKER_KEYS, *KEPT_KEYS, *IGNORED_KEYS]))
