# An image that serves environments; the command names them.
#   docker build -t tropism .
#   docker run --rm -p 127.0.0.1:8000:8000 -e TROPISM_TOKEN=secret tropism Echo-v0
FROM python:3.11-slim

COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir "/src[serve,cli,postgres]" && rm -rf /src \
    && useradd --uid 1000 --create-home tropism \
    && install -d -o 1000 /sessions

# A file, or the postgresql:// address of a database that several containers share.
ENV TROPISM_JOURNAL=/sessions/journal
USER 1000
VOLUME /sessions
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
ENTRYPOINT ["tropism", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["Echo-v0"]
