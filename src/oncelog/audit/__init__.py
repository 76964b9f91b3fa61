"""The proof: which records of a topic were lost, duplicated or stored out of order, from ids the records carry.

`ids`, `numbers` and `account` are pure; `reader` reads a topic, `proxy` injects faults between a client and a broker.
"""
