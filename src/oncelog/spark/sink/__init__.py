"""The exactly-once sink: from the rows of a micro-batch to records that readers see once, whoever dies in between.

Spark replays a batch until it has noted it as complete, and forgets attempts without telling them. Kafka shows a
transaction to readers when it is committed, aborts it when it is late, and does not always remember which. Between the
two stands the journal. Nothing here touches Spark, a socket or a clock: `procedure.Sink` runs over the `ports`.

    task     deciding.choose -> write, or skip      leaves a transaction open: attempts.Prepared
    plan     take the journal over, read, fence what nobody decided, finish what somebody did
    commit   take the journal over, read, finish; deciding.decide -> DECIDED; finishing.next_step until DONE
    abort    take the journal over, read; abort what is not decided

What always holds, and what keeps it:

1. *Only what a journaled decision names is committed.* EndTxn(commit) is sent by `Commit` alone, which is made from a
   `Decided` that was read from the journal or appended to it before.
2. *A batch of a query is decided once.* Whoever appends has fenced all before it and has read what they left; `fold`
   refuses a journal in which it happened twice.
3. *What is decided becomes visible, once.* EndTxn is repeated until the fate is certain. "Fenced" and "invalid state"
   are `UNCLEAR`: the marker, in the same transaction as the rows, tells. A copy is made of what was aborted for
   certain only, with every record or not at all, and is committed when the journal names it instead of its source.
4. *Rows are skipped only if they are visible.* A task skips the batch that is DONE for its own query, never by slot;
   `decide` checks it again, with the digest of the source offsets. Spark replays the last batch alone: an earlier one
   means that the checkpoint was rolled back, and stops the query.
5. *No transaction stays open.* A plan fences all of the prefix that no decision names, whatever slots there are now. It
   does so before it finishes anything, as a look at committed records waits for whatever is open before them.
6. *One transaction per (producer id, epoch).* Every attempt begins with InitProducerId. So a pair names a transaction
   by either protocol, and the records of a pair in a range are that transaction's.

The steps of the protocol, and where each is kept: identity 1 `identity`, `journal` (keyed by query; digest); journal 2
`journal`, `ports.Journal`; plan 3 `Sink.plan`; write 4 `choose`, `attempts`; commit 5 `decide`, `Sink.commit`; abort 6
`withdraw`, `Sink.abort`; recover 7 and salvage 8 `finishing` (near expiry: `decide`); slots 9 `to_fence`; visibility 10
`atomic`. A batch without rows is not journaled: its replay has nothing to repeat.
"""
