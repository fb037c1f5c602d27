//! Users and groups. The password field is never read, and `/etc/shadow` is never opened.
//!
//! ```text
//! group adm gid=4 members=syslog,zoe
//! user root uid=0 gid=0 home=/root shell=/bin/bash name=root
//! ```

use std::collections::BTreeSet;

use super::{Source, word};
use crate::document::{Document, Facts, Kind};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// Maximum size of either file in bytes.
const FILE_MAX: usize = 8 << 20;
/// Maximum lines in either file.
const LINES_MAX: usize = 50_000;

/// The document of users and groups.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    source.kept("users", source.stamps(&[PASSWD, GROUP]), || {
        let users = parse_passwd(&source.text(PASSWD, FILE_MAX)?).map_err(|e| format!("{PASSWD}: {e}"))?;
        let groups = source.text(GROUP, FILE_MAX).unwrap_or_default();
        let groups = parse_group(&groups).map_err(|e| format!("{GROUP}: {e}"))?;
        let lines: BTreeSet<&String> = users.iter().chain(&groups).map(|(_, line)| line).collect();
        let content = lines.into_iter().map(|line| format!("{line}\n")).collect();
        let mut facts = Facts::new();
        for (field, accounts) in [("account.user", &users), ("account.group", &groups)] {
            let names: BTreeSet<&String> = accounts.iter().map(|(name, _)| name).collect();
            names.into_iter().for_each(|name| word(&mut facts, field, name));
        }
        Ok(vec![source.document("@users", Kind::User, content, facts)])
    })
}

/// The users of `/etc/passwd`: the name, and a line with all other fields except the password.
///
/// ```text
/// root:x:0:0:root:/root:/bin/bash
/// ```
pub fn parse_passwd(text: &str) -> Result<Vec<(String, String)>, String> {
    read(text, |line| {
        let [name, _password, uid, gid, gecos, home, shell] = line.split(':').collect::<Vec<_>>()[..] else {
            return Err("seven fields with colons between were wanted".to_owned());
        };
        let (uid, gid) = (id(uid)?, id(gid)?);
        let full = gecos.split(',').next().unwrap_or_default();
        let line = format!("user {name} uid={uid} gid={gid} home={home} shell={shell} name={full}");
        Ok((name.to_owned(), line))
    })
}

/// The groups of `/etc/group`: the name, and a line with all other fields except the password.
///
/// ```text
/// adm:x:4:syslog,zoe
/// ```
pub fn parse_group(text: &str) -> Result<Vec<(String, String)>, String> {
    read(text, |line| {
        let [name, _password, gid, members] = line.split(':').collect::<Vec<_>>()[..] else {
            return Err("four fields with colons between were wanted".to_owned());
        };
        let members: BTreeSet<&str> = members.split(',').map(str::trim).filter(|m| !m.is_empty()).collect();
        let members = members.into_iter().collect::<Vec<_>>().join(",");
        Ok((name.to_owned(), format!("group {name} gid={} members={members}", id(gid)?)))
    })
}

fn read(
    text: &str,
    parse: impl Fn(&str) -> Result<(String, String), String>,
) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        // A line that begins with a sign includes entries of a directory service.
        if line.is_empty() || line.starts_with(['#', '+', '-']) {
            continue;
        }
        if found.len() == LINES_MAX {
            return Err(format!("line {}: more than {LINES_MAX}", at + 1));
        }
        found.push(parse(line).map_err(|e| format!("line {}: {e}", at + 1))?);
    }
    Ok(found)
}

/// Parses the id of a user or group. The error does not repeat the text, because in a misplaced
/// line it may be the password.
fn id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "a number was wanted as id".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_left_out() {
        let users =
            parse_passwd("root:$6$salt$hash:0:0:The boss,room 1,,:/root:/bin/bash\n+::::::\n\n").unwrap();
        let line = "user root uid=0 gid=0 home=/root shell=/bin/bash name=The boss".to_owned();
        assert_eq!(users, [("root".to_owned(), line)]);
        let groups = parse_group("adm:!secret:4:zoe,adam,\n").unwrap();
        assert_eq!(groups, [("adm".to_owned(), "group adm gid=4 members=adam,zoe".to_owned())]);
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        let error = parse_passwd("root:x:0:0::/:/bin/sh\nzoe:1000:$6$secret:1000:x:/:/bin/sh\n").unwrap_err();
        assert_eq!(error, "line 2: a number was wanted as id");
        assert!(parse_passwd("root:x:0:0\n").is_err());
        assert!(parse_group("adm:x:4\n").unwrap_err().starts_with("line 1: four fields"));
    }
}
