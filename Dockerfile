# The broker, and (target `pipeline`) the Spark jobs. Settings come from KAFKA_… variables, as in
# Kafka's own images; data is in the volume /data.

FROM python:3.11-slim AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/odradek
COPY requirements.lock ./
RUN pip install -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY config config
COPY storage storage
COPY cleaner cleaner
COPY broker broker
COPY cli cli
COPY pipeline pipeline
RUN pip install --no-deps -e .

FROM base AS pipeline
# Debian's default Java is 17 in one release and 21 in the next: Spark runs on both.
RUN apt-get update \
    && apt-get install -y --no-install-recommends default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY requirements-pipeline.lock ./
RUN pip install -r requirements-pipeline.lock \
    && useradd --create-home odradek && mkdir /tables && chown odradek /tables
USER odradek
# Kafka's connector, Delta Lake and Avro, so that no start needs the network.
RUN python -m pipeline.fetch
ENTRYPOINT ["odradek", "pipeline"]

FROM base AS broker
# The kernels are compiled here, so that no start has to.
ENV NUMBA_CACHE_DIR=/opt/odradek/.kernels
RUN python -m broker.warm_up \
    && useradd --create-home odradek && mkdir /data && chown odradek /data
USER odradek
ENV KAFKA_LOG_DIRS=/data \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_METRICS_LISTENER=0.0.0.0:9308
VOLUME /data
EXPOSE 9092 9308
HEALTHCHECK --interval=5s --start-period=10s CMD ["python", "-c", \
    "import urllib.request as r; r.urlopen('http://127.0.0.1:9308/health', timeout=3)"]
ENTRYPOINT ["odradek", "serve"]
