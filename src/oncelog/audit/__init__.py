"""The proof: which records of a topic were lost, duplicated or stored out of order, from ids the records carry.

`ids`, `numbers` and `account` are pure. `numbered_load` sends numbered records with a `Producer`, `ports` finds a port
for a broker that will be killed. Reading a topic into an audit is the command line's (`oncelog.cli.audit`).
"""
