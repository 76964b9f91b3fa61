"""Fresh topics for one test."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from oncelog.admin import Admin
from oncelog.admin.admin import BROKER_DEFAULT
from oncelog.client import arguments as checked
from oncelog.errors import OncelogError
from oncelog.testing.names import fresh_name


class Topics:
    """Makes topics whose names no other test uses: `orders = oncelog_topics("orders", partitions=3)`.

    The name that comes back begins with the test's and holds the one that was given.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        test: str,
        partitions: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        self.made: list[str] = []
        self._bootstrap_servers = bootstrap_servers
        self._test = test
        self._partitions = partitions
        self._configs = checked.config_texts(configs)

    def __call__(
        self, name: str = "", *, partitions: int | None = None, configs: Mapping[str, object] | None = None
    ) -> str:
        """Returns when the topic can be written to and read."""
        topic = fresh_name(self._test, name)
        count = self._partitions if partitions is None else partitions
        texts = {**self._configs, **checked.config_texts(configs)}
        with Admin(self._bootstrap_servers) as admin:
            admin.create_topic(topic, partitions=BROKER_DEFAULT if count is None else count, configs=texts)
        self.made.append(topic)
        return topic

    def delete(self) -> None:
        """All that were made; those that the test has deleted itself are no trouble."""
        if not self.made:
            return
        with Admin(self._bootstrap_servers) as admin:
            for topic in self.made:
                with contextlib.suppress(OncelogError):
                    admin.delete_topic(topic)
        self.made.clear()
