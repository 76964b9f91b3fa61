"""`--oncelog-bootstrap`: the same tests on a cluster that is there, oncelog's or Apache Kafka's."""

from __future__ import annotations

import pytest

import oncelog
from tests.support.process import BrokerProcess
from tests.testing.running import run_pytest

pytest_plugins = ("pytester",)


@pytest.mark.on_both_brokers
def test_on_a_cluster_that_is_there(pytester: pytest.Pytester, broker: BrokerProcess) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.oncelog(faults=["cut Produce every=5 limit=2"], partitions=2)
        def test_orders(oncelog_topic, oncelog_proxy, oncelog_audit, oncelog_consumer):
            import oncelog
            with oncelog.Producer(oncelog_proxy.bootstrap_servers) as producer:
                for number in range(10):
                    producer.send(oncelog_topic, f"orders/{number}", partition=1).result(60)
            oncelog_audit(oncelog_topic).assert_clean(stored=10)
            assert oncelog_consumer.poll(60)
            print("topic", oncelog_topic)

        def test_by_hand(oncelog_topics, oncelog_bootstrap):
            import oncelog
            topic = oncelog_topics("orders", configs={"retention.ms": -1, "preallocate": False})
            with oncelog.Admin(oncelog_bootstrap) as admin:
                admin.delete_topic(topic)

        @pytest.mark.parametrize("deed", ["kill", "restart", "stop", "start"])
        def test_not_its_own(oncelog_broker, deed):
            getattr(oncelog_broker, deed)()
            raise AssertionError("it came back")
        """
    )
    ran = run_pytest(pytester, "-s", "-rs", "--oncelog-bootstrap", broker.bootstrap)
    ran.assert_outcomes(passed=2, skipped=4)
    ran.stdout.fnmatch_lines_random(
        [f"oncelog: on the cluster at {broker.bootstrap}", "SKIPPED*is not the tests' own to kill"]
    )
    topic = ran.stdout.str().partition("topic orders-")[2].split()[0]
    with oncelog.Admin(broker.bootstrap) as admin:
        assert f"orders-{topic}" not in {each.name for each in admin.list_topics()}
