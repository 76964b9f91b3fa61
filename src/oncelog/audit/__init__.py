"""The proof: which records of a topic were lost, duplicated or stored out of order, from ids the records carry.

`ids`, `numbers` and `account` are pure. `load` sends numbered records, `proxy` breaks connections under them, `ports`
helps both. Reading a topic into an audit is the command line's (`oncelog.cli.audit`).
"""
