"""A fake Hugging Face hub: the part of its HTTP API that downloads and uploads models.

Files are kept in memory, one dict per repository. Weights go the way large files go there (asked
for, sent to an address of their own, then named in the commit), all others inside the commit.

Used by integrations/test_huggingface_hub.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Hub(ThreadingHTTPServer):
    """What is stored, and what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.commits: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sha(self, repository: str) -> str:
        """Name the state of a repository as git would, in forty digits."""
        files = sorted(self.repositories[repository].items())
        return hashlib.sha1(repr(files).encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path_asked()
        if path[:2] == ["api", "whoami-v2"]:
            return self.answer({"name": "someone", "type": "user", "orgs": []})
        if path[:2] == ["api", "models"]:
            repository, rest = "/".join(path[2:4]), path[4:]
            if repository not in self.server.repositories:
                return self.missing("RepoNotFound")
            return self.answer(self.tree(repository) if "tree" in rest else self.info(repository))
        if "resolve" in path:
            return self.file("/".join(path[:2]), "/".join(path[4:]))
        return self.missing("EntryNotFound")

    def do_POST(self):
        path = self.path_asked()
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if path == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'someone'}/{asked['name']}"
            self.server.repositories.setdefault(name, {})
            return self.answer({"url": f"{self.server.address}/{name}", "name": name})
        if path == ["api", "validate-yaml"]:
            return self.answer({"errors": [], "warnings": []})
        if path[-3:] == ["lfs", "objects", "batch"]:
            return self.answer(self.places(json.loads(body)))
        repository = "/".join(path[2:4])
        if "preupload" in path:
            return self.answer(self.modes(json.loads(body)))
        if "commit" in path:
            return self.answer(self.commit(repository, body))
        return self.missing("EntryNotFound")

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.large[self.path_asked()[-1]] = body
        self.answer({})

    def path_asked(self) -> list[str]:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        return path.strip("/").split("/")

    def info(self, repository):
        files = self.server.repositories[repository]
        return {
            "id": repository,
            "modelId": repository,
            "sha": self.server.sha(repository),
            "private": False,
            "tags": [],
            "siblings": [{"rfilename": name} for name in files],
        }

    def tree(self, repository):
        files = self.server.repositories[repository]
        return [
            {"type": "file", "path": name, "size": len(data), "oid": digest(data)}
            for name, data in files.items()
        ]

    def modes(self, asked):
        def mode(name):
            return "lfs" if name.endswith(".safetensors") else "regular"

        return {
            "files": [
                {"path": f["path"], "uploadMode": mode(f["path"]), "shouldIgnore": False}
                for f in asked["files"]
            ]
        }

    def places(self, asked):
        def place(oid):
            return {"upload": {"href": f"{self.server.address}/large/{oid}"}}

        return {
            "transfer": "basic",
            "objects": [{**one, "actions": place(one["oid"])} for one in asked["objects"]],
        }

    def commit(self, repository, body):
        files = self.server.repositories[repository]
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                self.server.commits.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
        sha = self.server.sha(repository)
        return {
            "success": True,
            "commitOid": sha,
            "commitUrl": f"{self.server.address}/{repository}/commit/{sha}",
        }

    def file(self, repository, name):
        files = self.server.repositories.get(repository)
        if files is None:
            return self.missing("RepoNotFound")
        if name not in files:
            return self.missing("EntryNotFound", {"X-Repo-Commit": self.server.sha(repository)})
        data = files[name]
        headers = {"ETag": f'"{digest(data)}"', "X-Repo-Commit": self.server.sha(repository)}
        return self.send(200, data, headers)

    def answer(self, value):
        self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def missing(self, code, headers=None):
        body = json.dumps({"error": code}).encode()
        self.send(404, body, {"X-Error-Code": code, **(headers or {})})

    def send(self, status, body, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


def digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@contextmanager
def run_hub() -> Iterator[Hub]:
    """Serve for a while."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
