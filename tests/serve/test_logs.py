import json
import logging

from elmore.serve.logs import JSONLines, log_to_stderr
from tests.support.live_server import Slow, engine_of, run_server


def test_a_log_line_is_json_and_has_no_error_message(caplog):
    try:
        raise ValueError("the user's own words")
    except ValueError:
        logging.getLogger("elmore.serve").exception("it failed", extra={"fields": {"status": 500}})
    line = json.loads(JSONLines().format(caplog.records[0]))
    assert (line["event"], line["status"], line["error"]) == ("it failed", 500, "ValueError")
    assert line["time"].endswith("Z")
    assert "words" not in json.dumps(line)
    assert any("test_logs.py" in index for index in line["through"])


def test_no_request_leaves_its_text_in_the_log(embedder, caplog):
    class Broken(Slow):
        def run(self, kind, works):
            raise RuntimeError(f"cannot read {works}")

        def add(self, works):
            self.inner.add(works)

    caplog.set_level(logging.DEBUG)
    with run_server(Broken(engine_of(embedder))) as client:
        client.post("/encode", {"texts": ["sesame storm"]})
        client.post("/score", {"texts": ["sesame storm"]})
        client.post("/encode", {"texts": [{"sesame": 1}]})
        client.post("/encode", b'{"sesame')
        client.get("/sesame?sesame=1")
        client.raw(b"sesame sesame\r\n\r\n")
        client.raw(b"SESAME / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    lines = [JSONLines().format(record) for record in caplog.records]
    assert not any("sesame" in line.lower() for line in lines)
    requests = [json.loads(line) for line in lines if '"event": "request"' in line]
    assert [line["status"] for line in requests] == [200, 500, 422, 400, 404, 405]
    assert requests[0]["route"] == "/encode"
    assert (requests[0]["texts"], requests[0]["tokens"]) == (1, 2)
    assert [line["method"] for line in requests] == [*4 * ["POST"], "GET", "unknown"]
    assert requests[-2]["route"] == "unknown"


def test_requests_and_unexpected_errors_are_logged_to_stderr(capsys):
    root, ours = logging.getLogger(), logging.getLogger("elmore.serve")
    before = root.handlers[:], root.level, ours.level
    try:
        log_to_stderr()
        ours.info("request")
        logging.getLogger("others").info("chatter")
        logging.getLogger("others").warning("trouble")
    finally:
        root.handlers[:], root.level, ours.level = before
        root.setLevel(before[1])  # what loggers remember of levels is forgotten with it
        ours.setLevel(before[2])
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["request", "trouble"]
