//! A Java virtual machine: HotSpot, the one of OpenJDK and of its derivatives.
//!
//! Without involving the JVM: its own counters ([`perfdata`]). By asking the JVM: `jcmd PID
//! GC.class_histogram -all` and its siblings ([`jcmd`]).

pub mod jcmd;
pub mod perfdata;

use serde::{Deserialize, Serialize};

use super::{Options, maps, read_in_root};
use crate::memory::Memory;
use crate::target::Target;
pub use jcmd::{ClassRow, HeapRow, JcmdReport, NativeRow};
pub use perfdata::{Collector, Counters, Space};

/// The library of the virtual machine.
const LIBRARY: &str = "libjvm.so";
/// The file `release` of a Java home has about twenty lines.
const RELEASE_BYTES_MAX: u64 = 64 << 10;

/// The heap of a JVM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JvmHeap {
    /// `OpenJDK 64-Bit Server VM`.
    pub name: Option<String>,
    /// `17.0.15+6-Debian-1deb12u1`.
    pub version: Option<String>,
    /// Its installation directory, as the process sees it.
    pub java_home: Option<String>,
    /// Its counters, read from its memory.
    pub counters: Option<Counters>,
    /// Its answers, if it was asked.
    pub asked: Option<JcmdReport>,
    /// Unknown data and the reasons, in words.
    pub notes: Vec<String>,
}

/// Whether a process is a JVM, by its mappings.
pub fn is_jvm(memory: &(impl Memory + ?Sized)) -> bool {
    maps(memory, LIBRARY)
}

/// Inspects a JVM.
pub fn read_heap(target: &Target, options: &Options) -> JvmHeap {
    let mut notes = Vec::new();
    let java_home = java_home(target);
    let counters = match perfdata::read(target, target.own_pid()) {
        Ok(counters) => Some(counters),
        Err(why) => {
            notes.push(why);
            None
        }
    };
    let is_hotspot = !target.mappings().iter().any(|mapping| mapping.module().starts_with("libj9vm"));
    let asked = if !is_hotspot {
        notes.push("it is OpenJ9, of which only its libraries are recognised".to_owned());
        None
    } else if options.ask_runtime {
        match jcmd::ask(target, java_home.as_deref(), options) {
            Ok(asked) => Some(asked),
            Err(why) => {
                notes.push(why);
                None
            }
        }
    } else {
        notes.push(
            "its classes were not counted: that is only done when asked for, because all of its threads wait while it counts"
                .to_owned(),
        );
        None
    };
    let said = |which: fn(&Counters) -> &Option<String>| counters.as_ref().and_then(|c| which(c).clone());
    let version = said(|c| &c.vm_version);
    let version = version.or_else(|| release(target, java_home.as_deref()?));
    JvmHeap { name: said(|c| &c.vm_name), version, java_home, counters, asked, notes }
}

/// The installation directory of the virtual machine, by the path of its library:
/// `HOME/lib/server`, up to Java 8 `HOME/jre/lib/ARCH/server`.
fn java_home(memory: &(impl Memory + ?Sized)) -> Option<String> {
    let library =
        memory.mappings().iter().find(|mapping| mapping.is_file() && mapping.module() == LIBRARY)?;
    let (home, _) = library.path.rsplit_once("/lib/")?;
    Some(home.strip_suffix("/jre").unwrap_or(home).to_owned())
}

/// The version in the file `release` of a Java home: `JAVA_VERSION="17.0.15"`.
fn release(target: &Target, home: &str) -> Option<String> {
    let text = read_in_root(target.pid(), &format!("{home}/release"), RELEASE_BYTES_MAX)?;
    let value = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    Some(value.trim_matches('"').chars().filter(|c| !c.is_control()).take(64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Image, Word};

    #[test]
    fn the_home_is_where_the_library_lies() {
        // A mapping of an image has no inode and so is not a file. The test is about the paths.
        for (library, home) in [
            ("/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so", "/usr/lib/jvm/java-17-openjdk-amd64"),
            ("/opt/jdk8/jre/lib/amd64/server/libjvm.so", "/opt/jdk8"),
        ] {
            let (found, _) = library.rsplit_once("/lib/").unwrap();
            assert_eq!(found.strip_suffix("/jre").unwrap_or(found), home);
        }
        assert!(!is_jvm(&Image::new(Word::Eight)));
        assert_eq!(java_home(&Image::new(Word::Eight)), None);
    }
}
