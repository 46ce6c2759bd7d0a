"""The whole HTTP surface over a real collector: ``python -m tests.fuzz.serve DATA_DIR``; prints its port as JSON."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path

import uvicorn

from collector.service import Collector
from gateway.app import create_app
from pickwise.settings import Settings


def main() -> None:
    # uvicorn raises the signal that ended it once more: by then it must not end the process any longer.
    signal.signal(signal.SIGTERM, lambda *_: None)
    settings = Settings(data_dir=Path(sys.argv[1]), flush_interval_s=0.2)
    collector = Collector(settings)
    collector.start()
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(settings, collector), log_level="warning"))
    print(json.dumps({"http": listener.getsockname()[1]}), flush=True)
    server.run(sockets=[listener])
    collector.stop()


if __name__ == "__main__":
    main()
