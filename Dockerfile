# `elmore serve` with the bundled model, on a CPU:
#
#   docker build -t elmore .
#   docker run -p 8000:8000 -e ELMORE_TOKEN=a-long-secret elmore
#
# Options of `elmore serve` go to the end of the second command; a model folder can be mounted.

FROM python:3.11 AS build
RUN python -m venv /opt/elmore
WORKDIR /src
COPY constraints.txt pyproject.toml hatch_build.py README.md LICENSE ./
COPY elmore elmore
RUN /opt/elmore/bin/pip install --no-cache-dir --no-compile -c constraints.txt ".[serve]" \
    && /opt/elmore/bin/pip uninstall --yes pip

FROM python:3.11-slim
# The native library runs on OpenMP threads.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/elmore /opt/elmore
ENV PATH=/opt/elmore/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["elmore", "serve", "--host", "0.0.0.0"]
