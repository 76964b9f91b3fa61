"""oncelog and its peers, measured in one run: `python -m bench [ROW...] [--quick]`.

Figures of a shared machine move by tens of percent from one minute to the next, so only the ratio counts, and the two
sides take turns, round by round. Rows about the broker compare it with Apache Kafka; rows about the producer compare
it with other Python clients, on either broker.
"""
