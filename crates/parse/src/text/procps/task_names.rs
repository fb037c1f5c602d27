//! What the columns of tables of processes are called.

use crate::text::prelude::*;

/// The columns of all versions of ps and top that a header may consist of.
const NAMES: &[&[u8]] = list!(
    "%CPU %MEM ADDR BLOCKED C CAUGHT CGNAME CGROUP CGROUPS CLS CMD CODE COMMAND CPU CPUNR DATA EGID EGROUP
     EIP ELAPSED ENVIRON ESP EUID EUSER F FGID FGROUP FUID FUSER Flags GID GROUP IGNORED IPCNS LABEL LWP
     MAJFL MAJFLT MINFL MINFLT NI NLWP NUMA NU OOMa OOMs OOM OOMADJ P PENDING PGID PGRP PID POL PPID PR PRI
     PSR PSS RES RGID RGROUP RSS RSZ RSan RSfd RSlk RSsh RTPRIO RUID RUSER S SCH SESS SHR SID SIZE SLICE
     SPID STACKP START STARTED STAT STIME SUID SUPGIDS SUPGRPS SUSER SVUID SWAP SZ TGID THCNT TID TIME TIME+
     TPGID TT TTY UID UNIT USED USER USS VIRT VSZ WCHAN nDRT nMaj nMin nTH nsCGROUP nsIPC nsMNT nsNET nsPID
     nsTIME nsUSER nsUTS vMj vMn D RSzd PSan PSfd PSsh ARGS COMM UCMD UCOMM NWCHAN PCPU PMEM USEDRES EXE ioR
     ioRop ioW ioWop AGID AGNI ELAPSD %CUU %CUC nFD STATE LXC LOGID DOCKER"
);

/// The names that translations give to the columns that matter.
const TRANSLATED: Pairs = pairs!(
    "BEFEHL COMMAND  COM. COMMAND  COMANDO COMMAND  COMANDA COMMAND  KOMENDA COMMAND
     KOMMANDO COMMAND  КОМАНДА COMMAND  ბრძანება COMMAND  ZEIT TIME  ZEIT+ TIME+  TEMPS TIME
     TEMPS+ TIME+  TEMPO TIME  TEMPO+ TIME+  TIMP TIME  TIMP+ TIME+  CZAS TIME  CZAS+ TIME+
     TID+ TIME+  ЧАС TIME  ЧАС+ TIME+  დრო TIME  REZ RES  UTIL. USER  UŻYTK. USER  USUARIO USER
     UTILIZ. USER  ANVÄNDARE USER  КОРИСТ. USER  მომხმარებელი USER  კ S"
);

/// The English name of a column.
pub fn english(word: &[u8]) -> &[u8] {
    find_pair(TRANSLATED, word).map_or(word, str::as_bytes)
}

/// Of so many columns one may be of a version that is not known here.
const KNOWN_OF_UNKNOWN: usize = 12;

/// Whether a line is a header: a process id, something of it, and no word that no column is called.
pub fn is_header(line: &[u8]) -> bool {
    // Asked for every line: hardly one has such a word.
    if find!(line, b"PID").is_none() && find!(line, b"LWP").is_none() {
        return false;
    }
    let (mut id, mut more, mut count, mut unknown) = (false, false, 0, 0);
    for word in words(line) {
        let word = english(word);
        if !NAMES.contains(&word) {
            let is_name = word.len() >= 2 && word.iter().all(u8::is_ascii_alphanumeric);
            unknown += 1;
            if !is_name || word.first().is_some_and(u8::is_ascii_digit) || unknown > 4 {
                return false;
            }
        }
        match word {
            b"PID" | b"LWP" | b"SPID" => id = true,
            b"CMD" | b"COMMAND" | b"ARGS" | b"COMM" | b"S" | b"STAT" | b"STATE" | b"RSS" | b"VSZ"
            | b"%CPU" | b"TIME" | b"TTY" | b"WCHAN" | b"PPID" | b"NLWP" => more = true,
            _ => {}
        }
        count += 1;
    }
    // `PID PPID ARGS` is what execsnoop of perf-tools prints; ps calls arguments a command.
    let is_execsnoop = count == 3 && words(line).eq([&b"PID"[..], b"PPID", b"ARGS"]);
    id && more && count >= 2 && count >= unknown * KNOWN_OF_UNKNOWN && !is_execsnoop
}

/// Whether a header of processes has the state among its columns.
pub fn has_state(header: &[u8]) -> bool {
    words(header).any(|w| matches!(w, b"S" | b"STAT" | b"STATE"))
}
