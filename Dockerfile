# The crawler and the operator in one image: `durable-crawler` is its entry point, `crawljob-operator` the other program,
# and `kubectl-crawl` what the Job runs that reads a volume.
# Built without a network from dist/wheels, which requirements/runtime.lock has checked by hash:
#   python -m pip download --require-hashes --only-binary=:all: -r requirements/runtime.lock -d dist/wheels
#   python -m pip wheel --no-deps -w dist/wheels .
# for the Python of BASE. Both stages use the same BASE, so that the virtual environment finds its interpreter.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
COPY dist/wheels/ /wheels/
RUN python3 -m venv /opt/durable-crawler \
 && /opt/durable-crawler/bin/python -m pip install --no-cache-dir --no-index --find-links /wheels durable-crawler \
 && /opt/durable-crawler/bin/python -m pip uninstall --yes pip setuptools

FROM ${BASE}
LABEL org.opencontainers.image.title="durable-crawler" \
      org.opencontainers.image.description="A bounded, polite, crash-safe web crawl, and the operator of its CrawlJobs" \
      org.opencontainers.image.licenses="Apache-2.0"
# A name for the user: libraries ask for it (kopf does, to tell operators apart), and a bare number has none. USER answers
# where a platform picks a UID of its own.
RUN echo 'crawler:x:65532:65532::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'crawler:x:65532:' >> /etc/group
COPY --from=build /opt/durable-crawler /opt/durable-crawler
# The root filesystem may be read-only: byte code was written at the build, and nothing is written later.
ENV PATH=/opt/durable-crawler/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    USER=crawler
# A number, so that runAsNonRoot can be checked without the image's /etc/passwd.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["durable-crawler"]
