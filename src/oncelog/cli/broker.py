"""`oncelog broker`: one broker in the foreground."""

from __future__ import annotations

import argparse

from oncelog.cli.options import key_value, settings_of

EPILOG = """\
Prints one line, "ready HOST:PORT", on stdout once it serves; logs go to stderr. SIGTERM and Ctrl-C stop it cleanly.
Config keys are Kafka's; what the options say wins over --config.

examples:
  oncelog broker                                            all defaults, at 127.0.0.1:9092
  oncelog broker --data /var/lib/oncelog --listen 0.0.0.0:9092 --advertise broker.example.org:9092
  oncelog broker --listen 127.0.0.1:0                       a free port; the "ready" line names it
  oncelog broker -o num.partitions=6 -o log.retention.hours=24
  oncelog broker -o metrics.port=9100                       Prometheus metrics at http://127.0.0.1:9100/metrics
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "broker",
        help="start a broker in the foreground",
        description="Start a broker in the foreground.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", metavar="DIR", help="where the data lives (log.dirs)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to listen; port 0 picks a free one (listeners)")
    parser.add_argument(
        "--advertise", metavar="HOST:PORT", help="where clients reach it, if not there (advertised.listeners)"
    )
    parser.add_argument("--node-id", metavar="N", help="the broker's number in the cluster (node.id)")
    parser.add_argument("--config", metavar="FILE", help="a Kafka properties file")
    parser.add_argument(
        "-o", dest="settings", metavar="KEY=VALUE", type=key_value, action="append", default=[], help="any broker key"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from oncelog.broker.config import BrokerConfig
    from oncelog.broker.server import run as serve

    return serve(BrokerConfig.from_sources(args.config, overrides(args)))


def overrides(args: argparse.Namespace) -> dict[str, str]:
    """The settings of the command line, under Kafka's names."""
    named = {
        "log.dirs": args.data,
        "listeners": args.listen,
        "advertised.listeners": args.advertise,
        "node.id": args.node_id,
    }
    return settings_of(args.settings) | {key: value for key, value in named.items() if value is not None}
