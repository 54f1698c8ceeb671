"""Limits of the demo server: on the time of a request, and on the bytes that wait in memory at once."""

import io
import socket
import threading
import time

LARGEST_UPLOAD = 16 * 2**20
"""Largest upload in bytes."""

REQUEST_SECONDS = 20.0
"""Seconds that a request may take to arrive, however its bytes are spread over them."""

BYTES_IN_FLIGHT = 128 * 2**20
"""Bytes of all uploads that are held at once. What was announced but not sent does not count."""

CONNECTIONS = 1024
"""Connections that are open at once; a further one is closed."""


class TimedReader(io.RawIOBase):
    """Reads from a connection until a deadline. (A timeout for each byte would let a request last for ever.)"""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.restart()

    def restart(self) -> None:
        """Set the deadline for the next request."""
        self._deadline = time.monotonic() + REQUEST_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        count = self._connection.recv_into(buffer)
        self._connection.settimeout(REQUEST_SECONDS)  # of the answer
        return count


class Quota:
    """A number of bytes, or of connections, that several threads share."""

    def __init__(self, size: int) -> None:
        self._left, self._lock = size, threading.Lock()

    def take(self, size: int) -> bool:
        """Take `size` of them, or none; a negative size gives them back. Returns whether they were there."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True
