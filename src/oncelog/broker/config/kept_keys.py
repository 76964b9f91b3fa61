"""Kafka's broker keys that may change while a broker runs and that nothing here depends on: taken, checked, kept and
described as Kafka does, without an effect.

Who manages brokers sets them on any of them, and expects to read them back. At the start the rules of `unserved_keys`
hold all the same: nobody who asks for TLS, authentication or a limit in a file is served without it.
`listener.name.{listener}.{key}` is a key of one listener, and known by the key that it ends with.
"""

from __future__ import annotations

from dataclasses import replace

from oncelog.broker.config.broker_keys import BROKER_KEYS
from oncelog.broker.config.definition import ConfigKey, ConfigType, UpdateMode, Validator, Value, at_least, one_of

LISTENER_PREFIX = "listener.name."
NO_EFFECT = "Accepted and reported back; has no effect in this broker."
MIB = 1 << 20
BUFFER_MIN = 512 * 1024

METRIC_REPORTER = "org.apache.kafka.common.metrics.JmxReporter"
_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_PROTOCOLS = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
_INT_MAX, _LONG_MAX, _DOUBLE_MAX = str(2**31 - 1), str(2**63 - 1), "1.7976931348623157E308"


def _only_class(name: str | None) -> Validator:
    """A Java class other than Kafka's own is never found here."""

    def check(value: Value) -> None:
        if value != name:
            raise ValueError(f"Class {value} could not be found.")

    return check


def _no_directory(value: Value) -> None:
    if value:
        raise ValueError(
            "All entries in cordoned.log.dirs must be present in log.dirs, and there is one directory only"
        )


def _pairs(value: Value) -> None:
    """`a:b,c:d`"""
    for pair in str(value).split(","):
        if pair and ":" not in pair:
            raise ValueError(f"{pair!r} is not a pair; write name:value,name:value")


_CLUSTER_WIDE: dict[str, tuple[ConfigType, str | None, Validator | None]] = {
    "background.threads": (ConfigType.INT, "10", at_least(1)),
    "config.providers": (ConfigType.LIST, "", None),
    "follower.fetch.last.tiered.offset.enable": (ConfigType.BOOLEAN, "false", None),
    "group.consumer.assignment.interval.ms": (ConfigType.INT, "1000", at_least(0)),
    "group.coordinator.cached.buffer.max.bytes": (ConfigType.INT, "1048588", at_least(BUFFER_MIN)),
    "group.share.assignment.interval.ms": (ConfigType.INT, "1000", at_least(0)),
    "group.streams.assignment.interval.ms": (ConfigType.INT, "1000", at_least(0)),
    "log.cleaner.dedupe.buffer.size": (ConfigType.LONG, str(128 * MIB), at_least(MIB)),
    "log.cleaner.io.buffer.load.factor": (ConfigType.DOUBLE, "0.9", None),
    "log.cleaner.io.buffer.size": (ConfigType.INT, "524288", at_least(0)),
    "log.cleaner.io.max.bytes.per.second": (ConfigType.DOUBLE, _DOUBLE_MAX, None),
    "log.cleaner.threads": (ConfigType.INT, "1", at_least(0)),
    "max.connection.creation.rate": (ConfigType.INT, _INT_MAX, at_least(0)),
    "max.connections.per.ip": (ConfigType.INT, _INT_MAX, at_least(0)),
    "max.connections.per.ip.overrides": (ConfigType.STRING, "", _pairs),
    "metric.reporters": (ConfigType.LIST, METRIC_REPORTER, None),
    "num.io.threads": (ConfigType.INT, "8", at_least(1)),
    "num.network.threads": (ConfigType.INT, "3", at_least(1)),
    "num.replica.fetchers": (ConfigType.INT, "1", at_least(1)),
    "remote.fetch.max.wait.ms": (ConfigType.INT, "500", at_least(1)),
    "remote.list.offsets.request.timeout.ms": (ConfigType.LONG, "30000", at_least(1)),
    "remote.log.index.file.cache.total.size.bytes": (ConfigType.LONG, str(1 << 30), at_least(1)),
    "remote.log.manager.copier.thread.pool.size": (ConfigType.INT, "10", at_least(1)),
    "remote.log.manager.copy.max.bytes.per.second": (ConfigType.LONG, _LONG_MAX, at_least(1)),
    "remote.log.manager.expiration.thread.pool.size": (ConfigType.INT, "10", at_least(1)),
    "remote.log.manager.fetch.max.bytes.per.second": (ConfigType.LONG, _LONG_MAX, at_least(1)),
    "remote.log.manager.follower.thread.pool.size": (ConfigType.INT, "2", at_least(1)),
    "remote.log.reader.threads": (ConfigType.INT, "10", at_least(1)),
    "share.coordinator.cached.buffer.max.bytes": (ConfigType.INT, "1048588", at_least(BUFFER_MIN)),
}

_PER_BROKER: dict[str, tuple[ConfigType, str | None, Validator | None]] = {
    "cordoned.log.dirs": (ConfigType.LIST, "", _no_directory),
    "listener.security.protocol.map": (ConfigType.STRING, _PROTOCOLS, _pairs),
    "principal.builder.class": (ConfigType.CLASS, _PRINCIPALS, _only_class(_PRINCIPALS)),
    "sasl.enabled.mechanisms": (ConfigType.LIST, "GSSAPI", None),
    "sasl.jaas.config": (ConfigType.PASSWORD, None, None),
    "sasl.kerberos.kinit.cmd": (ConfigType.STRING, "/usr/bin/kinit", None),
    "sasl.kerberos.min.time.before.relogin": (ConfigType.LONG, "60000", None),
    "sasl.kerberos.principal.to.local.rules": (ConfigType.LIST, "DEFAULT", None),
    "sasl.kerberos.service.name": (ConfigType.STRING, None, None),
    "sasl.kerberos.ticket.renew.jitter": (ConfigType.DOUBLE, "0.05", None),
    "sasl.kerberos.ticket.renew.window.factor": (ConfigType.DOUBLE, "0.8", None),
    "sasl.login.refresh.buffer.seconds": (ConfigType.SHORT, "300", None),
    "sasl.login.refresh.min.period.seconds": (ConfigType.SHORT, "60", None),
    "sasl.login.refresh.window.factor": (ConfigType.DOUBLE, "0.8", None),
    "sasl.login.refresh.window.jitter": (ConfigType.DOUBLE, "0.05", None),
    "sasl.mechanism.inter.broker.protocol": (ConfigType.STRING, "GSSAPI", None),
    "ssl.cipher.suites": (ConfigType.LIST, "", None),
    "ssl.client.auth": (ConfigType.STRING, "none", one_of("required", "requested", "none")),
    "ssl.enabled.protocols": (ConfigType.LIST, "TLSv1.2,TLSv1.3", None),
    "ssl.endpoint.identification.algorithm": (ConfigType.STRING, "https", None),
    "ssl.engine.factory.class": (ConfigType.CLASS, None, _only_class(None)),
    "ssl.keymanager.algorithm": (ConfigType.STRING, "SunX509", None),
    "ssl.protocol": (ConfigType.STRING, "TLSv1.3", None),
    "ssl.provider": (ConfigType.STRING, None, None),
    "ssl.secure.random.implementation": (ConfigType.STRING, None, None),
    "ssl.trustmanager.algorithm": (ConfigType.STRING, "PKIX", None),
}

_PER_LISTENER: dict[str, tuple[ConfigType, str | None, Validator | None]] = {
    "ssl.key.password": (ConfigType.PASSWORD, None, None),
    "ssl.keystore.certificate.chain": (ConfigType.PASSWORD, None, None),
    "ssl.keystore.key": (ConfigType.PASSWORD, None, None),
    "ssl.keystore.location": (ConfigType.STRING, None, None),
    "ssl.keystore.password": (ConfigType.PASSWORD, None, None),
    "ssl.keystore.type": (ConfigType.STRING, "JKS", None),
    "ssl.truststore.certificates": (ConfigType.PASSWORD, None, None),
    "ssl.truststore.location": (ConfigType.STRING, None, None),
    "ssl.truststore.password": (ConfigType.PASSWORD, None, None),
    "ssl.truststore.type": (ConfigType.STRING, "JKS", None),
}

_THROTTLES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""No file has them: Kafka knows them only as settings of a running broker."""

KEPT_KEYS: dict[str, ConfigKey] = {
    **{
        name: ConfigKey(name, config_type, default, NO_EFFECT, validator, update_mode=mode)
        for mode, table in (
            (UpdateMode.CLUSTER_WIDE, _CLUSTER_WIDE),
            (UpdateMode.PER_BROKER, _PER_BROKER),
            (UpdateMode.PER_LISTENER, _PER_LISTENER),
        )
        for name, (config_type, default, validator) in table.items()
    },
    **{
        name: ConfigKey(
            name, ConfigType.LONG, None, NO_EFFECT, at_least(0), update_mode=UpdateMode.CLUSTER_WIDE, internal=True
        )
        for name in _THROTTLES
    },
}

LISTENERS_FOR_ALL = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""What may be said of a listener for all brokers at once."""
LISTENERS_AT_START = frozenset({"connections.max.reauth.ms"})
"""Read-only for a broker, and not for a listener."""

NEVER_ZERO = frozenset({"max.connections", "max.connections.per.ip", "max.connection.creation.rate"})
"""While the broker runs: nobody could connect to take it back."""

THREAD_COUNTS = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
"""May at most double or halve at a time, as with Kafka."""


def find_key(name: str) -> ConfigKey | None:
    """A key that is served or kept, also one of a single listener; None if nobody knows it."""
    key = BROKER_KEYS.get(name) or KEPT_KEYS.get(name)
    return _listener_key(name) if key is None and name.startswith(LISTENER_PREFIX) else key


def base_name(name: str) -> str:
    """Of a listener's key, the broker's key that it is about: `num.io.threads`, or `sasl.jaas.config` where a mechanism
    stands before it."""
    parts = name.removeprefix(LISTENER_PREFIX).split(".")
    after = [".".join(parts[start:]) for start in (1, 2)]
    return next((one for one in after if one in BROKER_KEYS or one in KEPT_KEYS or one in LISTENERS_AT_START), "")


def _listener_key(name: str) -> ConfigKey | None:
    base = base_name(name)
    if base in LISTENERS_AT_START:
        return ConfigKey(name, ConfigType.LONG, None, NO_EFFECT, update_mode=UpdateMode.PER_BROKER, internal=True)
    key = BROKER_KEYS.get(base) or KEPT_KEYS.get(base)
    if key is None or key.update_mode is UpdateMode.READ_ONLY:
        return None
    mode = UpdateMode.CLUSTER_WIDE if base in LISTENERS_FOR_ALL else UpdateMode.PER_BROKER
    return replace(key, name=name, default=None, documentation=NO_EFFECT, update_mode=mode, internal=True)
