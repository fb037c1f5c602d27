"""What grows without a leak, for service.py; see leaks.py for what a kind is."""

import ctypes
import functools

from leaks import Kind, Quote, text

# Number of products in the catalogue, each of which is looked up now and then.
PRODUCTS = 20000
CATALOGUE = {}


class Idle(Kind):
    """Makes garbage, keeps nothing."""

    def unit(self, n):
        [text(n + i) for i in range(5)]


class Warmup(Kind):
    """A cache for a fixed set of keys."""

    def unit(self, n):
        key = n % PRODUCTS
        if key not in CATALOGUE:
            CATALOGUE[key] = Quote("product-%d" % key)
        # Even the answer for a known product takes work: an idle process shows no trend.
        [text(n + i) for i in range(5)]

    def truth(self):
        return {"leaked": {}, "kept": {"leaks.Quote": len(CATALOGUE)}}


@functools.lru_cache(maxsize=5000)
def bounded(key):
    return Quote(key)


class Lru(Kind):
    """A cache with a bound."""

    def unit(self, n):
        bounded("quote-%d" % n)

    def truth(self):
        return {"leaked": {}, "kept": {"leaks.Quote": bounded.cache_info().currsize}}


class Burst(Kind):
    """In the first hundred units 200 MB of small buffers of the C heap come and nearly all go: what stays is spread over all of it."""

    BUFFERS = 10000
    KEPT_EACH = 40

    def start(self):
        library = ctypes.CDLL(None)
        self.malloc = library.malloc
        self.malloc.restype = ctypes.c_void_p
        self.malloc.argtypes = [ctypes.c_size_t]
        self.memset = ctypes.memset
        self.free = library.free
        self.free.restype = None
        self.free.argtypes = [ctypes.c_void_p]
        self.buffers = []
        self.kept = []

    def unit(self, n):
        if n < 100:
            for i in range(self.BUFFERS):
                buffer = self.malloc(200)
                self.memset(buffer, 1 + n % 100, 200)
                self.buffers.append(buffer)
        if n == 99:
            for i, buffer in enumerate(self.buffers):
                if i % self.KEPT_EACH:
                    self.free(buffer)
                else:
                    self.kept.append(buffer)
            self.buffers = []

    def truth(self):
        return {"leaked": {}, "native_kept_bytes": 200 * len(self.kept)}


class Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def mallinfo():
    """glibc's mallinfo2 (2.33 and later), or None."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return None
    function.restype = Mallinfo2
    info = function()
    return {name: getattr(info, name) for name, _ in Mallinfo2._fields_}


KINDS = {"idle": Idle(), "warmup": Warmup(), "lru": Lru(), "burst": Burst()}
