"""Counters in Prometheus's text format."""

from collections import Counter

from tropism.serve.session.registry import SessionRegistry

TYPE = "text/plain; version=0.0.4"


class Metrics:
    """Counts requests by kind and errors by code, since the server started."""

    def __init__(self, sessions: SessionRegistry):
        self.sessions = sessions
        self.requests: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def text(self) -> str:
        lines = [
            "# HELP tropism_sessions Sessions open now.",
            "# TYPE tropism_sessions gauge",
            f"tropism_sessions {len(self.sessions)}",
            "# HELP tropism_sessions_opened_total Sessions opened since the start.",
            "# TYPE tropism_sessions_opened_total counter",
            f"tropism_sessions_opened_total {self.sessions.opened_count}",
            "# HELP tropism_requests_total Requests answered, by type.",
            "# TYPE tropism_requests_total counter",
            *(f'tropism_requests_total{{type="{kind}"}} {n}' for kind, n in sorted(self.requests.items())),
            "# HELP tropism_errors_total Requests that failed, by code.",
            "# TYPE tropism_errors_total counter",
            *(f'tropism_errors_total{{code="{code}"}} {n}' for code, n in sorted(self.errors.items())),
        ]
        return "\n".join(lines) + "\n"
