# Keeps a population while threads create and drop other objects at full speed. Prints the
# population, and works until its input ends.
import json
import random
import sys
import threading

KEPT = 60000


class Kept:
    def __init__(self, i):
        self.number = i
        self.items = [i, str(i)]


class Slot:
    __slots__ = ("value", "other")

    def __init__(self, i):
        self.value = "slot-%d" % i
        self.other = (i, [i])


class Passing:
    def __init__(self, i):
        self.items = [Slot2(i) for i in range(5)]
        self.me = self


class Slot2:
    __slots__ = ("value",)

    def __init__(self, i):
        self.value = {i: str(i)}


kept = [Kept(i) for i in range(KEPT)]
slots = {i: Slot(i) for i in range(KEPT)}
going = True


def churn(seed):
    dice = random.Random(seed)
    passing = {}
    while going:
        for i in range(100):
            passing[dice.randrange(2000)] = Passing(i)
        passing.pop(dice.randrange(2000), None)


threads = [threading.Thread(target=churn, args=(i,), daemon=True) for i in range(2)]
for thread in threads:
    thread.start()
print(json.dumps({"kept": KEPT}))
sys.stdout.flush()
sys.stdin.read()
going = False
