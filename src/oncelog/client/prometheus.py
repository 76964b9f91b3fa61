"""The metrics of producers or consumers for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

_OF_PARTITION = re.compile(r"(?P<name>.+)\{(?P<topic>.+)-(?P<partition>\d+)\}")


class Measured(Protocol):
    """A client, as far as its metrics are concerned."""

    @property
    def client_id(self) -> str: ...
    def metrics(self) -> Mapping[str, float]: ...


class PrometheusCollector:
    """Asks its clients at each scrape. One collector serves all clients of a kind in a process: Prometheus wants every
    metric described once, whatever the number of its labels."""

    def __init__(self, prefix: str, about: Mapping[str, str], clients: tuple[Measured, ...]) -> None:
        """`about` says what each metric means, by the name without its partition."""
        self._prefix = prefix
        self._about = about
        self._clients = clients

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for client in self._clients:
            for key, value in client.metrics().items():
                found = _OF_PARTITION.fullmatch(key)
                name = found["name"] if found else key
                of_partition = {"topic": found["topic"], "partition": found["partition"]} if found else {}
                if name not in families:
                    family = CounterMetricFamily if name.endswith("-total") else GaugeMetricFamily
                    exported = self._prefix + name.replace("-", "_")
                    families[name] = family(exported, self._about.get(name, name), labels=["client_id", *of_partition])
                families[name].add_metric([client.client_id, *of_partition.values()], value)
        yield from families.values()
