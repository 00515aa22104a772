FROM debian:bookworm-slim AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Makefile main.c ./
RUN make gauge

FROM debian:bookworm-slim
LABEL description="Reads a gauge once a minute"
ENV GAUGE_DEVICE=/dev/ttyUSB0
COPY --from=build /src/gauge /usr/local/bin/gauge
USER nobody
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/gauge"]
CMD ["--interval", "60"]
