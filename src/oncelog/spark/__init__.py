"""Exactly-once pipelines on Spark, through PySpark's Python Data Source API."""
