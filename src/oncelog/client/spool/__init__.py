"""The durable spool of a producer: records are in a local file before `send()` returns, and survive its process.

`spool.Spool` is the whole of it: records in `record_files`, what became of them in `journal` as `facts`, both in the
`frame`s of one format; `recovery` reads them back, and `fate` judges what an earlier process left open. Files only
through the log's `Storage`; no thread, no clock, no socket.

`spooled_sender` sends what is in it: in batches of its own (`feeding`, `resolving`), or, with a transactional id, in
transactions (`transacting`, which has the law; `transaction_feeding`, `positions`).
"""
