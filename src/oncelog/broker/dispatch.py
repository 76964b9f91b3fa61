"""From a frame to a handler, and from its answer to a frame.

Owns which handler serves which API, how its request is decoded and how its answer is framed. Knows no socket. Bytes
that are no request raise `MalformedMessage`: the protocol has no answer for them, the connection is closed.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from oncelog.broker.request import Answer, Chunks, Peer, Piecewise, Request, Stepwise
from oncelog.broker.request_bounds import check_size, max_elements, name_once
from oncelog.errors import KafkaError, KafkaStorageError, UnknownServerError
from oncelog.log.storage import is_out_of_descriptors
from oncelog.wire import codec
from oncelog.wire.api import SUPPORTED, ApiKey
from oncelog.wire.codec import MalformedMessage, Message
from oncelog.wire.encoder import EncodedTooLarge
from oncelog.wire.fetch import decode_fetch_request
from oncelog.wire.frame import RequestHeader, decode_request_header, encode_response, encode_response_head
from oncelog.wire.produce import decode_produce_request
from oncelog.wire.quick import offset_commit_response, read_offset_commit, read_produce
from oncelog.wire.schema import load_schema

if TYPE_CHECKING:
    from oncelog.broker.metrics import BrokerMetrics
    from oncelog.broker.quota.meter import Meter
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

Handler = Callable[["BrokerState", Request], Answer]
BodyDecoder = Callable[[memoryview, int, int], Any]

MAX_RECORDS_ANSWER_BYTES = 2**31 - 1 - 1024
"""What a frame's size can say, less its head. Records are in their files while they are sent: `fetch.max.bytes` bounds
them, but for the first batch."""

HOT_DECODERS: dict[int, BodyDecoder] = {
    ApiKey.PRODUCE: decode_produce_request,
    ApiKey.FETCH: decode_fetch_request,
}


class Dispatcher:
    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker
        self._handlers: dict[int, Handler] = {}

    def dispatch(
        self,
        frame: memoryview,
        now_ms: int,
        meter: Meter | None = None,
        peer: Peer | None = None,
        wall_ms: int | None = None,
    ) -> tuple[RequestHeader, Answer]:
        """`wall_ms` may be left out where it is the same as `now_ms`."""
        peer = peer or Peer()
        wall_ms = now_ms if wall_ms is None else wall_ms
        plain = read_produce(frame)
        if plain is not None:
            return plain[0], self._serve(*plain, now_ms, wall_ms, meter, peer)
        commit = read_offset_commit(frame)
        if commit is not None:
            return commit[0], self._serve(*commit, now_ms, wall_ms, meter, peer)
        header, position = decode_request_header(frame)
        served = SUPPORTED.get(header.api_key)  # type: ignore[call-overload]
        if served is None:
            raise MalformedMessage(f"API key {header.api_key} is not served here")
        if not served.includes(header.api_version):
            return self._unserved_version(header)
        check_size(header.api_key, len(frame))
        decode = HOT_DECODERS.get(header.api_key)
        if decode is not None:
            body = decode(frame, position, header.api_version)
        else:
            most = max_elements(header.api_key)
            body = codec.decode_bounded(request_schema(header.api_key), header.api_version, frame, position, most)
            name_once(header.api_key, body)
        return header, self._serve(header, body, now_ms, wall_ms, meter, peer)

    def _serve(
        self, header: RequestHeader, body: Any, now_ms: int, wall_ms: int, meter: Meter | None, peer: Peer
    ) -> Answer:
        request = Request(*header, body, now_ms, wall_ms, meter, peer)
        return self._handle(request) if meter is None else self._handle_metered(request, meter)

    def frame(self, header: RequestHeader, answer: Message | Chunks) -> Chunks:
        """The answer as it goes over the wire: size, correlation id, then the body, records untouched. Raises
        EncodedTooLarge; anything else is a bug."""
        if isinstance(answer, dict):
            if header.api_key == ApiKey.OFFSET_COMMIT:
                good = offset_commit_response(header.api_version, answer)
                if good is not None:
                    return [encode_response(header, good)]
            self._broker.metrics.count_errors(api_name(header.api_key), answer)
            answer = [codec.encode(response_schema(header.api_key), header.api_version, answer)]
        if len(answer) == 1 and isinstance(answer[0], bytes):
            return [encode_response(header, answer[0])]
        body_bytes = 0
        for chunk in answer:
            body_bytes += len(chunk) if isinstance(chunk, bytes) else chunk.size_bytes
        if body_bytes > MAX_RECORDS_ANSWER_BYTES:
            raise EncodedTooLarge(f"an answer of {body_bytes} bytes; lower fetch.max.bytes")
        return [encode_response_head(header, body_bytes), *answer]

    def left(self, peer: Peer) -> None:
        """The connection is gone."""
        self._broker.sessionless.left(peer)

    def make(self, header: RequestHeader, answer: Piecewise) -> Making:
        return Making(self._broker.metrics, header, answer)

    def _handle(self, request: Request) -> Answer:
        try:
            handler = self._handlers.get(request.api_key) or self._load(request.api_key)
            return handler(self._broker, request)
        except KafkaError as error:
            return self._top_level_error(request, error)
        except MalformedMessage:
            raise
        except Exception as error:
            if is_out_of_descriptors(error):
                return self._top_level_error(request, KafkaStorageError("the broker has no descriptor left; try again"))
            logger.exception("bug: %s v%d failed", api_name(request.api_key), request.version)
            return self._top_level_error(request, UnknownServerError("the broker failed; its log says why"))

    def _handle_metered(self, request: Request, meter: Meter) -> Answer:
        meter.meet(request.client_id)
        answer = self._handle(request)
        message = answer.rest if isinstance(answer, Piecewise) else answer
        if isinstance(message, dict):  # the handlers of hot APIs ask the meter themselves
            throttle_ms = meter.served()
            if tells_throttle(request.api_key):
                message["throttle_time_ms"] = throttle_ms
        elif isinstance(answer, Stepwise) and tells_throttle(request.api_key) and request.api_key != ApiKey.FETCH:
            throttled = {"throttle_time_ms": meter.served()}
            answer.amend = lambda late: late.update(throttled)
        return answer

    def _load(self, api_key: int) -> Handler:
        module = importlib.import_module(f"oncelog.broker.handlers.{ApiKey(api_key).name.lower()}")
        handler: Handler = module.handle
        self._handlers[api_key] = handler
        return handler

    def _unserved_version(self, header: RequestHeader) -> tuple[RequestHeader, Answer]:
        if header.api_key != ApiKey.API_VERSIONS:
            raise MalformedMessage(f"{api_name(header.api_key)} version {header.api_version} is not served here")
        from oncelog.broker.handlers import api_versions

        fallback = header._replace(api_version=api_versions.FALLBACK_VERSION)
        return fallback, api_versions.unsupported_version()

    def _top_level_error(self, request: Request, error: KafkaError) -> Message:
        fields = {field.name for field in load_schema(response_schema(request.api_key)).fields}
        if "error_code" not in fields:
            raise MalformedMessage(f"no answer can say it: {error}") from error
        message: Message = {"error_code": error.code}
        if "error_message" in fields:
            message["error_message"] = error.message
        return message


_THE_END: Final[Message] = {}


class Making:
    """A piecewise answer while it is made: elements are encoded as they come, so that only their bytes are held."""

    def __init__(self, metrics: BrokerMetrics, header: RequestHeader, answer: Piecewise) -> None:
        self._metrics = metrics
        self._api_name = api_name(header.api_key)
        self._answer = answer
        schema = response_schema(header.api_key)
        self._encoded = codec.encoded_elements(schema, header.api_version, answer.array)

    def step(self) -> Message | None:
        """Make one more element, or a part of it. The answer, once that was the last. Raises EncodedTooLarge, or what
        making it raises."""
        element = next(self._answer.elements, _THE_END)
        if element is None:
            return None
        if element is _THE_END:
            return {**self._answer.rest, self._answer.array: self._encoded}
        self._metrics.count_errors(self._api_name, element)
        self._encoded.append(element)
        return None

    def abandon(self) -> None:
        """Nobody is left to read it."""


@cache
def api_name(api_key: int) -> str:
    return ApiKey(api_key).schema_prefix


@cache
def tells_throttle(api_key: int) -> bool:
    return any(field.name == "throttle_time_ms" for field in load_schema(response_schema(api_key)).fields)


def request_schema(api_key: int) -> str:
    return api_name(api_key) + "Request"


def response_schema(api_key: int) -> str:
    return api_name(api_key) + "Response"
