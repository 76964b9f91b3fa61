"""The group coordinator: who is in a group, who reads which partition, and how far each group has read.

Pure state machines over the records of one partition of `__consumer_offsets`. A request yields records and replies;
only replaying a record changes what the log says. Never touches a clock, a socket or a file.
"""
