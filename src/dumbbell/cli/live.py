"""``fab live``: serve a page that shows a run while it lasts."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import time
from pathlib import Path

import waitress

from dumbbell.live.known import NoRunError, look
from dumbbell.live.server import Samples, application

MOST_PORT = 65535


def live(run: Path, inventory: Path, host: str, port: str) -> None:
    """Serve the page until Ctrl-C; SystemExit with the reason if that is not possible."""
    try:
        look(run, time.time_ns())
    except NoRunError as error:
        raise SystemExit(str(error)) from None
    if not inventory.exists():
        raise SystemExit(f"{inventory}: there is no such inventory to say where InfluxDB is")
    listener = _listener(host, port)
    own = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
    app = application(run, Samples(str(inventory.absolute()), print))
    if own:
        # Another site's page must not read this one under a name of its own that it lets point here.
        app.server.config["TRUSTED_HOSTS"] = [host, "localhost", "127.0.0.1", "::1"]
    else:
        print(
            f"Everybody who can reach {host} can read this page and the reports of all runs beside this one."
        )
    os.nice(19)  # in the lab, the run's hosts are processes on the same machine
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a browser asks for all files at once
    server = waitress.create_server(app.server, sockets=[listener])
    print(
        f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/ until Ctrl-C", flush=True
    )
    server.run()


def _listener(host: str, port: str) -> socket.socket:
    """A socket that listens at an address; SystemExit if that is not possible."""
    if not (port.isdecimal() and 0 < int(port) <= MOST_PORT):
        raise SystemExit(f"--port {port}: a port is a number from 1 to {MOST_PORT}")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()
    except OSError as error:
        raise SystemExit(
            f"{host} port {port}: {error.strerror}. Choose others with --host and --port"
        ) from None
    return found
