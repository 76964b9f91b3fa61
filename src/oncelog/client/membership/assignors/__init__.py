"""The assignors that every Kafka client brings: range, roundrobin, sticky, cooperative-sticky."""
