#!/usr/bin/env python3
"""What a question costs over TCP on loopback, a Unix socket, and D-Bus: the same answer from the same code.

    tools/bench/ask.py --mitra BIN RECORDING [--seconds 10] [--readme FILE]

Each client writes bytes that were made before and reads whole answers, so that no client library is measured. The three take turns of a
second. --readme writes the table between the marks `<!-- ask: begin -->` and `<!-- ask: end -->` of a file.
"""

import argparse
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time

NAME = "org.mitra.Mitra1"


def string(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode() + b"\0"


def padded(data: bytes, to: int = 8) -> bytes:
    return data + b"\0" * (-len(data) % to)


def call(serial: int, destination: str, path: str, interface: str, member: str) -> bytes:
    """A method call without arguments, as the D-Bus specification lays it out."""
    fields = b""
    for code, kind, value in [(1, "o", path), (6, "s", destination), (2, "s", interface), (3, "s", member)]:
        fields = padded(fields) + bytes([code, 1]) + kind.encode() + b"\0" + string(value)
    return padded(b"l\1\0\1" + struct.pack("<III", 0, serial, len(fields)) + fields)


class Bus:
    """A client of a bus."""

    def __init__(self, address: str):
        path = next(part.removeprefix("unix:path=") for part in address.split(",") if part.startswith("unix:path="))
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        uid = str(os.getuid()).encode().hex().encode()
        self.socket.sendall(b"\0AUTH EXTERNAL " + uid + b"\r\n")
        assert self.socket.recv(4096).startswith(b"OK")
        self.socket.sendall(b"BEGIN\r\n")
        self.rest = b""
        self.serial = 1
        self.ask("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")

    def ask(self, *what: str) -> bytes:
        message = call(self.serial, *what)
        self.socket.sendall(message)
        self.serial += 1
        while True:
            kind, body = self.message()
            assert kind != 3, body
            if kind == 2:
                return body

    def message(self) -> tuple[int, bytes]:
        head = self.take(16)
        body, _, fields = struct.unpack("<III", head[4:])
        self.take(fields + -fields % 8)
        return head[1], self.take(body)

    def take(self, size: int) -> bytes:
        while len(self.rest) < size:
            self.rest += self.socket.recv(65536)
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def question(self) -> bytes:
        return self.ask(NAME, "/org/mitra/Mitra1", NAME, "Status")


class Http:
    """A client that keeps its connection."""

    def __init__(self, connected: socket.socket, token: str | None):
        self.socket = connected
        more = f"Authorization: Bearer {token}\r\n" if token else ""
        self.request = f"GET /api/v1/recording HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()

    def question(self) -> bytes:
        self.socket.sendall(self.request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(65536)
        head, body = answer.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        while len(body) < length:
            body += self.socket.recv(65536)
        return body


def served(mitra: str, recording: str, listen: str) -> tuple[subprocess.Popen, str]:
    process = subprocess.Popen([mitra, "serve", recording, "--listen", listen], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def cpu_s(process: subprocess.Popen) -> float:
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    parser.add_argument("recording")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--readme")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp()
    daemon = subprocess.Popen(["dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address=1"], stdout=subprocess.PIPE, text=True)
    address = daemon.stdout.readline().strip()
    tcp, told = served(arguments.mitra, arguments.recording, "127.0.0.1:0")
    port = int(told.split("/")[2].rsplit(":", 1)[1])
    token = told.split("token=")[1] if "token=" in told else None
    unix, _ = served(arguments.mitra, arguments.recording, f"unix:{folder}/socket")
    bus = subprocess.Popen([arguments.mitra, "dbus", arguments.recording], stdout=subprocess.PIPE, text=True,
                           env={**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": address})
    bus.stdout.readline()
    on_tcp = socket.create_connection(("127.0.0.1", port))
    on_tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    on_unix = socket.socket(socket.AF_UNIX)
    on_unix.connect(f"{folder}/socket")
    ways = [("TCP on loopback", Http(on_tcp, token), [tcp]), ("a Unix socket", Http(on_unix, None), [unix]),
            ("D-Bus", Bus(address), [bus, daemon])]
    took: dict[str, list[float]] = {name: [] for name, _, _ in ways}
    used: dict[str, float] = {name: 0.0 for name, _, _ in ways}
    for _ in range(arguments.seconds):
        for name, client, processes in ways:
            before = sum(map(cpu_s, processes))
            end = time.monotonic() + 1
            while (start := time.monotonic()) < end:
                client.question()
                took[name].append(time.monotonic() - start)
            used[name] += sum(map(cpu_s, processes)) - before
    rows = ["| | questions a second | median | 99th percentile | CPU of the answering side for each |", "|---|---|---|---|---|"]
    for name, _, _ in ways:
        times = sorted(took[name])
        half, tail = times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6
        rows.append(f"| {name} | {len(times) / arguments.seconds:,.0f} | {half:.0f} µs | {tail:.0f} µs | {used[name] / len(times) * 1e6:.0f} µs |")
    table = "\n".join(rows)
    print(table)
    for process in [tcp, unix, bus, daemon]:
        process.terminate()
    if arguments.readme:
        path = pathlib.Path(arguments.readme)
        head, rest = path.read_text().split("<!-- ask: begin -->\n")
        _, tail = rest.split("<!-- ask: end -->")
        when = time.strftime("%Y-%m-%d")
        path.write_text(f"{head}<!-- ask: begin -->\n{table}\n\nOf {when}, on a virtual machine with {os.cpu_count()} CPUs and Linux {os.uname().release.split('-')[0]}.\n<!-- ask: end -->{tail}")


if __name__ == "__main__":
    main()
