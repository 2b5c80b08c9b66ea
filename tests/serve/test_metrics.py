import re

from elmore.serve import metrics as measured
from elmore.serve.batcher import Batch
from elmore.serve.limits import Limits
from elmore.serve.metrics import Histogram, Metrics
from tests.support.live_server import engine_of, run_server

LINE = re.compile(r'^(# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [-+.e\d]+)$')


def test_every_bucket_holds_those_below_it():
    result = Histogram((1, 10))
    for value in (0.5, 1, 5, 100):
        result.add(value)
    assert list(result.lines("size", 'route="/"')) == [
        'size_bucket{route="/",le="1"} 2',
        'size_bucket{route="/",le="10"} 3',
        'size_bucket{route="/",le="+Inf"} 4',
        'size_sum{route="/"} 106.500000',
        'size_count{route="/"} 4',
    ]


def test_counts_are_written_as_prometheus_reads_them():
    metrics = Metrics(lambda: 7, lambda: 9)
    metrics.request("/embed", 200, 0.1)
    metrics.request("/embed", 200, 0.2)
    metrics.request("/embed", 429, 0.001)
    metrics.batch(Batch(tokens=40, done=30, seconds=0.5))
    lines = metrics.text().splitlines()
    assert all(LINE.match(line) for line in lines)
    assert 'elmore_requests_total{route="/embed",status="200"} 2' in lines
    assert 'elmore_request_seconds_count{route="/embed"} 3' in lines
    assert "elmore_tokens_total 30" in lines
    assert "elmore_queue_tokens 7" in lines
    assert "elmore_unsent_bytes 9" in lines
    assert "elmore_batch_tokens_sum 40.000000" in lines


def test_the_server_reports_its_memory_and_its_time(client):
    client.post("/encode", {"texts": ["a storm"]})
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert all(LINE.match(line) for line in answer.body.decode().splitlines())
    assert client.metric("process_resident_memory_bytes") > 1e7
    assert client.metric("process_cpu_seconds_total") > 0.01
    assert client.metric('elmore_requests_total{route="/encode"') >= 1


def test_requests_refused_by_the_middleware_are_counted_by_route(embedder):
    right = {"Authorization": "Bearer correct-horse"}
    limits = Limits(body_bytes=50)
    with run_server(engine_of(embedder), limits=limits, token="correct-horse") as client:
        client.post("/encode", {"texts": ["a"]})
        client.post("/embed", {"texts": ["a" * 100]}, **right)
        client.post("/etc/passwd", {})
        client.get("/embed", **right)
        lines = client.get("/metrics", **right).body.decode().splitlines()
    counts = {line for line in lines if line.startswith("elmore_requests_total")}
    assert counts == {
        'elmore_requests_total{route="/encode",status="401"} 1',
        'elmore_requests_total{route="/embed",status="413"} 1',
        'elmore_requests_total{route="/embed",status="405"} 1',
        'elmore_requests_total{route="unknown",status="401"} 1',
    }


def test_where_the_system_does_not_say_memory_is_0(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "_STATM", tmp_path / "nowhere")
    lines = Metrics(lambda: 0, lambda: 0).text().splitlines()
    (value,) = (line for line in lines if re.match(r"\w*resident\w* ", line))
    assert value.endswith(" 0")
