"""The page at `/`: files of `elmore.browser`, read once."""

from importlib import resources

from fastapi import FastAPI, Response

_SCRIPTS = ("page", "dom", "examples", "link", "neighbors", "settings", "substitutes", "vectors")
FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/backend.js": ("server_backend.js", "text/javascript"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in _SCRIPTS},
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def add_page(app: FastAPI) -> None:
    """Add the routes of the page and its files."""
    for path, (name, kind) in FILES.items():
        _add(app, path, resources.files("elmore.browser").joinpath(name).read_bytes(), kind)


def _add(app: FastAPI, path: str, content: bytes, kind: str) -> None:
    headers = {"Content-Security-Policy": POLICY, "X-Frame-Options": "DENY"}

    @app.get(path, include_in_schema=False)
    async def page() -> Response:
        return Response(content, media_type=f"{kind}; charset=utf-8", headers=headers)
