"""Histories: what clients did and were told, and whether a log with transactions may answer so. Pure.

`model` has the operations, `codec` their lines in a file that outlives its process, `recorder` writes them, `checker`
judges them after the manner of Jepsen's workload for Kafka, and `report` says what was found.
"""
