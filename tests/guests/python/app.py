"""A guest that another toolchain builds: componentize-py, with bindings of its own making and nothing of Weir's.

Doubles the numbers of the request's body (JSON) with the model `double`, and answers with the new ones.
"""

import json
import struct

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports import graph
from wit_world.imports.tensor import Tensor, TensorType
from wit_world.imports.types import Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        try:
            status, answer = 200, {"doubled": double(json.loads(read(request)))}
        except Err as error:
            status, answer = 500, {"error": error.value.data() if hasattr(error.value, "data") else str(error.value)}
        except (TypeError, ValueError, struct.error) as error:
            status, answer = 400, {"error": str(error)}
        respond(response_out, status, json.dumps(answer).encode())


def double(numbers: list) -> list:
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    context = graph.load_by_name("double").init_execution_context()
    outputs = context.compute([("x", Tensor([len(numbers)], TensorType.FP32, data))])
    (_, output) = outputs[0]
    return list(struct.unpack(f"<{len(numbers)}f", output.data()))


def read(request: IncomingRequest) -> bytes:
    body = b""
    with request.consume() as incoming, incoming.stream() as stream:
        while True:
            try:
                body += stream.blocking_read(65536)
            except Err:
                return body


def respond(out: ResponseOutparam, status: int, answer: bytes) -> None:
    response = OutgoingResponse(Fields.from_list([("content-type", b"application/json")]))
    response.set_status_code(status)
    body = response.body()
    ResponseOutparam.set(out, Ok(response))
    with body.write() as stream:
        stream.blocking_write_and_flush(answer)
    OutgoingBody.finish(body, None)
