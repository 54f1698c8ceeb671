"""The demo server under load: simultaneous pictures, and connections that are half open.

    python tests/faults/demo_load.py

Starts `lotnet demo` on the model of tests/fixtures. First, 500 connections send half a request and no more: beside
them, the server must need less than 500 MB and answer an honest request within 2 seconds. Then 200 clients send a
picture at the same time, and each must be answered. Exit code 1 if not, or if the server reported an error.
"""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from readers import FIXTURES, picture

from workers import versions

PICTURES, HALF_OPEN = 200, 500
MEGABYTES, SECONDS = 500, 2.0
BODY = picture("PNG", 400)


def ask(port: int) -> bool:
    """Send a picture. Returns whether it was answered with a label."""
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/predict", BODY)
    answer = connection.getresponse()
    return answer.status == 200 and "label" in json.loads(answer.read())


def half_open(port: int, n: int) -> socket.socket:
    """A connection that sends a part of its request: nothing, a line, headers, or half a picture."""
    request = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(request[: (0, 20, 60, len(BODY) // 2)[n % 4]])
    return client


def memory(process: int, kind: str) -> float:
    """Memory of a process in MB: VmRSS is now, VmHWM the largest so far."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(rf"{kind}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def main() -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    command = [sys.executable, "-m", "lotnet", "demo", str(FIXTURES / "run-format1"), "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as server:
        try:
            return measure(server)
        finally:
            server.kill()


def measure(server: "subprocess.Popen[str]") -> int:
    assert server.stdout is not None and server.stderr is not None
    port = next(int(found[1]) for line in server.stdout if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
    print(f"{versions()}; pictures of {len(BODY) / 1000:.0f} kB")
    print(f"memory at the start               {memory(server.pid, 'VmRSS'):.0f} MB")
    idle = [half_open(port, n) for n in range(HALF_OPEN)]
    start = time.perf_counter()
    answered = ask(port)
    waited, needed = time.perf_counter() - start, memory(server.pid, "VmRSS")
    print(f"{HALF_OPEN} half-open connections         {needed:.0f} MB")
    print(f"an honest request beside them     answered: {answered}, after {waited:.2f} s")
    for client in idle:
        client.close()
    start = time.perf_counter()
    with ThreadPoolExecutor(PICTURES) as pool:
        count = sum(pool.map(lambda _: ask(port), range(PICTURES)))
    print(
        f"{PICTURES} simultaneous pictures         {count} answered, the last after {time.perf_counter() - start:.1f} s"
    )
    print(f"largest memory                    {memory(server.pid, 'VmHWM'):.0f} MB", flush=True)
    server.terminate()
    said = server.stderr.read()
    print(said, end="")
    failed = count < PICTURES or not answered or waited > SECONDS or needed > MEGABYTES or bool(said)
    print("FAILED" if failed else "passed")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
