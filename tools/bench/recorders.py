"""The recorders that are compared: each is told to take one sample a second of all it can."""

import dataclasses
import pathlib
import shutil
from typing import Callable


@dataclasses.dataclass(frozen=True)
class Recorder:
    name: str
    what: str
    # Builds the command line for an empty directory to write to.
    argv: Callable[[pathlib.Path], list]
    # Its answer is text on standard output, which goes to a file.
    text: bool = False


def sadc_path():
    places = [shutil.which("sadc"), "/usr/lib/sysstat/sadc", "/usr/lib64/sa/sadc"]
    return next((p for p in places if p and pathlib.Path(p).exists()), None)


def below_argv(below, directory):
    config = directory.with_suffix(".conf")
    config.write_text(f'log_dir = "{directory}-log"\nstore_dir = "{directory}"\n')
    return [
        below, "--config", config, "record", "--interval-s", "1", "--compress", "--dict-compress-chunk-size", "16"
    ]


def installed(mitra):
    """The recorders of this machine, Mitra first, and the names of those that are missing."""
    sadc, atop, pidstat, below = sadc_path(), shutil.which("atop"), shutil.which("pidstat"), shutil.which("below")
    everyone = [
        (mitra, Recorder("mitra", "system and processes", lambda d: [mitra, "record", "--archive", d])),
        (sadc, Recorder("sadc -S XALL", "system", lambda d: [sadc, "-S", "XALL", "1", d / "sa"])),
        (atop, Recorder("atop -w", "system and processes", lambda d: [atop, "-w", d / "atop.log", "1"])),
        (pidstat, Recorder("pidstat -durh", "processes",
                           lambda d: [pidstat, "-durh", "-p", "ALL", "1"], text=True)),
        (below, Recorder("below (dict 16)", "system, cgroups, processes", lambda d: below_argv(below, d))),
    ]
    have = [recorder for program, recorder in everyone if program]
    return have, [recorder.name for program, recorder in everyone if not program]
