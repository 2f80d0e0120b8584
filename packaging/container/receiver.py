"""Prints each alert that Alertmanager sends to its webhook, one per line."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Print(BaseHTTPRequestHandler):
    """Answers every POST; other requests are an error."""

    def do_POST(self) -> None:
        """Print status, name and summary of each alert."""
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for alert in sent["alerts"]:
            labels, notes = alert["labels"], alert["annotations"]
            where = labels.get("instance", "")
            print(alert["status"], labels["alertname"], where, notes.get("summary", ""))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print alerts only."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9095
    HTTPServer(("127.0.0.1", port), Print).serve_forever()
