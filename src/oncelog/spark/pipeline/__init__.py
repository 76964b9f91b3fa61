"""Pipelines without code: a TOML file names sources, steps and sinks, and `oncelog run` runs them on Spark.

    toml_lines, document          the text: which key stands on which line; its sections, with overrides applied
    schema, values, reading       which keys there are; a pipeline as frozen values; from the one to the other
    sql_errors, columns           what Spark says of a query, in the lines of the file; what a sink needs of its rows
    plan, progress                what a person is told before and while it runs
    session, building, world      shells: Spark's session and log, data frames, everything outside that must be right
    running                       shell: the streaming queries from their start to a clean stop

Nothing here knows how records are read or written: that is the data sources' own.
"""
