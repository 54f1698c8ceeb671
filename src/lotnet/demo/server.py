"""The server of the demo page: Python's own HTTP server and a table of routes.

It refuses:

* a Host header that names neither localhost nor the host it was started with. Otherwise a foreign name that resolves to
  this machine (DNS rebinding) would give a foreign page access;
* a POST from another origin, so that no other page can use the model;
* a body without a length or above `LARGEST_UPLOAD`, before reading it;
* an image of too many pixels, before decoding it;
* a path that is not in the table. No file name is ever made from a request;
* more than the limits of `lotnet.demo.limits`: connections, bytes in flight, seconds of one request.

Whatever a client sends, it gets an answer or a closed connection. A traceback on the terminal is a bug of lotnet.
"""

import errno
import io
import ipaddress
import json
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torch import Tensor

from lotnet.data.formats import FORMATS
from lotnet.data.pictures import levels, png
from lotnet.demo.answers import Answers
from lotnet.demo.limits import BYTES_IN_FLIGHT, CONNECTIONS, LARGEST_UPLOAD, Quota, TimedReader
from lotnet.errors import InputError

_HEADERS = {
    # The page may load its own script, style and images, and connect to nothing else.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PAGE = {
    "/": ("demo/page/index.html", "text/html; charset=utf-8"),
    "/style.css": ("web/style.css", "text/css; charset=utf-8"),
    "/theme.js": ("web/theme.js", "text/javascript; charset=utf-8"),
    "/page.js": ("demo/page/page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("demo/page/icon.svg", "image/svg+xml"),
}


Answer = Callable[[bytes, dict[str, str]], dict[str, Any]]
"""From the body and the arguments of a request to the content of the answer."""


@dataclass(frozen=True)
class Example:
    """A test image of the data set that the model was trained on."""

    label: str
    pixels: Tensor  # c h w, in [0, 1]


class Server(ThreadingHTTPServer):
    """A server that holds its port once constructed, and answers once `show` is called. Port 0 means any free port."""

    daemon_threads = True
    request_queue_size = 256  # connections that wait to be accepted

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.uploads = Quota(BYTES_IN_FLIGHT)
        self._connections = Quota(CONNECTIONS)
        self.gets: dict[str, tuple[bytes, str]] = {}
        self.posts: dict[str, Answer] = {}
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "a port is a number from 0 to 65535"
            of_host = isinstance(error, socket.gaierror) or getattr(error, "errno", None) == errno.EADDRNOTAVAIL
            remedy = "--host, an IPv4 address of this machine" if of_host else "--port, 0 for any free one"
            raise InputError(f"cannot listen on {host}, port {port} ({reason}): choose another {remedy}") from None

    def show(self, answers: Answers, about: dict[str, Any], examples: Sequence[Example]) -> None:
        """Serve the page about this model until `shutdown` is called."""
        files = resources.files("lotnet")
        paths = [f"/examples/{n}.png" for n in range(len(examples))]
        content = about | {
            "largest_upload": LARGEST_UPLOAD,
            "formats": FORMATS,
            "examples": [{"label": e.label, "path": path} for path, e in zip(paths, examples, strict=True)],
        }
        self.gets = {path: ((files / name).read_bytes(), kind) for path, (name, kind) in _PAGE.items()}
        self.gets |= {path: (png(levels(e.pixels)), "image/png") for path, e in zip(paths, examples, strict=True)}
        self.gets["/about"] = (json.dumps(content).encode(), "application/json")
        self.posts = {
            "/predict": lambda body, _: answers.predict(body),
            "/attack": lambda body, query: answers.attack(body, _number(query.get("size", ""))),
        }
        self.serve_forever()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.take(1):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.take(-1)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # which is a connection that was lost, reset or too slow
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.server_address[1]}/"

    def knows(self, host: str | None) -> bool:
        """Whether a Host header names this server: an IP address, localhost, or the host it was started with."""
        try:
            name = urlsplit(f"//{host or ''}").hostname or ""
        except ValueError:  # half an IPv6 address
            return False
        return name in ("localhost", self.host.lower()) or is_ip_address(name)


class Handler(BaseHTTPRequestHandler):
    """Answers requests in JSON; {"error": sentence} for a bad request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "lotnet", ""

    def setup(self) -> None:
        super().setup()
        self._timed = TimedReader(self.connection)
        self.rfile = io.BufferedReader(self._timed)

    def handle_one_request(self) -> None:
        self._timed.restart()
        super().handle_one_request()

    def do_GET(self) -> None:
        if self._refused():
            return
        found = self.server.gets.get(self.path.partition("?")[0])
        if found is None:
            self._error(HTTPStatus.NOT_FOUND, "there is nothing here: open the page at /")
        else:
            self._send(HTTPStatus.OK, *found)

    def do_POST(self) -> None:
        self.close_connection = True  # the body may be left unread
        if self._refused():
            return
        path, _, arguments = self.path.partition("?")
        answer = self.server.posts.get(path)
        if answer is None:
            self._error(HTTPStatus.NOT_FOUND, "there is nothing here: open the page at /")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 20):
            self._error(HTTPStatus.LENGTH_REQUIRED, "the request does not say how long it is: send Content-Length")
            return
        if int(length) > LARGEST_UPLOAD:
            limit = LARGEST_UPLOAD // 2**20
            self._error(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the image is larger than {limit} MB: scale it down first"
            )
            return
        query = {key: values[-1] for key, values in parse_qs(arguments[:1000]).items()}
        content = bytearray()
        try:
            if self._receive(content, int(length)):
                self._answer(answer, bytes(content), query)
        finally:
            self.server.uploads.take(-len(content))

    def _receive(self, content: bytearray, length: int) -> bool:
        """Read the body. Returns False after an answer, if it cannot be held or does not arrive."""
        while len(content) < length:
            chunk = self.rfile.read1(min(2**16, length - len(content)))
            if not chunk:
                self._error(HTTPStatus.BAD_REQUEST, "the request ended before its image did: send it again")
                return False
            if not self.server.uploads.take(len(chunk)):
                self._error(HTTPStatus.SERVICE_UNAVAILABLE, "too many images arrive at once: try again in a moment")
                return False
            content += chunk
        return True

    def _answer(self, answer: Answer, content: bytes, query: dict[str, str]) -> None:
        try:
            found = answer(content, query)
        except InputError as error:
            self._error(HTTPStatus.BAD_REQUEST, str(error))
        except Exception:
            traceback.print_exc()  # a bug: show it in the terminal
            self._error(HTTPStatus.INTERNAL_SERVER_ERROR, "lotnet failed with a bug: see the terminal it runs in")
        else:
            self._send(HTTPStatus.OK, json.dumps(found).encode(), "application/json")

    def _refused(self) -> bool:
        host, origin = self.headers.get("Host"), self.headers.get("Origin")
        if not self.server.knows(host):
            self._error(HTTPStatus.FORBIDDEN, f"this is not {host}: open {self.server.address}")
        elif origin not in (None, f"http://{host}"):
            self._error(HTTPStatus.FORBIDDEN, f"other pages may not use this one: open {self.server.address}")
        else:
            return False
        self.close_connection = True
        return True

    def _error(self, status: HTTPStatus, sentence: str) -> None:
        self._send(status, json.dumps({"error": sentence}).encode(), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        try:
            self.send_response(status)
            headers = {"Content-Type": kind, "Content-Length": str(len(content)), **_HEADERS}
            if self.close_connection:
                headers["Connection"] = "close"
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except OSError:  # the browser has gone, or reads too slowly
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal is for messages to the user."""


def is_ip_address(host: str) -> bool:
    """Whether a host is an IP address. An address, unlike a name, cannot be made to point elsewhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    return host == "localhost" or (is_ip_address(host) and ipaddress.ip_address(host).is_loopback)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"the size of an attack must be a number, not {text[:20]!r}") from None
