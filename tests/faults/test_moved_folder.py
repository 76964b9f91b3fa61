"""A data folder that is renamed under its broker: what is acknowledged afterwards is in it, not at its old name."""

from __future__ import annotations

from pathlib import Path

from tests.support.batches import make_batch, read_records
from tests.support.broker import OncelogBroker
from tests.support.raw import RawClient
from tests.support.requests import create_topic, fetch, produce


def test_records_go_where_the_folder_is(tmp_path: Path) -> None:
    broker = OncelogBroker(tmp_path)
    try:
        broker.start()
        with RawClient(broker.address) as client:
            create_topic(client, "early")
            assert produce(client, "early", make_batch([b"before"]))["error_code"] == 0
        broker.data_dir.rename(tmp_path / "aside")
        with RawClient(broker.address) as client:
            create_topic(client, "late")
            for topic in ("early", "late"):
                assert produce(client, topic, make_batch([b"after"]))["error_code"] == 0
        broker.kill()
        assert not broker.data_dir.exists(), "nothing was left at the old name"
        broker.data_dir = tmp_path / "aside"
        broker.start()
        with RawClient(broker.address) as client:
            found = {topic: read_records(fetch(client, topic, 0)["records"]) for topic in ("early", "late")}
        values = {topic: [record.value for record in records] for topic, records in found.items()}
        assert values == {"early": [b"before", b"after"], "late": [b"after"]}
    finally:
        broker.kill()
