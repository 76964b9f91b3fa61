from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.spark.sink.errors import UnreadableJournal
from oncelog.spark.sink.journal import Decided, Done, Entry, decode, digest_of, encode, fold, pending
from tests.spark.sink.support import QUERY, prepared
from tests.support.sizes import examples

DECIDED = Decided(QUERY, 5, "ab", (prepared(0), prepared(1)))


@pytest.mark.parametrize("entry", [DECIDED, Done(QUERY, 5, "ab"), Done(QUERY, 0, None)])
def test_an_entry_survives_its_bytes(entry: Entry) -> None:
    assert decode(*encode(entry)) == entry


def test_the_bytes_are_these() -> None:
    assert encode(Decided(QUERY, 5, None, (prepared(1),))) == (
        b"5b1c2f6e",
        b'{"v":1,"batch":5,"digest":null,"slots":'
        b'[[1,"billing-1",4001,2,{"paid":{"1":[10,15,3]}},["journal",3,99],1000]]}',
    )


def test_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(UnreadableJournal, match="version 2, and this oncelog reads 1"):
        decode(b"q", b'{"v":2}')


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b"\xff", b'{"v":1}', b'{"v":1,"batch":1,"digest":null,"slots":[[1]]}']
)
def test_rubbish_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableJournal, match="cannot be read"):
        decode(b"q", value)


@settings(max_examples=examples(50), database=None)
@given(batches=st.lists(st.sampled_from(["a", "b"]), max_size=8), cut=st.integers(0, 16))
def test_compaction_changes_nothing(batches: list[str], cut: int) -> None:
    entries: list[Entry] = []
    for batch_id, query in enumerate(batches):
        entries += [Decided(query, batch_id, None, ()), Done(query, batch_id, None)]
    entries = entries[:cut]
    compacted = {entry.query_id: entry for entry in entries}
    assert fold(entries) == fold(compacted.values()) == compacted


@pytest.mark.parametrize("after", [Decided(QUERY, 6, None, ()), Decided(QUERY, 4, None, ()), Done(QUERY, 6, None)])
def test_a_decision_is_followed_by_nothing_but_its_own_batch(after: Entry) -> None:
    with pytest.raises(UnreadableJournal, match="after DECIDED batch 5"):
        fold([DECIDED, after])


def test_a_done_batch_is_not_decided_again() -> None:
    with pytest.raises(UnreadableJournal, match="after DONE batch 5"):
        fold([Done(QUERY, 5, "ab"), DECIDED])


def test_each_query_stands_for_itself() -> None:
    other = Decided("other", 0, None, ())
    assert pending(fold([Done(QUERY, 5, "ab"), other])) == (other,)


def test_a_digest_is_of_offsets_not_of_their_spelling() -> None:
    assert digest_of(['{"a": 1, "b": {"0": 2}}']) == digest_of(['{"b":{"0":2},"a":1}'])
    assert digest_of(['{"a":1}']) != digest_of(['{"a":2}'])
    assert digest_of(["12", "3"]) != digest_of(["1", "23"])
    assert digest_of(["-"]) != digest_of([])
