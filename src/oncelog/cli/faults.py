"""`oncelog faults`: a proxy in the foreground that breaks the connections to a cluster by a seeded script."""

from __future__ import annotations

import argparse

from oncelog.cli.ending import stop_signals
from oncelog.cli.output import detail, print_json_line, say, say_now
from oncelog.errors import InvalidConfig
from oncelog.faults.proxy import FaultProxy
from oncelog.faults.rules import RULE_NAMES, Rule

EPILOG = f"""\
Prints one line, "ready HOST:PORT", on stdout once clients can connect; Ctrl-C or SIGTERM ends it with a report of
what was done. The brokers named by --bootstrap-server are the ones behind the proxy. Clients stay behind it: the
addresses in the brokers' answers are exchanged for ports of the proxy.

A rule is a fault, the APIs it is for (none: all), and options: probability=P or every=N, limit=N, and the fault's
time in milliseconds or Kafka's name of the error. The faults: {", ".join(RULE_NAMES)}.

examples:
  oncelog -b 127.0.0.1:9092 faults --listen 127.0.0.1:19092 --seed 7 \\
      --rule 'drop_response Produce probability=0.02' --rule 'delay Produce ms=5-50' --rule 'cut every=200'
  oncelog faults --rule 'duplicate_request Produce probability=0.1'
  oncelog faults --rule 'refuse_request EndTxn,Produce error=NOT_COORDINATOR every=3 limit=100'
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "faults",
        help="a proxy that breaks connections to a cluster by a seeded script",
        description="Stand between Kafka clients and a cluster, and break what passes by a seeded script.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", type=address, default="127.0.0.1:0",
        help="where clients connect (default: a free port)",
    )  # fmt: skip
    parser.add_argument(
        "--rule", dest="rules", metavar="RULE", type=rule, action="append", default=[], help="may be repeated"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="makes the same faults happen again (default: random)")
    parser.set_defaults(run=run)


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not an address; write HOST:PORT")
    return host, int(port)


def rule(text: str) -> Rule:
    try:
        return Rule.parse(text)
    except InvalidConfig as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    host, port = args.listen
    with (
        stop_signals() as await_stop,
        FaultProxy(args.bootstrap_server, args.rules, seed=args.seed, host=host, port=port) as proxy,
    ):
        detail(str(proxy))
        say_now(f"ready {proxy.bootstrap_servers}")
        await_stop()
    report = proxy.report()
    if args.json:
        print_json_line(report.to_dict())
    else:
        for line in str(report).splitlines():
            say(line)
    return 0
