"""Groups through `Admin`, where the command line has no word for it."""

from __future__ import annotations

import uuid

import pytest

from oncelog import Consumer
from oncelog.admin import Admin
from oncelog.errors import UnknownMemberId
from tests.support.patience import eventually
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers


def test_a_static_member_is_let_go_before_its_session_ends(broker: BrokerProcess) -> None:
    name = f"static-{uuid.uuid4().hex[:8]}"
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
        with Consumer(broker.bootstrap, group_id=name, group_instance_id="one") as consumer:
            consumer.subscribe(name)
            eventually(lambda: consumer.poll(0.1) == [] and bool(consumer.assignment()), "the member has its partition")
        (member,) = admin.describe_group(name).members
        assert member.instance_id == "one", "it may come back"
        admin.remove_static_members(name, ["one"])
        assert admin.describe_group(name).members == ()
        with pytest.raises(UnknownMemberId):
            admin.remove_static_members(name, ["one"])
