use super::*;

const GOOD: &str = r#"title = "t"
[workload]
command = ["run", "{step}"]
steps = [1, 2]
[[metric]]
name = "second"
json = "/b"
better = "lower"
[[metric]]
name = "rate"
regex = 'rate: ([0-9.]+)'
better = "higher"
primary = true
[[variant]]
name = "a"
[[variant]]
name = "b"
sysctl = { "vm.swappiness" = 10 }
"#;

fn error(text: &str) -> String {
    Experiment::read("run.toml", text).unwrap_err().to_string()
}

#[test]
fn the_primary_metric_comes_first_and_steps_are_texts() {
    let read = Experiment::read("run.toml", GOOD).unwrap();
    assert_eq!(read.metrics.iter().map(|m| m.info.name.as_str()).collect::<Vec<_>>(), ["rate", "second"]);
    assert_eq!(read.steps, [Some("1".to_owned()), Some("2".to_owned())]);
    assert_eq!((read.repetitions(), read.warm_up(), read.timeout), (REPETITIONS, 1, TIMEOUT));
    assert_eq!(read.needs_root(), ["the setting vm.swappiness"]);
}

#[test]
fn a_mistake_is_told_with_its_line() {
    for (from, to, says) in [
        ("better = \"lower\"", "better = \"greener\"", "run.toml:8:10: unknown variant `greener`"),
        ("steps = [1, 2]", "steps = [1, 1]", "run.toml:4:9: a step stands there twice"),
        ("steps = [1, 2]", "speed = 9", "run.toml:4:1: unknown field `speed`"),
        ("([0-9.]+)", "[0-9.]+", "run.toml:11:9: wanted one group"),
        ("([0-9.]+)", "([0-9.]+", "run.toml:11:9: error: unclosed group"),
        ("vm.swappiness", "vm..x", "run.toml:18:12: not the name of a setting"),
        ("vm.swappiness", "../../etc/passwd", "not the name of a setting"),
        ("name = \"b\"", "name = \"a\"", "run.toml:17:8: there is another variant of that name"),
        ("name = \"b\"", "name = \"../b\"", "run.toml:17:8: wanted a name of up to"),
        ("name = \"b\"", "name = \"b\"\nready = \"example.org\"", "run.toml:18:9: wanted the address"),
        ("command = [\"run\", \"{step}\"]", "command = \"run\"", "run.toml:3:11: invalid type: string"),
        ("command = [\"run\", \"{step}\"]", "command = []", "run.toml:3:11: wanted a program"),
        ("{step}\"]", "{stpe}\"]", "run.toml:3:11: of a nothing is called {stpe}; there are dir, here, step"),
        ("json = \"/b\"", "json = \"b\"", "wanted an address as /jobs"),
        ("json = \"/b\"", "output = \"run.speed\"", "run.toml:7:10: no such metric"),
        ("json = \"/b\"", "", "a metric wants one of"),
        ("title = \"t\"", "title = \"t\"\nrepetitions = 0", "run.toml:2:15: wanted 1 to 1000"),
        ("steps = [1, 2]", "steps = [1, 2]\ntimeout = \"0s\"", "run.toml:5:11: wanted 100ms to an hour"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let said = error(&text);
        assert!(said.contains(says), "{to}: {said}");
    }
}

#[test]
fn settings_are_paths_below_proc() {
    assert_eq!(sysctl_path("vm.swappiness"), Some("proc/sys/vm/swappiness".into()));
    assert_eq!(sysctl_path("net.ipv4.conf.eth0/7.mtu"), Some("proc/sys/net/ipv4/conf/eth0.7/mtu".into()));
    for bad in ["", "vm", "vm..x", ".vm.x", "vm.//.x", "vm.x y"] {
        assert_eq!(sysctl_path(bad), None, "{bad}");
    }
}

#[test]
fn placeholders_are_filled_and_other_braces_stay() {
    let values = BTreeMap::from([("step".to_owned(), "8".to_owned()), ("dir".to_owned(), "/d".to_owned())]);
    let full = |text: &str| filled_text(text, &values);
    assert_eq!(full("--threads={step} {dir}/x").unwrap(), "--threads=8 /d/x");
    assert_eq!(full("{\"a\": {step}} {}{X").unwrap(), "{\"a\": 8} {}{X");
    assert_eq!(filled_content("listen {port}; root {dir};", &values), "listen {port}; root /d;");
    assert!(full("{port}").unwrap_err().to_string().contains("nothing is called {port}"));
}
