//! Programs of this machine: one of the user's, and the one that shows a notice on a desktop. No shell is given a string.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mitra_confine::{Child, Privileges, prepare, reap};

use super::{Failure, cut};
use crate::message::Message;

const NOTIFY_SEND: &str = "/usr/bin/notify-send";
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const TITLE_MAX: usize = 200;
const BODY_MAX: usize = 1000;
/// Notices that may still take the place of another.
const SHOWN_MAX: usize = 100;

/// The JSON of the message on standard input.
pub fn command(message: &Message, argv: &[String], trusted: super::Programs) -> Result<(), Failure> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(Failure::Never("no program".to_owned()));
    };
    let json = serde_json::to_vec(message).map_err(|error| Failure::Never(error.to_string()))?;
    run(program, arguments, &json, Stdio::null(), trusted).map(drop)
}

/// A notice, in place of the one before of the same incident.
pub fn desktop(
    message: &Message,
    shown: &mut Vec<(String, u32)>,
    trusted: super::Programs,
) -> Result<(), Failure> {
    let before = shown.iter().find(|(id, _)| *id == message.id).map_or(0, |(_, number)| *number);
    let arguments = [
        "--app-name=Mitra".to_owned(),
        format!("--urgency={}", if message.is_urgent() { "critical" } else { "normal" }),
        format!("--icon={}", if message.event.is_end() { "dialog-information" } else { "dialog-warning" }),
        "--print-id".to_owned(),
        format!("--replace-id={before}"),
        "--".to_owned(),
        cut(&message.line(), TITLE_MAX),
        cut(&escaped(&message.details()), BODY_MAX),
    ];
    let said = run(NOTIFY_SEND, &arguments, &[], Stdio::piped(), trusted)?;
    if let Ok(number) = said.trim().parse() {
        shown.retain(|(id, _)| *id != message.id);
        let surplus = (shown.len() + 1).saturating_sub(SHOWN_MAX);
        shown.drain(..surplus);
        shown.push((message.id.clone(), number));
    }
    Ok(())
}

/// Daemons show markup in the body.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What it printed, where that is wanted: it has to fit a pipe.
fn run(
    program: &str,
    arguments: &[String],
    input: &[u8],
    output: Stdio,
    trusted: super::Programs,
) -> Result<String, Failure> {
    if !Path::new(program).exists() {
        return Err(Failure::Later(format!("{program} is not there")));
    }
    if !trusted(Path::new(program)) {
        return Err(Failure::Never(format!("{program}: others than root can change it")));
    }
    let later = |what: &str, error: std::io::Error| Failure::Later(format!("{program}: {what}: {error}"));
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    for name in ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "HOME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::null());
    prepare(&mut command, &Child { privileges: Privileges::None, bounds: &[], group: None })
        .map_err(|error| later("cannot be prepared", error))?;
    let mut child = command.spawn().map_err(|error| later("cannot be started", error))?;
    // A message is smaller than a pipe, so nobody waits here.
    if let Some(mut pipe) = child.stdin.take() {
        _ = pipe.write_all(input);
    }
    let Some(status) = reap(&mut child, ENDS_WITHIN) else {
        _ = child.kill();
        _ = child.wait();
        return Err(Failure::Later(format!("{program}: does not end within {} s", ENDS_WITHIN.as_secs())));
    };
    if !status.success() {
        return Err(Failure::Later(format!("{program}: {status}")));
    }
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        _ = out.take(4096).read_to_string(&mut said);
    }
    Ok(said)
}
