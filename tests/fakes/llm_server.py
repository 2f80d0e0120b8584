"""A small server with OpenAI's API and a page of metrics; a real decoder, by ONNX Runtime.

Its log of decoding steps is the truth for tests: when each token was made. ``fault`` breaks it.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VOCABULARY, WIDTH = 64, 32
FAULTS = (
    *("refuse", "redirect", "empty", "no_token", "huge", "garbage", "not_http", "die", "stall"),
    *("error_event", "reset", "restart", "gone", "short"),
)


class Decoder:
    """A recurrent network with random weights: a token and a state in, scores and a state out."""

    def __init__(self) -> None:
        import numpy as np
        import onnx
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper

        random = np.random.default_rng(7)

        def weights(name: str, *shape: int) -> Any:
            values = random.normal(0, 0.5, shape).astype(np.float32)
            return numpy_helper.from_array(values, name)

        nodes = [
            helper.make_node("Gather", ["embedding", "token"], ["word"]),
            helper.make_node("MatMul", ["state", "recurrent"], ["carried"]),
            helper.make_node("Add", ["word", "carried"], ["summed"]),
            helper.make_node("Tanh", ["summed"], ["next_state"]),
            helper.make_node("MatMul", ["next_state", "head"], ["scores"]),
        ]
        of = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "decoder",
            [of("token", TensorProto.INT64, [1]), of("state", TensorProto.FLOAT, [1, WIDTH])],
            [
                of("scores", TensorProto.FLOAT, [1, VOCABULARY]),
                of("next_state", TensorProto.FLOAT, [1, WIDTH]),
            ],
            [
                weights("embedding", VOCABULARY, WIDTH),
                weights("recurrent", WIDTH, WIDTH),
                weights("head", WIDTH, VOCABULARY),
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._state = np.zeros((1, WIDTH), np.float32)
        self._numpy = np

    def step(self, token: int, state: Any = None) -> tuple[int, Any]:
        """Return the token of the highest score, and the new state."""
        given = {
            "token": self._numpy.array([token], self._numpy.int64),
            "state": self._state if state is None else state,
        }
        scores, state = self._session.run(None, given)
        return int(scores[0].argmax()), state


class LlmServer:
    """Serves on a free port of the loopback until it is closed.

    Attributes:
        steps_ns: Begin and end of each decoding step, in the order of their end.
        requests: Bodies of the requests so far, with their ``Authorization`` header.
        fault: One of ``FAULTS``, or ``None``.

    ``on_step`` is called with the begin of a step as it begins, and with both times as it ends.
    """

    def __init__(
        self,
        step_seconds: float = 0.0,
        counts_requests: bool = False,
        on_step: Callable[[int, int | None], object] = lambda *_: None,
        port: int = 0,
    ) -> None:
        self.steps_ns: list[tuple[int, int]] = []
        self.requests: list[tuple[dict[str, Any], str | None]] = []
        self.fault: str | None = None
        self.sends_usage, self.hides_every = True, 0
        self.counted, self.started = 0, 1.0e9
        self._step_seconds, self._counts_requests = step_seconds, counts_requests
        self._on_step, self._decoder = on_step, Decoder()
        self._lock, self._closed = threading.Lock(), threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.scrape(self)

            def do_POST(self) -> None:
                outer.complete(self)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop serving, and break off what is being answered."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> "LlmServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _broken(self, handler: BaseHTTPRequestHandler) -> bool:
        """Answer as the fault has it, if it concerns the whole answer."""
        fault, send = self.fault, handler.wfile.write
        if fault == "refuse":
            handler.send_error(500, "out of memory")
        elif fault == "redirect":
            handler.send_response(302)
            handler.send_header("Location", "http://169.254.169.254/latest")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        elif fault == "empty":
            self._answer(handler, b"")
        elif fault == "not_http":
            send(b"\x00\xff\xfe nonsense\r\n\r\n")
            handler.close_connection = True
        elif fault == "stall":
            self._closed.wait(3.0)
            handler.close_connection = True
        elif fault == "huge":
            handler.send_response(200)
            handler.end_headers()
            for _ in range(800):
                send(b"x 1\n" * 16384)
            handler.close_connection = True
        else:
            return False
        return True

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:-1] if self.fault == "short" else body)
        handler.close_connection = True

    def scrape(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer with the counter as a page of Prometheus."""
        if self._broken(handler):
            return
        if self.fault == "reset":
            self.counted = 0
        if self.fault == "restart":
            self.started += 1
        name = "llamacpp:tokens_predicted_total"
        if not self._counts_requests:
            name = "vllm:generation_tokens_total"
        page = [
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {self.started}",
            f"# HELP {name} Tokens.",
            f"# TYPE {name} counter",
            f"# TYPE {name}_of_another gauge",
            f'{name}_of_another{{model_name="small"}} 5',
        ]
        if self.fault != "gone":
            page.append(f'{name}{{model_name="small",engine="0"}} {self.counted}.0')
        self._answer(handler, "".join(f"{line}\n" for line in page).encode())

    def complete(self, handler: BaseHTTPRequestHandler) -> None:
        """Stream an answer of ``max_tokens`` tokens."""
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        asked = json.loads(body)
        self.requests.append((asked, handler.headers["Authorization"]))
        if self._broken(handler):
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()  # the end of the connection is the end of the answer
        handler.close_connection = True
        wanted = 0 if self.fault == "no_token" else int(asked["max_tokens"])
        is_chat = handler.path.endswith("/chat/completions")
        send = handler.wfile.write

        def event(choices: list[Any], **more: Any) -> None:
            send(f"data: {json.dumps({'choices': choices, **more})}\n\n".encode())
            handler.wfile.flush()

        send(b": a comment\n\n")
        if is_chat:
            event([{"index": 0, "delta": {"role": "assistant", "content": ""}}])
        token, state = 1, None
        for number in range(wanted):
            if self._closed.is_set():
                return
            token, state = self._decode(token, state)
            if number == 3 and self.fault == "die":
                return
            if number == 3 and self.fault == "garbage":
                send(b"data: {\x00\xffhalf\n\n")
                return
            if number == 3 and self.fault == "error_event":
                send(b'data: {"error": {"message": "CUDA out of memory"}}\n\n')
                return
            if self.hides_every and number % self.hides_every == self.hides_every - 1:
                continue
            text = chr(97 + token % 26)
            choice = {"delta": {"content": text}} if is_chat else {"text": text}
            event([{"index": 0, **choice}])
        if self._counts_requests:
            with self._lock:
                self.counted += wanted
        event([{"index": 0, "delta": {}, "text": "", "finish_reason": "length"}])
        if self.sends_usage and asked.get("stream_options", {}).get("include_usage"):
            event([], usage={"prompt_tokens": 3, "completion_tokens": wanted})
        send(b"data: [DONE]\n\n")

    def _decode(self, token: int, state: Any) -> tuple[int, Any]:
        with self._lock:
            begin_ns = time.monotonic_ns()
            self._on_step(begin_ns, None)
            found = self._decoder.step(token, state)
            if self._step_seconds:
                time.sleep(self._step_seconds)
            end_ns = time.monotonic_ns()
            self._on_step(begin_ns, end_ns)
            self.steps_ns.append((begin_ns, end_ns))
            if not self._counts_requests:
                self.counted += 1
        return found


def main() -> int:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--step-seconds", type=float, default=0.005)
    given = parser.parse_args()
    with LlmServer(given.step_seconds, port=given.port) as server:
        print(server.url, flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
