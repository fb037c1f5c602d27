"""The leaks of service.py. Each kind is a class with

    start()   once, before the service serves
    unit(n)   one unit of work, the n-th
    truth()   what leaked so far: `leaked` {type: count}, `native_bytes` and `native_strings` where it leaks outside the
              interpreter, and `holder`, the expression that a person would name as what holds it (None: nobody does)
"""

import asyncio
import ctypes
import functools
import gc
import os
import shutil
import subprocess
import tempfile

# What the leaks grow.
SESSIONS = {}
HANDLERS = []
BACKGROUND = set()
STORE = None


class Kind:
    """Nothing by default."""

    def start(self):
        pass

    def unit(self, n):
        raise NotImplementedError

    def truth(self):
        return {}


def text(n):
    """What a client library might keep of a request: 64 to 96 bytes, each different."""
    return "GET /api/v1/orders/%08d?customer=%06d&session=%s" % (n, n % 1000003, "abcdef0123456789"[: n % 17] + "-end")


class Native(Kind):
    """Strings in the C library's heap."""

    def start(self):
        library = ctypes.CDLL(None)
        self.copy = library.strdup
        self.copy.restype = ctypes.c_void_p
        self.copy.argtypes = [ctypes.c_char_p]
        self.strings = 0
        self.bytes = 0

    def unit(self, n):
        data = text(n).encode()
        self.copy(data)
        self.strings += 1
        self.bytes += len(data) + 1

    def truth(self):
        return {"leaked": {}, "native_strings": self.strings, "native_bytes": self.bytes, "holder": None}


CLIENT = """
#include <stdlib.h>
#include <string.h>
struct order { struct order *next; char *path; char *agent; long number; };
static struct order *orders;
/* Remembers each order, and forgets none. Returns the bytes that it asked for. */
long client_order(const char *path, long number)
{
    struct order *order = malloc(sizeof(*order));
    order->path = strdup(path);
    order->agent = strdup("orders-client/2.4 (libcurl; retries=3)");
    order->number = number;
    order->next = orders;
    orders = order;
    return sizeof(*order) + strlen(path) + 1 + strlen(order->agent) + 1;
}
"""


class NativeClient(Native):
    """The same by a library in C, that keeps two strings and a structure for each unit."""

    def start(self):
        Native.start(self)
        self.order = None
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            return
        folder = tempfile.mkdtemp(prefix="orders-client-")
        try:
            source = os.path.join(folder, "client.c")
            library = os.path.join(folder, "liborders_client.so")
            with open(source, "w") as file:
                file.write(CLIENT)
            subprocess.check_call([compiler, "-g", "-O1", "-shared", "-fPIC", "-o", library, source])
            self.order = ctypes.CDLL(library).client_order
            self.order.restype = ctypes.c_long
            self.order.argtypes = [ctypes.c_char_p, ctypes.c_long]
        finally:
            # It stays mapped.
            shutil.rmtree(folder)

    def unit(self, n):
        if self.order is None:
            Native.unit(self, n)
            return
        self.bytes += self.order(text(n).encode(), n)
        self.strings += 2


class Session:
    """What is kept of a visitor."""

    def __init__(self, n):
        self.number = n
        self.path = text(n)
        self.seen = [n, n + 1]


class Dict(Kind):
    """A dict in a module, that is never cleaned."""

    def unit(self, n):
        SESSIONS["visitor-%d" % n] = Session(n)

    def truth(self):
        return {"leaked": {"leaks.Session": len(SESSIONS)}, "holder": "leaks.SESSIONS"}


class Connection:
    """One end of a pair that refers to itself, with a finalizer."""

    def __init__(self, n):
        self.number = n
        self.peer = None
        self.buffer = bytearray(100)

    def __del__(self):
        self.buffer = None


class Cycle(Kind):
    """Pairs that nobody holds but each other; the collector is off, as some services have it for their latency."""

    def start(self):
        gc.collect()
        gc.disable()
        self.made = 0

    def unit(self, n):
        one, other = Connection(n), Connection(-n)
        one.peer, other.peer = other, one
        self.made += 2

    def truth(self):
        return {"leaked": {"leaks.Connection": self.made}, "holder": None}


class Quote:
    """An answer that is expensive to make."""

    def __init__(self, key):
        self.key = key
        self.lines = [key] * 4


@functools.lru_cache(maxsize=None)
def quote(key):
    return Quote(key)


class Cache(Kind):
    """The decorator of the standard library, without a bound."""

    def unit(self, n):
        quote("quote-%d" % n)

    def truth(self):
        return {"leaked": {"leaks.Quote": quote.cache_info().currsize}, "holder": "leaks.quote"}


class Store:
    """A cache in an attribute of an object, without a bound."""

    def __init__(self):
        self.items = {}
        self.hits = 0

    def get(self, key):
        if key not in self.items:
            self.items[key] = Quote(key)
        else:
            self.hits += 1
        return self.items[key]


class CacheObject(Kind):
    def start(self):
        global STORE
        STORE = Store()

    def unit(self, n):
        STORE.get("quote-%d" % n)

    def truth(self):
        return {"leaked": {"leaks.Quote": len(STORE.items)}, "holder": "leaks.STORE.items"}


class Visitors:
    """What has an attribute for each visitor."""


class AttributeData(Kind):
    """Data as the names of attributes."""

    def start(self):
        global STORE
        STORE = Visitors()
        self.made = 0

    def unit(self, n):
        setattr(STORE, "alice-%d@example.com" % n, Session(n))
        self.made += 1

    def truth(self):
        return {"leaked": {"leaks.Session": self.made}, "holder": "leaks.STORE"}


async def answer_of(n):
    """Waits for an answer that never comes."""
    payload = text(n)
    await asyncio.get_event_loop().create_future()
    return payload


async def remind(n):
    """Sleeps for a day."""
    payload = text(n)
    await asyncio.sleep(86400)
    return payload


class Tasks(Kind):
    """Tasks that wait for ever, held by a set in a module."""

    def unit(self, n):
        BACKGROUND.add(asyncio.ensure_future(answer_of(n)))

    def truth(self):
        return {"leaked": {"_asyncio.Task": len(BACKGROUND)}, "holder": "leaks.BACKGROUND"}


class Timers(Kind):
    """Tasks that sleep for a day: the heap of timers of the loop holds them."""

    def __init__(self):
        self.made = 0

    def unit(self, n):
        asyncio.ensure_future(remind(n))
        self.made += 1

    def truth(self):
        return {"leaked": {"_asyncio.Task": self.made}, "holder": "_scheduled"}


def handler(n):
    """A closure with two variables of its own."""
    payload = text(n)
    counts = [n, 0]

    def handle(event):
        counts[1] += 1
        return payload, event, counts

    return handle


class Closures(Kind):
    """Handlers that are registered and never taken off."""

    def unit(self, n):
        HANDLERS.append(handler(n))

    def truth(self):
        return {"leaked": {"builtins.function": len(HANDLERS), "builtins.cell": 2 * len(HANDLERS)}, "holder": "leaks.HANDLERS"}


class Order:
    """What an extension takes a reference to."""

    def __init__(self, n):
        self.path = text(n)
        self.lines = {"first": n}


class Reference(Kind):
    """A reference that an extension takes and never gives back: the object stays, and nothing in the interpreter has it."""

    def start(self):
        self.take = ctypes.pythonapi.Py_IncRef
        self.take.argtypes = [ctypes.py_object]
        self.take.restype = None
        self.made = 0

    def unit(self, n):
        self.take(Order(n))
        self.made += 1

    def truth(self):
        return {"leaked": {"leaks.Order": self.made}, "holder": None}


KINDS = {
    "native": Native(),
    "native-client": NativeClient(),
    "dict": Dict(),
    "cycle": Cycle(),
    "cache": Cache(),
    "cache-object": CacheObject(),
    "attribute-data": AttributeData(),
    "tasks": Tasks(),
    "timers": Timers(),
    "closures": Closures(),
    "reference": Reference(),
}
