#!/usr/bin/env python3
"""A small web service that leaks, or only looks as if it did, for the tests of `mitra inspect`.

Standard library only; runs on Python 3.6 to 3.14.

    service.py --work KIND [--server threads|asyncio] [--port 0] [--heartbeat]

It prints `port N` when it serves on 127.0.0.1, and ends when it is killed. Requests (HTTP/1.1, connections are kept):

    GET /work       does one unit of the kind's work
    GET /work/N     does N units
    GET /truth      JSON: what is there by the interpreter's own account (see `truth`), and who holds what leaks
    GET /pymalloc   the text of sys._debugmallocstats()
    GET /collect    a full collection; JSON with the number of objects that it found
    GET /heartbeat  JSON: the longest gap between two beats of a thread that sleeps for 1 ms, since it was last asked

Leaks (--work):

    native        64 to 96 bytes of text for each unit, copied with strdup and never freed
    native-client the same by a client library in C, compiled at the start (falls back on ctypes where there is no compiler)
    dict          a growing dict in a module
    cycle         reference cycles of objects with __del__, while the collector is off
    cache         a cache without bound: functools.lru_cache(maxsize=None)
    cache-object  a cache without bound in an attribute of an object
    attribute-data  objects in attributes that are named by data
    tasks         tasks of asyncio that wait for ever, held by a set in a module (--server asyncio)
    timers        tasks of asyncio that sleep for a day, held by the loop only (--server asyncio)
    closures      closures in a list of handlers
    reference     objects of Python whose reference count an extension raised and never lowers

Innocents:

    idle          nothing is kept
    warmup        a cache for a fixed set of keys: grows, then stays
    lru           functools.lru_cache(maxsize=5000)
    burst         allocates many small buffers at once in C, then frees most of them: the memory stays, fragmented
"""

import argparse
import asyncio
import gc
import json
import os
import socketserver
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import innocents  # noqa: E402
import leaks  # noqa: E402

KINDS = dict(leaks.KINDS)
KINDS.update(innocents.KINDS)


class State:
    """What the service counts of itself."""

    def __init__(self, kind):
        self.kind = kind
        self.work = KINDS[kind]
        self.requests = 0
        self.units = 0
        self.lock = threading.Lock()


def truth(state):
    """Counts and sizes of what the collector knows and of everything that can be reached from there, by type.

    `tracked` is of gc.get_objects(), `reached` of that and all that it refers to, each object once; both as
    {type: [count, sum of sys.getsizeof]}. The objects of the count itself are left out.
    """
    tracked, reached, seen = {}, {}, set()
    todo = gc.get_objects()
    own = {id(todo), id(tracked), id(reached), id(seen), id(sys._getframe())}
    first = len(todo)
    position = 0
    while position < len(todo):
        this = todo[position]
        position += 1
        if id(this) in seen or id(this) in own:
            continue
        seen.add(id(this))
        kind = type(this)
        name = kind.__module__ + "." + kind.__qualname__
        size = sys.getsizeof(this)
        for table in (tracked, reached) if position <= first else (reached,):
            entry = table.setdefault(name, [0, 0])
            own.add(id(entry))
            entry[0] += 1
            entry[1] += size
        for other in gc.get_referents(this):
            if id(other) not in seen:
                todo.append(other)
    del todo, seen
    answer = {
        "python": sys.version.split()[0],
        "kind": state.kind,
        "requests": state.requests,
        "units": state.units,
        "gc_enabled": gc.isenabled(),
        "tracked": tracked,
        "reached": reached,
        "malloc": innocents.mallinfo(),
    }
    answer.update(state.work.truth())
    return answer


def pymalloc():
    """What sys._debugmallocstats() writes to the C library's stderr."""
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            sys._debugmallocstats()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        return file.read().decode()


class Heart:
    """A thread that sleeps for 1 ms, again and again."""

    def __init__(self):
        self.gap = 0.0
        self.beats = 0
        threading.Thread(target=self.beat, daemon=True).start()

    def beat(self):
        last = time.perf_counter()
        while True:
            time.sleep(0.001)
            now = time.perf_counter()
            self.gap = max(self.gap, now - last)
            self.beats += 1
            last = now

    def take(self):
        answer = {"gap_ms_max": self.gap * 1000, "beats": self.beats}
        self.gap = 0.0
        self.beats = 0
        return answer


def answer(state, heart, path):
    """The body for a path, or None."""
    parts = path.strip("/").split("/")
    if parts[0] == "work":
        units = int(parts[1]) if len(parts) > 1 else 1
        with state.lock:
            state.requests += 1
            for _ in range(units):
                state.work.unit(state.units)
                state.units += 1
        return "done\n"
    if parts[0] == "truth":
        return json.dumps(truth(state))
    if parts[0] == "pymalloc":
        return pymalloc()
    if parts[0] == "collect":
        return json.dumps({"found": gc.collect()})
    if parts[0] == "heartbeat":
        return json.dumps(heart.take() if heart else {})
    return None


def response(body):
    """A whole response: one write, so that no delayed acknowledgement comes between."""
    status = "200 OK" if body is not None else "404 Not Found"
    data = (body or "").encode()
    head = "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % (status, len(data))
    return head.encode() + data


class Server(socketserver.ThreadingMixIn, HTTPServer):
    """A thread for each connection (http.server has such a class only since 3.7)."""

    daemon_threads = True
    request_queue_size = 128


def serve_threads(state, heart, port):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self):
            self.wfile.write(response(answer(state, heart, self.path)))

        def log_message(self, *arguments):
            pass

    server = Server(("127.0.0.1", port), Handler)
    print("port %d" % server.server_address[1], flush=True)
    server.serve_forever()


def serve_asyncio(state, heart, port):
    async def connection(reader, writer):
        while True:
            request = await reader.readline()
            if not request:
                break
            while (await reader.readline()).strip():
                pass
            writer.write(response(answer(state, heart, request.decode().split()[1])))
            await writer.drain()
        writer.close()

    async def main():
        server = await asyncio.start_server(connection, "127.0.0.1", port)
        print("port %d" % server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=sorted(KINDS), default="idle")
    parser.add_argument("--server", choices=["threads", "asyncio"])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--heartbeat", action="store_true")
    arguments = parser.parse_args()
    state = State(arguments.work)
    state.work.start()
    heart = Heart() if arguments.heartbeat else None
    needs = "asyncio" if arguments.work in ("tasks", "timers") else "threads"
    serve = serve_asyncio if (arguments.server or needs) == "asyncio" else serve_threads
    serve(state, heart, arguments.port)


if __name__ == "__main__":
    main()
