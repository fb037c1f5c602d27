//! `mitra export`: the file is read back by DuckDB.

use std::path::Path;
use std::process::Command;

use crate::export::simulated;
use crate::harness::{MITRA, archive, command, finish, good, python, run};

#[test]
fn duckdb_reads_what_dump_shows() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("all.parquet");
    let said = good(&["export", "--archive", archive(), "--parquet", file.to_str().unwrap()]);
    let exported: u64 = said.trim().rsplit_once(": ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing half-written stays");

    let Some(python) = python("duckdb") else {
        println!("skipped: no Python with duckdb; run: tools/install-deps.sh test");
        return;
    };
    let csv = dir.path().join("all.csv");
    std::fs::write(&csv, good(&["dump", "--archive", archive(), "--since", "@0", "--format", "csv"]))
        .unwrap();
    let script = r"
import duckdb, sys
parquet, csv = sys.argv[1:]
q = lambda sql: duckdb.sql(sql).fetchall()
print([r[1] for r in q(f'describe from \'{parquet}\'')])
print(q(f'select count(*) from \'{parquet}\'')[0][0])
duckdb.sql(f'create table dumped as select * from read_csv(\'{csv}\', header=true, all_varchar=true)')
print(q('select count(*) from dumped')[0][0])
# Every value of the dump is in the file, to the millisecond that the dump shows.
print(q(f'''
  select count(*) from dumped d anti join (
    select strftime(time at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%gZ') as time, metric, entity, row,
           coalesce(text, '') as text, value from '{parquet}') p
  on d.time = p.time and d.metric = p.metric and d.entity = p.entity and coalesce(d.row, '') = p.row
     and (coalesce(d.value, '') = p.text or try_cast(d.value as double) = p.value)
''')[0][0])
";
    let output = finish(Command::new(python).arg("-c").arg(script).arg(&file).arg(&csv));
    assert_eq!(output.code, 0, "{}", output.err);
    let lines: Vec<&str> = output.out.lines().collect();
    assert_eq!(
        lines[0],
        "['TIMESTAMP WITH TIME ZONE', 'VARCHAR', 'VARCHAR', 'VARCHAR', 'DOUBLE', 'VARCHAR']"
    );
    assert_eq!(lines[1], exported.to_string());
    assert_eq!(lines[2], exported.to_string(), "dump and export differ");
    assert_eq!(lines[3], "0", "values of the dump are not in the file");
}

#[test]
fn a_directory_and_a_selection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let said = good(&["export", "--archive", archive(), "--metric", "mem.free", "--parquet", path]);
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    assert!(
        said.starts_with(file.to_str().unwrap()) && file.extension().is_some_and(|e| e == "parquet"),
        "{said}"
    );
    let missing = run(&["export", "--archive", archive(), "--parquet", "/nonexistent/x.parquet"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("/nonexistent"), "{}", missing.err);
}

#[test]
fn standard_output_is_a_file_but_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("free.parquet");
    let free = ["export", "--archive", archive(), "--metric", "mem.free", "--parquet"];
    good(&[&free[..], &[file.to_str().unwrap()]].concat());
    let piped = command(&free).arg("-").output().unwrap();
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    assert!(piped.stdout == std::fs::read(&file).unwrap(), "{} bytes", piped.stdout.len());
    assert!(!Path::new("-").exists());
    if !Path::new("/usr/bin/script").exists() {
        println!("skipped: /usr/bin/script is not installed");
        return;
    }
    let line = format!("{MITRA} export --archive {} --no-pager --parquet -", archive());
    let shown = Command::new("/usr/bin/script").args(["-qec", &line, "/dev/null"]).output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.code() == Some(2) && text.contains("a terminal cannot show Parquet"), "{text}");
}

#[test]
fn a_text_that_goes_on_has_one_row() {
    // Longer than what is read at a time.
    let dir = simulated(1, 650);
    let recording = dir.path().to_str().unwrap();
    let file = dir.path().join("texts.parquet");
    let texts = ["--metric", "disk.queue_scheduler", "--archive", recording];
    let csv = good(&[&["dump", "--since", "@0", "--format", "csv"], &texts[..]].concat());
    let disks: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').nth(3).unwrap()).collect();
    assert_eq!(disks, ["disk0", "disk1", "disk2"], "{csv}");
    let said = good(&[&["export", "--parquet", file.to_str().unwrap()], &texts[..]].concat());
    assert!(said.ends_with(": 3 values\n"), "{said}");
}
