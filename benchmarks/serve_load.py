"""Measure `elmore serve` under load on loopback: latency, throughput, errors and memory.

    python benchmarks/serve_load.py RESULTS.json [--clients 64] [--slow 0] [--seconds 60] [--page]

The server is a process of its own; this process runs the clients. The steps are:

1. the bulk rate of `Embedder.encode`, in a third process;
2. many clients, each sending its next request as soon as it has its response, and with `--slow`
   others beside them that ask for all layers of the same texts and read 32 KB of JSON a second;
3. in rounds, one client alone, then random arrivals at half the rate of step 2;
4. the bulk rate again.

Latencies are compared within a round, and the result is the median over the rounds, because other
programs may use the machine for seconds at a time. Every request asks /encode for sentences of
$ELMORE_DATA/corpus/valid.txt.xz or of the lines of `--text`, the same ones as in bulk. Both sides
embed all of them once before timing, so both start with a warm word cache. CPU seconds and memory
of the server come from /proc. `--page` prints the page of RESULTS.json.
"""

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elmore.text.tokenizers import penn

BULK = """
import json, sys, time
import torch, elmore
texts, precision, *model = json.load(open(sys.argv[1])), *sys.argv[2:]
elmo = elmore.load(*model, device="cpu", precision=precision)
elmo.encode(texts)
start = time.process_time()
elmo.encode(texts)
seconds = time.process_time() - start
tokens = sum(len(elmo.tokenizer(text).words) for text in texts)
print(json.dumps([tokens / seconds, torch.get_num_threads()]))
"""
TARGET, TIMES = 0.7, 5  # of the bulk rate; of the latency of one client alone
ROUNDS = 5
KEPT = 15  # seconds without a request after which a client closes; the server does after 30
SLOW_BYTES = 1 << 15  # that a slow client reads in a second, and its receive buffer
ROUTES = {  # what is sent to each
    "/encode": lambda texts: {"texts": texts},
    "/embed": lambda texts: {"texts": texts, "layers": "all"},
    "/v1/embeddings": lambda texts: {"input": texts, "model": "english"},
}


class Request(NamedTuple):
    """Bytes to send, and the tokens in them."""

    data: bytes
    tokens: int


class Server:
    """`elmore serve` as a process; what it says goes to a file."""

    def __init__(
        self, model: list[str], precision: str, place: Path, options: Sequence[str] = ()
    ) -> None:
        self._log = (place / "server.log").open("w+")
        command = [sys.executable, "-m", "elmore", "serve", *model, "--port", "0", *options]
        self.process = subprocess.Popen(
            [*command, "--device", "cpu", "--precision", precision], stderr=self._log
        )
        while not (result := re.search(r"http://127\.0\.0\.1:(\d+)\n", self.said)):
            if self.process.poll() is not None:
                raise SystemExit(self.said)
            time.sleep(0.1)
        self.port = int(result[1])

    @property
    def said(self) -> str:
        """All it has said."""
        return Path(self._log.name).read_text()

    def cpu_seconds(self) -> float:
        """User and system."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        """In memory now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> int:
        """Stop the server and return how it ended."""
        self.process.terminate()
        code = self.process.wait(timeout=120)
        self._log.close()
        return code


class Tally:
    """What came back."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.asked: list[Request] = []  # for each of the seconds
        self.tokens = 0
        self.statuses: Counter[str] = Counter()

    def add(self, status: str, seconds: float, request: Request) -> None:
        """Count one."""
        self.statuses[status] += 1
        if status == "200":
            self.seconds.append(seconds)
            self.asked.append(request)
            self.tokens += request.tokens

    def times_as_long(self, alone: "Tally") -> list[float]:
        """Return the ratio of each latency to that of the same request alone, sorted."""
        before: dict[Request, list[float]] = {}
        for request, seconds in zip(alone.asked, alone.seconds, strict=True):
            before.setdefault(request, []).append(seconds)
        return sorted(
            seconds / statistics.median(before[request])
            for request, seconds in zip(self.asked, self.seconds, strict=True)
            if request in before
        )

    @classmethod
    def of_all(cls, tallies: Iterable["Tally"]) -> "Tally":
        """Return the responses of all clients."""
        together = cls()
        for tally in tallies:
            together.seconds += tally.seconds
            together.asked += tally.asked
            together.tokens += tally.tokens
            together.statuses += tally.statuses
        return together

    def summary(self, wall: float, cpu: float) -> dict[str, Any]:
        """Return the statistics of a run of this many seconds."""
        times = sorted(self.seconds) or [float("nan")]
        return {
            "wall seconds": wall,
            "cpu seconds": cpu,
            "requests": len(self.seconds),
            "requests a second": len(self.seconds) / wall,
            "tokens a second": self.tokens / wall,
            "tokens a CPU-second": self.tokens / max(cpu, 1e-9),
            "p50 ms": 1000 * times[len(times) // 2],
            "p99 ms": 1000 * times[min(len(times) - 1, int(0.99 * len(times)))],
            "worst ms": 1000 * times[-1],
            "statuses": dict(self.statuses),
        }


class Connection:
    """As little of HTTP/1.1 as it takes, so that the client costs little."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used = time.monotonic()

    async def ask(self, request: Request, tally: Tally) -> str:
        """Send a request, wait for all of its answer, and count it."""
        start = time.perf_counter()
        try:
            status = await self._ask(request)
        except (OSError, asyncio.IncompleteReadError) as error:
            status = type(error).__name__
            self.close()
        tally.add(status, time.perf_counter() - start, request)
        return status

    async def _ask(self, request: Request) -> str:
        if time.monotonic() - self._used > KEPT:
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request.data)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None, head
        await reader.readexactly(int(length[1]))
        self._used = time.monotonic()
        return head[9:12].decode()

    async def ask_slowly(self, request: Request, tally: Tally) -> None:
        """Send a request, and read its answer at SLOW_BYTES a second, with a small buffer."""
        start = time.perf_counter()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BYTES)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
            reader, writer = await asyncio.open_connection(sock=connection, limit=SLOW_BYTES)
            writer.write(request.data.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            status = (await reader.readexactly(12))[9:].decode()
            last = b""
            while piece := await reader.read(SLOW_BYTES):
                last = (last + piece)[-9:]
                await asyncio.sleep(len(piece) / SLOW_BYTES)
            if status == "200" and not re.search(rb"\]\}(\r\n0\r\n\r\n)?$", last):
                status = "cut off"
            writer.close()
        except (OSError, asyncio.IncompleteReadError) as error:
            status = type(error).__name__
            connection.close()
        tally.add(status, time.perf_counter() - start, request)

    def close(self) -> None:
        """Close it, if it is open."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def closed_loop(port: int, requests: Iterable[Request], clients: int) -> Tally:
    """Let every client send its next request as soon as it has its response."""
    tally, order = Tally(), iter(requests)

    async def client() -> None:
        connection = Connection(port)
        for request in order:
            if await connection.ask(request, tally) != "200":
                await asyncio.sleep(0.1)
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return tally


async def beside_slow_clients(
    port: int, usual: Awaitable[Tally], requests: Iterator[Request], slow: int, tally: Tally
) -> Tally:
    """Let others ask and read slowly until the usual clients are done; count them apart."""
    done = asyncio.Event()

    async def client() -> None:
        while not done.is_set():
            await Connection(port).ask_slowly(next(requests), tally)

    clients = [asyncio.create_task(client()) for _ in range(slow)]
    result = await usual
    done.set()
    await asyncio.gather(*clients)
    return result


def for_seconds(requests: Iterator[Request], seconds: float) -> Iterator[Request]:
    """Yield requests until the time is over."""
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, requests)


async def by_chance(port: int, requests: Iterable[Request], rate: float, seed: int) -> Tally:
    """Send requests at random times at this rate, whether others are answered or not."""
    tally, chance = Tally(), random.Random(seed)
    free, jobs = [], set()

    async def one(request: Request) -> None:
        connection = free.pop() if free else Connection(port)
        await connection.ask(request, tally)
        free.append(connection)

    for request in requests:
        job = asyncio.create_task(one(request))
        jobs.add(job)
        job.add_done_callback(jobs.discard)
        await asyncio.sleep(chance.expovariate(rate))
    await asyncio.gather(*jobs)
    for connection in free:
        connection.close()
    return tally


async def watched(
    server: Server, work: Awaitable[Tally]
) -> tuple[Tally, dict[str, Any], list[float]]:
    """Run clients, and look at the server's time and memory meanwhile."""
    samples: list[float] = []

    async def sample() -> None:
        while True:
            samples.append(server.megabytes())
            await asyncio.sleep(1)

    sampling = asyncio.create_task(sample())
    start, cpu = time.monotonic(), server.cpu_seconds()
    tally = await work
    result = tally.summary(time.monotonic() - start, server.cpu_seconds() - cpu)
    sampling.cancel()
    return tally, result, samples


def make_request(route: str, body: dict[str, Any], num_tokens: int) -> Request:
    data = json.dumps(body).encode()
    head = f"POST {route} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return Request(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data, num_tokens)


def prepared(texts: list[str], in_each: int, route: str = "/encode") -> list[Request]:
    requests = []
    for start in range(0, len(texts) - in_each + 1, in_each):
        group = texts[start : start + in_each]
        num_tokens = sum(len(penn(text).words) for text in group)
        requests.append(make_request(route, ROUTES[route](group), num_tokens))
    return requests


def ticks() -> tuple[int, int]:
    """Return the stolen and the total CPU time of a virtual machine."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split()[1:9]]
    return fields[7], sum(fields)


def bulk(texts: list[str], model: list[str], precision: str, place: Path) -> tuple[float, int]:
    file = place / "texts.json"
    file.write_text(json.dumps(texts))
    command = [sys.executable, "-c", BULK, str(file), precision, *model]
    rate, threads = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
    return rate, threads


def measure(args: argparse.Namespace, texts: list[str], place: Path) -> dict[str, Any]:
    model = [args.model] if args.model else []
    requests = prepared(texts, args.texts, args.route)
    large, slow = itertools.cycle(prepared(texts, args.texts, "/embed")), Tally()
    rates = [bulk(texts, model, args.precision, place)]
    server, before = Server(model, args.precision, place), ticks()
    try:
        run = lambda work: asyncio.run(watched(server, work))  # noqa: E731
        run(closed_loop(server.port, requests, args.clients))  # each once: now it knows the words
        endless, part = itertools.cycle(requests), min(args.seconds, 120) / ROUNDS
        some = for_seconds(endless, args.seconds)
        many = closed_loop(server.port, some, args.clients)
        _, loaded, samples = run(beside_slow_clients(server.port, many, large, args.slow, slow))
        rate = max(0.5, loaded["requests a second"] / 2)
        alone, half = [], []
        for seed in range(ROUNDS):
            alone.append(run(closed_loop(server.port, for_seconds(endless, part / 4), 1)))
            some = for_seconds(endless, part / 2)
            half.append(run(by_chance(server.port, some, rate, seed)))
    finally:
        code = server.stop()
    taken, whole = (after - ago for after, ago in zip(ticks(), before, strict=True))
    rates.append(bulk(texts, model, args.precision, place))
    bulk_rate = statistics.mean(rate for rate, _ in rates)
    beside, by_itself = (Tally.of_all(tally for tally, *_ in runs) for runs in (half, alone))
    slowed = beside.times_as_long(by_itself) or [float("nan")]
    lengths = sorted(len(penn(text).words) for text in texts)
    rounds = [(one, many) for (_, one, _), (_, many, _) in zip(alone, half, strict=True)]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "threads": rates[0][1],
        "model": args.model or "the bundled model",
        "precision": args.precision,
        "clients": args.clients,
        "route": args.route,
        "texts": args.texts,
        "tokens in a text": statistics.mean(lengths),
        "tokens in a text, p1, p50, p99": [lengths[len(lengths) * p // 100] for p in (1, 50, 99)],
        "slow clients": args.slow,
        "slow": slow.summary(loaded["wall seconds"], 1.0) if args.slow else None,
        "bulk tokens a CPU-second": bulk_rate,
        "share of bulk": loaded["tokens a CPU-second"] / bulk_rate,
        "alone": over(by_itself, [one for one, _ in rounds]),
        "loaded": loaded,
        "half": over(beside, [many for _, many in rounds]),
        "half p99 / alone p50": [many["p99 ms"] / one["p50 ms"] for one, many in rounds],
        "half p99 / alone p99": [many["p99 ms"] / one["p99 ms"] for one, many in rounds],
        "half / alone, of each, p99": slowed[min(len(slowed) - 1, int(0.99 * len(slowed)))],
        "taken by others": taken / whole,
        "megabytes": samples,
        "exit": code,
    }


def over(tally: Tally, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the statistics of several rounds."""
    return tally.summary(
        *(sum(one[f"{what} seconds"] for one in rounds) for what in ("wall", "cpu"))
    )


def page(found: dict[str, Any]) -> str:
    rows = [
        f"| {name} | {row['p50 ms']:.0f} | {row['p99 ms']:.0f} | {row['requests a second']:.1f} | "
        f"{row['tokens a second']:.0f} | {row['tokens a CPU-second']:.0f} | "
        f"{', '.join(f'{status}: {n}' for status, n in sorted(row['statuses'].items()))} |"
        for name, row in (
            ("one client", found["alone"]),
            (f"{found['clients']} clients", found["loaded"]),
            ("by chance, at half that rate", found["half"]),
        )
    ]
    memory, times = found["megabytes"], found["half p99 / alone p50"]
    fifth = max(1, len(memory) // 5)
    early, late = (
        statistics.median(part) for part in (memory[fifth : 2 * fifth] or memory, memory[-fifth:])
    )
    return "\n".join(
        [
            f"# `elmore serve` under load, {found['date']}",
            "",
            f"{found['machine']}, {found['threads']} threads, {found['model']}, "
            f"{found['precision']}, {found['route']} as JSON, "
            f"{found['texts']} text(s) a request of {found['tokens in a text']:.0f} tokens each "
            f"(p1, p50 and p99: {', '.join(map(str, found['tokens in a text, p1, p50, p99']))}), "
            f"{found['loaded']['wall seconds']:.0f} s of load.",
            "",
            "| | p50, ms | p99, ms | requests/s | tokens/s | tokens/CPU-s | answers |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            f"- In bulk `Embedder.encode` reads {found['bulk tokens a CPU-second']:.0f} tokens a "
            f"CPU-second: the server reaches {found['share of bulk']:.0%} (target {TARGET:.0%}). "
            "Both read the same texts, and have met all their words before.",
            f"- p99 at half load is {statistics.median(times):.1f} times the p50 of one client "
            f"alone (target {TIMES}; rounds {', '.join(f'{one:.1f}' for one in sorted(times))}), "
            f"and {statistics.median(found['half p99 / alone p99']):.1f} times its p99. Against "
            "what it took alone itself the slowest hundredth took "
            f"{found['half / alone, of each, p99']:.1f} times as long or more.",
            f"- Memory: {early:.0f} MB in the second fifth of the load, {late:.0f} MB in the last, "
            f"{max(memory):.0f} MB at most.",
            *slow_line(found),
            f"- SIGTERM: exit {found['exit']}. Other machines took "
            f"{found['taken by others']:.0%} of the cores' time.",
        ]
    )


def slow_line(found: dict[str, Any]) -> list[str]:
    if not found["slow clients"]:
        return []
    slow = found["slow"]
    return [
        f"- Beside them {found['slow clients']} clients asked /embed for all layers and read "
        f"{SLOW_BYTES // 1024} KB a second: {slow['requests']} answers, p50 "
        f"{slow['p50 ms'] / 1000:.0f} s, longest {slow['worst ms'] / 1000:.0f} s, statuses "
        f"{', '.join(f'{status}: {n}' for status, n in sorted(slow['statuses'].items()))}."
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--slow", type=int, default=0, help="further clients, who read slowly")
    parser.add_argument("--route", choices=["/encode", "/v1/embeddings"], default="/encode")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--texts", type=int, default=1, help="in a request")
    parser.add_argument("--sentences", type=int, default=1024, help="different ones")
    parser.add_argument("--tokens", type=int, help="of each text, instead of one sentence")
    parser.add_argument("--model", help="a folder; the bundled model when nothing is said")
    parser.add_argument("--precision", choices=["exact", "fast"], default="exact")
    parser.add_argument("--text", type=Path, help="a sentence a line")
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    if args.page:
        print(page(json.loads(args.results.read_text())))
        return
    if args.text:
        texts = args.text.read_text().splitlines()
    else:
        import contestants

        some = contestants.real_sentences()
        if args.tokens:
            words = itertools.chain.from_iterable(some)
            some = iter(lambda: list(itertools.islice(words, args.tokens)), [])
        texts = [" ".join(words) for words in itertools.islice(some, args.sentences)]
    with tempfile.TemporaryDirectory() as name:
        result = measure(args, texts[: args.sentences], Path(name))
    args.results.write_text(json.dumps(result, indent=2))
    print(page(result))


if __name__ == "__main__":
    main()
