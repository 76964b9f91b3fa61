"""Apache Kafka and oncelog, measured in one run: `python -m bench [ROW...] [--quick]`.

Figures of a shared machine move by tens of percent from one minute to the next, so only the ratio counts, and the two
brokers take turns, round by round.
"""
