"""What the runtimes of all coordinators have in common: a topic of the broker's own whose partitions are loaded when
they are needed, records that become true before anybody is answered, and tickets for those who wait.

Knows neither groups nor transactions.
"""
