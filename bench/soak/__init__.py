"""`python -m bench.soak --minutes 60`: does a broker's memory stay where it is, for as long as it runs?

One broker process gets the same mixed load all the time, at a rate that leaves most of a core idle (`load`): clients,
producer ids, transactional ids, groups and topics that come and go, and some that stay. All that a broker forgets
after a while (silent producers, transactional ids, committed offsets, old segments, tombstones) it is told to forget
after two minutes, so that as much goes as comes: what still rises after that is never forgotten. Every five seconds
one line of JSON says what the broker's process holds (`samples`), and at the end there are a picture and a verdict
(`picture`, `trend`): the slope of memory, descriptors and threads, by least squares over the second half.

How to run the hour, on a machine that does nothing else:

    .venv/bin/python -m bench.soak --minutes 60 --out docs/pictures/soak.svg --samples /tmp/soak.jsonl

It takes about a tenth of a core for the broker and 9% of one for its clients. Ctrl-C ends it early, with a picture of
what there is. `--redraw /tmp/soak.jsonl --out soak.svg` draws a picture from the lines of a run, also while it runs.
The exit code is 1 if something rises, or if part of the load failed. Below 20 minutes the slope of an hour is a guess,
and the command says so. On a machine that does other things as well, chores are late and the load is not the same all
the time: compare the counts of two runs before their slopes. The picture says how long the run was; so does
`docs/operations.md`, "Memory under mixed load", which shows it and has to be changed with it.
"""
