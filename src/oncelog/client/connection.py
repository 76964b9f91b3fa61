"""One connection to a broker, without the socket: what to send, and what the received bytes mean.

Owns correlation ids, the agreement on versions, and matching answers to requests. Never retries and never reconnects:
a connection that raised is finished, and whoever owns the socket closes it.

    connection = Connection("my-client")
    socket.sendall(connection.start())                       # asks which versions the broker speaks
    connection.receive(...) -> [Negotiated(...)]             # from now on requests may be sent
    sent = connection.send(ApiKey.METADATA, {...})           # socket.sendmsg(sent.data)
    connection.receive(...) -> [Answer(sent.correlation_id, ...)]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from oncelog.errors import OncelogError, UnsupportedVersion, error_for_code
from oncelog.records.model import Buffer
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import FetchRequest, decode_fetch_response, encode_fetch_request
from oncelog.wire.frame import decode_response_header, encode_request_head, request_signature
from oncelog.wire.frame_receiver import FrameMemory, FrameReceiver
from oncelog.wire.produce import ProduceRequest, ProduceResponse, decode_produce_response, encode_produce_request
from oncelog.wire.quick import produce_request, read_produce_response
from oncelog.wire.schema import load_schema
from oncelog.wire.versions import VersionRange

_PRODUCE, _FETCH = ApiKey.PRODUCE, ApiKey.FETCH
_new: Any = tuple.__new__  # of a NamedTuple, without the call of its Python constructor

SOFTWARE_NAME = "oncelog"
SOFTWARE_VERSION = "0.1.0"

MAX_ANSWER_BYTES = 1024 * 1024 * 1024
MAX_CORRELATION_ID = 2**31 - 1
MIN_ANSWER_BYTES = 5  # a correlation id, and no tagged fields


class ProtocolViolation(OncelogError):
    """The broker answered something that was not asked."""


class Negotiated(NamedTuple):
    """The broker said what it speaks."""

    versions: Mapping[int, VersionRange]
    features: Mapping[str, int]
    """Finalized feature levels, such as `transaction.version`."""


class Answer(NamedTuple):
    correlation_id: int
    api_key: ApiKey
    version: int
    body: Any
    """A `Message`; for Produce and Fetch their own values."""
    tag: Any
    """What the request was sent with."""


class Sent(NamedTuple):
    correlation_id: int
    version: int
    data: list[Buffer]
    """The request in chunks. Large record batches are the caller's own memory: leave them alone until the answer."""
    size_bytes: int


Event = Negotiated | Answer


class Connection:
    __slots__ = (
        "_chosen", "_client_id", "_expected", "_frames", "_negotiated", "_next_correlation_id", "_signatures",
        "_to_send",
    )  # fmt: skip

    def __init__(
        self, client_id: str | None, *, max_answer_bytes: int = MAX_ANSWER_BYTES, memory: FrameMemory | None = None
    ) -> None:
        """`memory` for large answers may be shared by the connections of a client."""
        self._client_id = client_id
        self._frames = FrameReceiver(max_answer_bytes, memory or FrameMemory())
        self._expected: deque[tuple[int, ApiKey, int, Any]] = deque()  # correlation id, API, version, tag
        self._next_correlation_id = 0
        self._negotiated: Negotiated | None = None
        self._chosen: dict[tuple[ApiKey, int | None], int] = {}
        self._signatures: dict[tuple[ApiKey, int], bytes] = {}
        self._to_send = bytearray()

    @property
    def negotiated(self) -> Negotiated | None:
        return self._negotiated

    @property
    def in_flight(self) -> int:
        return len(self._expected)

    @property
    def outstanding(self) -> list[Any]:
        """The tags of the requests that have no answer yet, in the order in which they were sent."""
        return [tag for _, _, _, tag in self._expected]

    @property
    def oldest(self) -> Any:
        """The tag of the request whose answer comes next; None if none is under way. For any thread."""
        try:
            return self._expected[0][3]
        except IndexError:
            return None

    def abandon(self) -> list[Any]:
        """As `outstanding`; their answers are not expected any more."""
        tags = self.outstanding
        self._expected.clear()
        return tags

    def start(self) -> bytes:
        """The first request: which versions do you speak?"""
        return self._ask_versions(load_schema("ApiVersionsRequest").valid.highest)

    def version_of(self, api_key: ApiKey, max_version: int | None = None) -> int:
        """The newest version that both sides speak. Raises UnsupportedVersion."""
        version = self._chosen.get((api_key, max_version))
        if version is None:
            version = self._chosen[api_key, max_version] = self._choose_version(api_key, max_version)
        return version

    def send(
        self, api_key: ApiKey, body: Any, *, max_version: int | None = None, answered: bool = True, tag: object = None
    ) -> Sent:
        """A request; its bytes are to be sent in the order in which they were made. `answered=False` is for what
        brokers do not answer (Produce with acks=0). The `tag` comes back with the answer."""
        version = self.version_of(api_key, max_version)
        return self._request(api_key, version, _encode(api_key, version, body), answered, tag)

    def get_buffer(self) -> memoryview:
        """Where to receive the next bytes."""
        return self._frames.get_buffer()

    def received(self, count: int) -> Iterator[Event]:
        """What `count` more bytes in the buffer mean. Must be exhausted; `data_to_send` may have grown then.

        Raises OncelogError where the broker goes wrong, after the good answers before that place. The request whose
        answer made no sense stays outstanding.
        """
        for frame in self._frames.received(count):
            if not self._expected:
                raise ProtocolViolation("the broker answered although nothing was asked")
            expected_id, api_key, version, tag = self._expected[0]
            correlation_id, position = decode_response_header(api_key, version, frame)
            if correlation_id != expected_id:
                raise ProtocolViolation(f"the broker answered request {correlation_id} where {expected_id} is next")
            if self._negotiated is None:
                self._expected.popleft()
                yield from self._learn_versions(frame, position, version)
            else:
                body = _decode(api_key, version, frame, position)
                self._expected.popleft()
                yield _new(Answer, (correlation_id, api_key, version, body, tag))

    def plain_answer(self, count: int) -> tuple[Any, ProduceResponse] | None:
        """As `received`, if `count` more bytes are the answer to the one request there is, a Produce, and tell of
        nothing but success: its tag and its body. None, with nothing changed, for everything else."""
        if len(self._expected) != 1 or self._negotiated is None:
            return None
        frame = self._frames.peek(count)
        expected_id, api_key, version, tag = self._expected[0]
        if frame is None or len(frame) < MIN_ANSWER_BYTES or api_key != _PRODUCE:
            return None
        correlation_id, position = decode_response_header(api_key, version, frame)
        body = read_produce_response(frame, position, version)
        if body is None or correlation_id != expected_id:
            return None
        self._frames.forget()
        self._expected.clear()
        return tag, body

    def receive(self, data: bytes) -> list[Event]:
        """As `get_buffer` and `received`, for bytes that are elsewhere."""
        events: list[Event] = []
        rest = memoryview(data)
        while rest:
            buffer = self.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            events += self.received(count)
        return events

    def data_to_send(self) -> bytes:
        """What the connection itself wants to say: a second question about versions. Taken once."""
        data = bytes(self._to_send)
        self._to_send.clear()
        return data

    def _choose_version(self, api_key: ApiKey, max_version: int | None) -> int:
        assert self._negotiated is not None, "requests come after the agreement on versions"
        ours = load_schema(f"{api_key.schema_prefix}Request").valid
        if max_version is not None:
            ours = VersionRange(ours.lowest, min(ours.highest, max_version))
        theirs = self._negotiated.versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersion(f"the broker does not serve {api_key.schema_prefix}")
        common = ours.overlap(theirs)
        if common is None:
            raise UnsupportedVersion(
                f"{api_key.schema_prefix}: the broker speaks versions {theirs}, this client {ours}; upgrade the older"
            )
        return common.highest

    def _ask_versions(self, version: int) -> bytes:
        question = {"client_software_name": SOFTWARE_NAME, "client_software_version": SOFTWARE_VERSION}
        body = codec.encode("ApiVersionsRequest", version, question)
        return b"".join(self._request(ApiKey.API_VERSIONS, version, [body], answered=True, tag=None).data)

    def _learn_versions(self, frame: memoryview, position: int, version: int) -> Iterator[Event]:
        error_code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        if error_code == UnsupportedVersion.code and version > 0:
            # An older broker. It answers in the oldest schema, with the versions of this very API if it is kind.
            answer = codec.decode_exactly("ApiVersionsResponse", 0, frame, position)
            self._to_send += self._ask_versions(_fallback(answer, version))
            return
        answer = codec.decode_exactly("ApiVersionsResponse", version, frame, position)
        if error_code:
            raise error_for_code(error_code)
        self._negotiated = Negotiated(
            MappingProxyType(
                {api["api_key"]: VersionRange(api["min_version"], api["max_version"]) for api in answer["api_keys"]}
            ),
            MappingProxyType({one["name"]: one["max_version_level"] for one in answer["finalized_features"]}),
        )
        yield self._negotiated

    def _request(self, api_key: ApiKey, version: int, chunks: list[Buffer], answered: bool, tag: object) -> Sent:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = 0 if correlation_id == MAX_CORRELATION_ID else correlation_id + 1
        if answered:
            self._expected.append((correlation_id, api_key, version, tag))
        signature = self._signatures.get((api_key, version))
        if signature is None:
            signature = request_signature(api_key, version, self._client_id)
            self._signatures[api_key, version] = signature
        body_bytes = len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))
        head = encode_request_head(api_key, version, correlation_id, signature, body_bytes)
        chunks[0] = head + chunks[0]
        sent: Sent = _new(Sent, (correlation_id, version, chunks, len(head) + body_bytes))
        return sent


def _fallback(answer: codec.Message, refused: int) -> int:
    for api in answer["api_keys"]:
        if api["api_key"] == ApiKey.API_VERSIONS:
            return int(max(0, min(api["max_version"], refused - 1)))
    return 0


def _encode(api_key: ApiKey, version: int, body: Any) -> list[Buffer]:
    """The body in chunks, the first of them small."""
    if isinstance(body, ProduceRequest):
        chunks = produce_request(version, body)
        return encode_produce_request(version, body) if chunks is None else chunks
    if isinstance(body, FetchRequest):
        return [encode_fetch_request(version, body)]
    return [codec.encode(f"{api_key.schema_prefix}Request", version, body)]


def _decode(api_key: ApiKey, version: int, frame: memoryview, position: int) -> Any:
    if api_key == _PRODUCE:
        plain = read_produce_response(frame, position, version)
        return decode_produce_response(frame, position, version) if plain is None else plain
    if api_key == _FETCH:
        return decode_fetch_response(frame, position, version)
    return codec.decode_exactly(f"{api_key.schema_prefix}Response", version, frame, position)
