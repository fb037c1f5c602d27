# Builds a known population, prints its own counts as a line of JSON, and waits for its input to
# end.
import array
import asyncio
import collections
import functools
import gc
import json
import sys
import threading
import types
import weakref

N = int(sys.argv[1]) if len(sys.argv) > 1 else 20000


class Plain:
    def __init__(self, i):
        self.number = i + 1000.5
        self.name = "plain-%d" % i
        self.next = None

    def method(self):
        return self


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, i):
        self.left = [i]
        self.right = None


class Both(Slotted):
    def __init__(self, i):
        Slotted.__init__(self, i)
        self.extra = {"i": i}


class Odd:
    """Its instances have different attributes, so that they share no keys."""

    def __init__(self, i):
        setattr(self, "attribute_%d" % (i % 97), [])
        self.__dict__["other"] = i


class DictLike(dict):
    pass


class ListLike(list):
    __slots__ = ("more",)


class TupleLike(tuple):
    pass


class TextLike(str):
    pass


class NumberLike(int):
    pass


class Broken(Exception):
    pass


Pair = collections.namedtuple("Pair", "one two")


def closure(i):
    cell = [i]
    other = "closed-%d" % i

    def inner():
        return cell, other

    return inner


def generator(i):
    local = ["local", i]
    for item in range(10):
        yield local, item


async def coroutine(i):
    kept = {"kept": [i]}
    await asyncio.sleep(kept)


def started(i):
    made = generator(i)
    next(made)
    return made


kept = types.ModuleType("kept")
sys.modules["kept"] = kept
kept.plain = [Plain(i) for i in range(5 * N)]
for one, other in zip(kept.plain, kept.plain[1:]):
    one.next = other
kept.slotted = [Slotted(i) for i in range(N)]
kept.both = [Both(i) for i in range(N // 4)]
kept.odd = [Odd(i) for i in range(N // 10)]
kept.dict_likes = [DictLike({i: str(i)}) for i in range(N // 20)]
kept.list_likes = [ListLike([i]) for i in range(N // 20)]
kept.tuple_likes = [TupleLike([i]) for i in range(N // 20)]
kept.text_likes = [TextLike(i) for i in range(N // 20)]
kept.number_likes = [NumberLike(i) for i in range(N // 20)]
kept.lists = [list(range(i % 17)) for i in range(N)]
kept.dicts = [{"a": [i], i: "b%d" % i, (i, i): None} for i in range(N // 4)]
kept.plain_dicts = [{"x%d" % i: i * 1000} for i in range(N // 4)]
kept.large = {i: str(i) for i in range(N)}
kept.ascii = ["ascii-%d" % i for i in range(N)]
kept.latin = ["l\xe4tin-%d" % i for i in range(N // 2)]
kept.wide = ["w\u20acde-%d" % i for i in range(N // 2)]
kept.wider = ["w\U0001f600der-%d" % i for i in range(N // 2)]
for text in kept.wide[:100]:
    text.encode()
kept.bytes = [b"bytes" * (i % 50) + str(i).encode() for i in range(N)]
kept.bytearrays = [bytearray(i % 300) for i in range(N // 10)]
kept.ints = [1 << (i % 400) | i << 410 for i in range(N)]
kept.floats = [i / 7 for i in range(N)]
kept.sets = [set(range(i % 40)) | {"s%d" % i} for i in range(N // 10)]
kept.frozen = [frozenset(["f%d" % i, i]) for i in range(N // 10)]
kept.tuples = [(i, "t%d" % i, (i,)) for i in range(N)]
kept.tracked_tuples = [([], i) for i in range(N // 2)]
kept.pairs = [Pair([i], i) for i in range(N // 10)]
kept.closures = [closure(i) for i in range(N // 4)]
kept.lambdas = [(lambda x, y=[i]: x) for i in range(N // 10)]
kept.generators = [started(i) for i in range(N // 10)]
kept.fresh = [generator(i) for i in range(N // 20)]
kept.coroutines = [coroutine(i) for i in range(N // 20)]
for one in kept.coroutines:
    try:
        one.send(None)
    except Exception:
        pass
kept.methods = [one.method for one in kept.plain[: N // 10]]
kept.partials = [functools.partial(print, i, end=[i]) for i in range(N // 20)]
kept.deques = [collections.deque([[i]] * (i % 200)) for i in range(N // 50)]
kept.ordered = [collections.OrderedDict((j, [j]) for j in range(i % 9)) for i in range(N // 20)]
kept.defaults = [collections.defaultdict(list, {i: [i]}) for i in range(N // 20)]
kept.arrays = [array.array("d", range(i % 100)) for i in range(N // 50)]
kept.broken = [Broken(i, [i]) for i in range(N // 20)]
kept.refs = [weakref.ref(one) for one in kept.plain[: N // 10]]
kept.loop = asyncio.new_event_loop()
kept.futures = [kept.loop.create_future() for i in range(N // 50)]
kept.views = [one.items() for one in kept.dicts[: N // 20]]
kept.classes = [type("Made%d" % i, (Plain,), {"value": [i]}) for i in range(N // 100)]
kept.me = kept


def waiting(only_here, event):
    mine = [only_here] * 3
    event.wait()
    return mine


stop = threading.Event()
thread = threading.Thread(target=waiting, args=(Slotted(-1), stop), daemon=True)
thread.start()


def name(kind):
    return kind.__qualname__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__qualname__)


def rows(objects):
    found = {}
    for one in objects:
        kind = type(one)
        row = found.get(kind)
        if row is None:
            row = found[kind] = [0, 0]
        row[0] += 1
        row[1] += sys.getsizeof(one)
    merged = {}
    for kind, row in found.items():
        known = merged.setdefault(name(kind), [0, 0])
        known[0] += row[0]
        known[1] += row[1]
    return merged


def everything():
    """What can be reached from what is tracked: the collector does not visit all that objects hold."""
    stack = gc.get_objects()
    tracked = len(stack)
    # Running frames are not always tracked, and may be the only holders of their code.
    for one in (sys._getframe(0), sys._getframe(1)):
        stack.append(one.f_code)
    seen = {id(one): one for one in stack}
    mine = {id(stack), id(seen)}
    while stack:
        one = stack.pop()
        more = gc.get_referents(one)
        kind = type(one)
        if isinstance(one, dict):
            more.extend(one.keys())
        elif kind is types.CodeType:
            more.extend(getattr(one, field) for field in dir(one) if field in (
                "co_consts", "co_names", "co_filename", "co_name", "co_qualname", "co_linetable", "co_exceptiontable"))
            # Later versions create these on access.
            if sys.version_info < (3, 11):
                more.extend([one.co_varnames, one.co_cellvars, one.co_freevars, one.co_code])
            if sys.version_info < (3, 10):
                more.append(one.co_lnotab)
        elif kind is types.FrameType:
            more.append(one.f_code)
        elif kind is types.FunctionType:
            more.extend([one.__name__, one.__qualname__, one.__doc__])
        elif isinstance(one, type):
            more.extend([one.__name__, one.__qualname__])
        elif isinstance(one, types.GeneratorType):
            more.extend([one.__name__, one.__qualname__])
        for target in more:
            if id(target) not in seen and id(target) not in mine:
                seen[id(target)] = target
                stack.append(target)
        more = None
    return tracked, seen


gc.collect()
gc.collect()
gc.disable()
one = other = text = None
# Each text is made before the next count, so that the count does not include itself.
objects = gc.get_objects()
count = len(objects)
texts = ["tracked", json.dumps(rows(objects))]
del objects
_, seen = everything()
texts += ["reached", json.dumps(rows(seen.values()))]
seen.clear()
text = '{"version": "%d.%d.%d", "count": %d, "n": %d, "%s": %s, "%s": %s}' % (*sys.version_info[:3], count, N, *texts)
del texts, seen
sys.stdout.write(text + "\n")
sys.stdout.flush()
del text
sys.stdin.read()
