"""The consumers that people use: thin shells over the cores of `oncelog.client`."""
