"""A real collector in a process of its own: ``python -m tests.collector.serve DATA_DIR``; prints its ports as JSON."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path

import uvicorn

from collector.grpc_server import start_grpc_server
from collector.http import create_collector_app
from collector.service import Collector
from pickwise.settings import Settings


def main() -> None:
    # uvicorn raises the signal that ended it once more: by then it must not end the process any longer.
    signal.signal(signal.SIGTERM, lambda *_: None)
    collector = Collector(Settings(data_dir=Path(sys.argv[1]), flush_interval_s=0.2))
    collector.start()
    listener = socket.create_server(("127.0.0.1", 0))
    http_port = listener.getsockname()[1]
    grpc_server, grpc_port = start_grpc_server(collector, "127.0.0.1", 0)
    collector.announce("127.0.0.1", http_port, grpc_port)
    server = uvicorn.Server(uvicorn.Config(create_collector_app(collector), log_level="warning"))
    print(json.dumps({"http": http_port, "grpc": grpc_port}), flush=True)
    server.run(sockets=[listener])
    grpc_server.stop(1).wait()
    collector.stop()


if __name__ == "__main__":
    main()
