# The broker, and (target `pipeline`) the Spark jobs. Settings come from KAFKA_… variables, as in
# Kafka's own images; data is in the volume /data.

# python:3.11-slim when it had Python 3.11.16, for all platforms. To print the present digest:
# docker buildx imagetools inspect python:3.11-slim
FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7 AS runtime

FROM runtime AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/odradek
ENV PATH=/opt/odradek/bin:$PATH
COPY requirements-build.lock requirements-console.lock ./
RUN pip install --require-hashes -r requirements-build.lock -r requirements-console.lock
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY config config
COPY storage storage
COPY schemas schemas
COPY cleaner cleaner
COPY broker broker
COPY cli cli
COPY pipeline pipeline
COPY testing testing
COPY packaging packaging
COPY docs/alerts docs/alerts
COPY docs/grafana docs/grafana
COPY odradek odradek
RUN pip install --no-deps --no-build-isolation .

FROM builder AS kernels
# The kernels are compiled here, so that no start must compile them. The tests inside other packages
# are removed.
ENV NUMBA_CACHE_DIR=/opt/kernels
RUN python -m odradek.broker.process.warm_up \
    && pip uninstall --yes pip setuptools \
    && find /opt/odradek -type d -name tests -prune -exec rm -rf {} +

FROM builder AS jobs
COPY requirements-pipeline.lock ./
RUN pip install --require-hashes --no-build-isolation -r requirements-pipeline.lock

FROM runtime AS base
ENV PATH=/opt/odradek/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --create-home odradek

FROM base AS pipeline
# Debian's default Java is 17 in one release and 21 in the next: Spark runs on both.
RUN apt-get update \
    && apt-get install -y --no-install-recommends default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir /tables && chown odradek /tables
COPY --from=jobs /opt/odradek /opt/odradek
USER odradek
# Spark writes into the working directory, too.
WORKDIR /home/odradek
# Kafka's connector, Delta Lake and Avro, so that no start needs the network. A builder need not
# know an address for the name of its container.
RUN SPARK_LOCAL_IP=127.0.0.1 python -m odradek.pipeline.fetch
ENTRYPOINT ["odradek", "pipeline"]

FROM base AS broker
RUN mkdir -m 700 /data && chown odradek /data
COPY --from=kernels /opt/odradek /opt/odradek
# Numba uses a cache only if it may write to it.
COPY --from=kernels --chown=odradek /opt/kernels /opt/kernels
USER odradek
ENV NUMBA_CACHE_DIR=/opt/kernels \
    KAFKA_LOG_DIRS=/data \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_METRICS_LISTENER=0.0.0.0:9308
VOLUME /data
EXPOSE 9092 9308
# Checks whether the process lives. /health would fail for a single partition with a problem, and a
# supervisor that restarts unhealthy containers would end a broker that serves all others.
HEALTHCHECK --interval=5s --start-period=10s CMD ["python", "-c", \
    "import urllib.request as r; r.urlopen('http://127.0.0.1:9308/health/live', timeout=3)"]
ENTRYPOINT ["odradek", "serve"]
