"""Measure what `elmore serve` spends on clients that never read their large responses.

    python benchmarks/serve_unread.py RESULTS.json [--clients 8] [--tokens 2000] [--seconds 40]

The server is a process of its own. Each client asks /embed for all layers of that many tokens, with
a small receive buffer, and reads nothing. Meanwhile another client asks for one sentence and reads
it. The resident memory of the server is sampled from /proc, from before the first client until the
end. Further arguments go to `elmore serve`, as in `-- --max-unsent-bytes 100000000`.
"""

import argparse
import asyncio
import json
import os
import platform
import socket
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from serve_load import Connection, Server, Tally, prepared

ACCEPT = {
    "json": "application/json",
    "npy": "application/x-npy",
    "arrow": "application/vnd.apache.arrow.stream",
}


def request(num_tokens: int, accept: str) -> bytes:
    text = ["storm"] * 1000
    texts = [text] * (num_tokens // len(text)) + [text[: num_tokens % len(text)]]
    body = json.dumps({"texts": texts, "layers": "all"}).encode()
    head = "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def ask_and_do_not_read(port: int, data: bytes) -> socket.socket:
    result = socket.socket()
    result.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    result.connect(("127.0.0.1", port))
    result.sendall(data)
    return result


def status(client: socket.socket) -> str:
    """Peek at the start of a response without receiving it."""
    try:
        result = client.recv(12, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return "none yet"
    except ConnectionError:
        return "cut off"
    return result[9:].decode() or "closed"


async def ask_one(port: int) -> dict[str, Any]:
    (sentence,) = prepared(["a storm comes from the sea ."], 1)
    tally, connection = Tally(), Connection(port)
    start = time.monotonic()
    await connection.ask(sentence, tally)
    connection.close()
    return {"status": next(iter(tally.statuses)), "seconds": time.monotonic() - start}


def measure(args: argparse.Namespace, place: Path) -> dict[str, Any]:
    server = Server([args.model] if args.model else [], "exact", place, args.serve)
    try:
        asyncio.run(ask_one(server.port))
        data, samples = request(args.tokens, ACCEPT[args.accept]), [server.megabytes()]
        clients = [ask_and_do_not_read(server.port, data) for _ in range(args.clients)]
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            time.sleep(0.25)
            samples.append(server.megabytes())
        statuses = Counter(status(client) for client in clients)
        beside = asyncio.run(ask_one(server.port))
        for client in clients:
            client.close()
    finally:
        code = server.stop()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "clients": args.clients,
        "tokens": args.tokens,
        "accept": ACCEPT[args.accept],
        "serve": args.serve,
        "statuses": dict(statuses),
        "one sentence beside them": beside,
        "megabytes before": samples[0],
        "megabytes at most": max(samples),
        "megabytes at the end": samples[-1],
        "exit": code,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2000, help="that each client asks for")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--accept", choices=ACCEPT, default="json")
    parser.add_argument("--model", help="a folder; the bundled model when nothing is said")
    parser.add_argument("serve", nargs="*", help="further options of `elmore serve`, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = measure(args, Path(name))
    args.results.write_text(json.dumps(result, indent=2))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
