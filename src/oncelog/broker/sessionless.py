"""Fetches without a session: their clients, such as librdkafka, name all that they read in each request.

A connection's view is kept from one fetch to the next, so that only what is named otherwise than before, or changed, is
looked at. The client knows nothing of it, and each answer tells of everything.

Bounds: one view per connection, and `MAX_WATCHED_PARTITIONS` in all of them. Where there is
no room, views of connections that wait for nothing go first; else a fetch is served without, and cannot wait. Nor is a
view kept that names more than `MAX_UNKNOWN_PARTITIONS` that cannot be read.
"""

from __future__ import annotations

from oncelog.broker.fetch_session import MAX_UNKNOWN_PARTITIONS
from oncelog.broker.fetch_view import FetchContext, FetchView
from oncelog.broker.purgatory import FetchPurgatory
from oncelog.broker.request import Peer
from oncelog.wire.fetch import FetchRequest

MAX_WATCHED_PARTITIONS = 100_000
"""The partitions of all these views, each as often as it is read: some 800 bytes each."""


class SessionlessViews:
    def __init__(self, purgatory: FetchPurgatory) -> None:
        self._purgatory = purgatory
        self.kept_partitions = 0
        self._views: dict[FetchView, Peer] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._views)

    def begin(self, request: FetchRequest, peer: Peer) -> FetchContext:
        view = peer.view
        if view is not None and view.finish is not None:  # asked again before it was answered
            view = None
        named = sum(len(topic.partitions) for topic in request.topics)
        known = 0 if view is None else view.count
        if not self._make_room(named - known, view):
            return self._passing(request)
        if view is None:
            view = FetchView(self._purgatory.unwatch)
            if peer.view is None:
                peer.view = view
        else:
            del self._views[view]
        self._views[view] = peer
        changed = view.replace(request)
        self.kept_partitions += view.count - known
        return FetchContext(view, changed, is_full=True)

    def _passing(self, request: FetchRequest) -> FetchContext:
        """For one answer, which is given at once."""
        view = FetchView(self._purgatory.unwatch)
        changed = view.replace(request)
        return FetchContext(view, changed, is_full=True, can_wait=False)

    def _make_room(self, count: int, asking: FetchView | None) -> bool:
        for view in list(self._views) if self.kept_partitions + count > MAX_WATCHED_PARTITIONS else ():
            if view.finish is None and view is not asking:
                self.drop(view)
                if self.kept_partitions + count <= MAX_WATCHED_PARTITIONS:
                    break
        return self.kept_partitions + count <= MAX_WATCHED_PARTITIONS

    def ended(self, view: FetchView) -> None:
        """Its fetch is answered, or abandoned: it is kept for the next one, or not."""
        peer = self._views.get(view)
        if peer is not None and (peer.view is not view or view.unwatched_count > MAX_UNKNOWN_PARTITIONS):
            self.drop(view)

    def left(self, peer: Peer) -> None:
        """The connection is gone. What waited on it was abandoned before."""
        if peer.view is not None:
            self.drop(peer.view)

    def drop(self, view: FetchView) -> None:
        peer = self._views.pop(view)
        if peer.view is view:
            peer.view = None
        self.kept_partitions -= view.count
        view.close()
