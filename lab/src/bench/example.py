#!/usr/bin/env python3
"""A tool that takes part: of each recording it blames the process that used most CPU time.

    python3 example.py FOLDER > answers.json      (needs duckdb: pip install duckdb)
"""
import json
import pathlib
import sys

import duckdb

QUERY = """
with used as (
    select row, sum(value) as cpu from '{file}'
    where metric = 'task.cpu_time' and epoch(time) > {since} and epoch(time) <= {until} group by row),
who as (
    select row, max(value) filter (metric = 'task.tgid') as pid, max(value) filter (metric = 'task.kthread') as kernel,
           min(text) filter (metric = 'task.comm') as name
    from '{file}' where metric in ('task.tgid', 'task.kthread', 'task.comm') group by row)
select pid, min_by(name, row), sum(cpu) from used join who using (row)
where kernel = 0 group by pid order by sum(cpu) desc, pid limit 1
"""

folder = pathlib.Path(sys.argv[1])
answers = {}
for recording in json.loads((folder / "bench.json").read_text())["recordings"]:
    file = folder / recording["part"] / recording["id"] / "metrics.parquet"
    query = QUERY.format(file=file, since=recording["since_s"], until=recording["until_s"])
    found = duckdb.sql(query).fetchall()
    incidents = [{"culprit": {"pid": int(pid), "process": name}} for pid, name, _ in found]
    answers[recording["id"]] = {"incidents": incidents}
json.dump({"method": "example.py", "answers": answers}, sys.stdout, indent=1)
