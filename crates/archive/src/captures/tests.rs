use super::*;

fn captured(since_real: i64) -> Captured {
    Captured { kind: "offcpu".into(), since_real, seconds: 1.0, ..Captured::default() }
}

#[test]
fn a_name_says_when() {
    // 2026-11-21 16:32:00.123 UTC and the last day of a leap year's February.
    for (ns, name) in [
        (1_795_278_720_123_000_000, "20261121T163200.123Z-offcpu"),
        (1_709_164_800_000_000_000, "20240229T000000.000Z-offcpu"),
    ] {
        assert_eq!(stem(&captured(ns)), name);
        assert_eq!(parse(&format!("{name}{ENDING}")), Some((ns, "offcpu")));
    }
    assert_eq!(parse("20261121T163200.123Z-offcpu.7.json.zst"), Some((1_795_278_720_123_000_000, "offcpu")));
    for bad in ["", "x.json.zst", "2026112ST163200.123Z-a.json.zst", "20261121T163200.123Z-a.json.zst.9.tmp"]
    {
        assert_eq!(parse(bad), None, "{bad}");
    }
    // Nanoseconds reach from 1677 to 2262.
    for day in (-106_000..106_000).step_by(37) {
        let ns = day * 86_400_000_000_000;
        let name = format!("{}{ENDING}", stem(&captured(ns)));
        assert_eq!(parse(&name), Some((ns, "offcpu")), "{name}");
    }
}

#[test]
fn what_is_stored_is_listed_and_read_and_the_oldest_go() {
    let dir = tempfile::tempdir().unwrap();
    assert!(captures(dir.path()).unwrap().is_empty());
    for second in [5, 3, 4, 4] {
        store_capture(dir.path(), &captured(second * 1_000_000_000)).unwrap();
    }
    let files = captures(dir.path()).unwrap();
    let times: Vec<i64> = files.iter().map(|file| file.since_real / 1_000_000_000).collect();
    assert_eq!(times, [3, 4, 4, 5]);
    assert_eq!(read_capture(&files[0].path).unwrap(), captured(3_000_000_000));
    let left = trim(dir.path(), files[0].bytes * 2, |_| (i64::MIN, 0)).bytes;
    assert_eq!(captures(dir.path()).unwrap(), files[2..]);
    assert_eq!(left, files[2..].iter().map(|file| file.bytes).sum::<u64>());
    fs::write(&files[3].path, b"not zstd").unwrap();
    assert!(read_capture(&files[3].path).is_err());
}

#[test]
fn old_captures_go_a_few_at_a_time_and_those_without_a_date_stay() {
    let dir = tempfile::tempdir().unwrap();
    let second = |second: i64| EPOCH_REAL + second * 1_000_000_000;
    for since in [7_000_000, second(1), second(2), second(3), second(9)] {
        store_capture(dir.path(), &captured(since)).unwrap();
    }
    let mut left = Vec::new();
    for _ in 0..2 {
        trim(dir.path(), u64::MAX, |files| (second(4), usize::from(files > 3) * 2));
        let files = captures(dir.path()).unwrap();
        left.push(files.iter().map(|file| file.since_real).collect::<Vec<_>>());
    }
    assert_eq!(left, [[7_000_000, second(3), second(9)]; 2]);
}

#[test]
fn what_somebody_writes_is_not_taken_from_them() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(FOLDER);
    dir::make(&folder).unwrap();
    let path = folder.join(format!("{}{ENDING}.4711{UNFINISHED}", stem(&captured(0))));
    let file = create(&path).unwrap();
    // As long ago as it looks after the clock was set.
    file.set_modified(SystemTime::now() - 100 * UNFINISHED_AGE).unwrap();
    remove_unfinished(&folder);
    assert!(path.exists());
    drop(file);
    remove_unfinished(&folder);
    assert!(!path.exists());
}

/// A file of some kilobytes that unpacks to gigabytes.
#[test]
fn a_capture_that_never_ends_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("20261121T163200.123Z-offcpu.json.zst");
    let file = File::create(&path).unwrap();
    let mut compressor = zstd::stream::write::Encoder::new(file, 1).unwrap();
    compressor.write_all(br#"{"kind":"offcpu","notes":[""#).unwrap();
    for _ in 0..80 {
        compressor.write_all(&[b'a'; 1 << 20]).unwrap();
    }
    compressor.write_all(br#""]}"#).unwrap();
    compressor.finish().unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 100_000);
    assert!(read_capture(&path).unwrap_err().to_string().contains("no capture has"));
    assert!(read_capture_head(&path).is_err());
}

#[test]
fn the_head_is_read_as_the_whole_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let row = |n: usize| CaptureRow { what: n.to_string(), ..CaptureRow::default() };
    let whole = Captured {
        why: "by hand".into(),
        since_mono: 5,
        events: 7,
        lost: 2,
        ended: Ended::Failed("of this".into()),
        cost_ns: Some(9),
        tops: (0..TOPS_MAX + 5).map(row).collect(),
        notes: vec!["note".into()],
        filter: [("pid".to_owned(), "7".to_owned())].into(),
        profile: Some(Profile {
            weight: "time off CPU".into(),
            unit: "s".into(),
            names: vec!["main".into()],
            ..Profile::default()
        }),
        ..captured(3_000_000_000)
    };
    let name = store_capture(dir.path(), &whole).unwrap();
    let head = read_capture_head(&capture_path(dir.path(), &name)).unwrap();
    let profile = Profile { weight: "time off CPU".into(), unit: "s".into(), ..Profile::default() };
    assert_eq!((&head.filter, head.profile.as_ref()), (&whole.filter, Some(&profile)));
    assert_eq!(head.event(Some(name.clone())), whole.event(Some(name)));
}

#[test]
fn what_is_known_later_takes_the_place_of_what_was_stored() {
    let dir = tempfile::tempdir().unwrap();
    let name = store_capture(dir.path(), &captured(7)).unwrap();
    let named = Captured { notes: vec!["named".into()], ..captured(7) };
    replace_capture(dir.path(), &name, &named).unwrap();
    let files = captures(dir.path()).unwrap();
    assert_eq!((files.len(), &files[0].name), (1, &name));
    assert_eq!(read_capture(&files[0].path).unwrap(), named);
    assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 1, "nothing unfinished is left");
    // Where it cannot be written, what was there stays.
    fs::create_dir(temporary(&dir.path().join(FOLDER), &name)).unwrap();
    assert!(replace_capture(dir.path(), &name, &captured(8)).is_err());
    assert_eq!(read_capture(&files[0].path).unwrap(), named);
}

#[test]
fn only_who_knows_the_limit_lets_captures_go() {
    let dir = tempfile::tempdir().unwrap();
    let mib = |second: i64, mib: u64| {
        let name = store_capture(dir.path(), &captured(second * 1_000_000_000)).unwrap();
        let file = OpenOptions::new().write(true).open(dir.path().join(FOLDER).join(name)).unwrap();
        // A hole takes no space.
        file.set_len(mib << 20).unwrap();
    };
    let left = || {
        let files = captures(dir.path()).unwrap();
        files.iter().map(|file| file.since_real / 1_000_000_000).collect::<Vec<_>>()
    };
    {
        let _recorder = lock::Lock::take(dir.path()).unwrap();
        [1, 2, 3].iter().for_each(|second| mib(*second, 200));
        mib(4, 1);
        assert_eq!(left(), [1, 2, 3, 4], "its limit may be anything");
    }
    // Without one there is no more than there was, if that was more than usual.
    mib(5, 1);
    assert_eq!(left(), [2, 3, 4, 5]);
    trim(dir.path(), 2 << 20, |_| (i64::MIN, 0));
    assert_eq!(left(), [4, 5]);
    mib(6, 200);
    mib(7, 100);
    assert_eq!(left(), [4, 5, 6, 7], "202 MiB are no more than usual");
    mib(8, 1);
    assert_eq!(left(), [5, 6, 7, 8], "what is more than usual already does not grow");
}

#[test]
fn no_link_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(FOLDER);
    dir::make(&folder).unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, b"mine").unwrap();
    let name = format!("{}{ENDING}", stem(&captured(0)));
    let trap = folder.join(format!("{name}.{}{UNFINISHED}", std::process::id()));
    std::os::unix::fs::symlink(&victim, &trap).unwrap();
    let stored = store_capture(dir.path(), &captured(0)).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
    assert_ne!(stored, name);
    assert_eq!(read_capture(&folder.join(stored)).unwrap(), captured(0));
}

#[test]
fn only_what_is_not_known_becomes_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for second in [1, 2, 3] {
        names.push(store_capture(dir.path(), &captured(second * 1_000_000_000)).unwrap());
    }
    let known = [captured(2_000_000_000).event(Some(names[1].clone()))];
    let mut cache = Vec::new();
    let span = Span { since: 0, until: 3_500_000_000 };
    for _ in 0..2 {
        let found = events(dir.path(), span, &known, &mut cache);
        let times: Vec<i64> = found.iter().map(|event| event.real).collect();
        // The second is known; the third ends after the span.
        assert_eq!(times, [2_000_000_000]);
    }
    assert_eq!(cache.len(), 2);
}
