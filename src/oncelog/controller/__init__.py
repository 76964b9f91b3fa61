"""What the cluster is: topics, configs, features, producer id blocks, as a state machine over Kafka's metadata records.

A write plans records and a response (`topics`, `configs`, `producer_ids`), the records become durable (`metadata_log`),
and only then `ControllerState.replay` changes anything. `controller` ties the three together.
"""
