//! What a service says of itself, in the words of whoever runs it.

use mitra_model::report::Next;

use crate::advice::to_measure;

/// The name of its processes, what it can be asked, and how.
const ASKED: &[(&str, &str, &str)] = &[
    (
        "postgres",
        "what its sessions run, what they wait for, and who blocks whom",
        "psql -c \"SELECT pid, pg_blocking_pids(pid), wait_event_type, wait_event, state, left(query, 60) FROM \
         pg_stat_activity WHERE state <> 'idle' ORDER BY query_start\"",
    ),
    ("mariadbd", "what its sessions run, and who blocks whom", MYSQL),
    ("mysqld", "what its sessions run, and who blocks whom", MYSQL),
    (
        "redis-server",
        "the commands that took long, and what its clients do",
        "redis-cli SLOWLOG GET 10; redis-cli LATENCY LATEST; redis-cli CLIENT LIST",
    ),
    ("memcached", "connections, evictions and misses", "printf 'stats\\nquit\\n' | nc 127.0.0.1 11211"),
    ("mongod", "the operations that run", "mongosh --eval 'db.currentOp({active: true})'"),
    (
        "nginx",
        "its error log, and which server behind it is late",
        "tail -n 50 /var/log/nginx/error.log; nginx -T 2>/dev/null | grep -E 'worker_connections|upstream|_pass|timeout'",
    ),
    (
        "haproxy",
        "queues, sessions and limits of its servers",
        "echo 'show stat; show info' | socat stdio unix-connect:/run/haproxy/admin.sock",
    ),
    (
        "php-fpm",
        "how many workers are busy, and with what",
        "systemctl status 'php*-fpm'; its status page (pm.status_path) with ?full; its slow log (request_slowlog_timeout)",
    ),
    (
        "beam.smp",
        "queues, consumers and blocked connections",
        "rabbitmqctl list_queues name messages consumers; \
      rabbitmqctl list_connections name state",
    ),
    (
        "java",
        "where each thread stands, and the locks between them",
        "jcmd {pid} Thread.print -l; jcmd {pid} GC.heap_info",
    ),
    ("node", "which functions keep its event loop", "node --cpu-prof; or kill -USR1 {pid}, and a debugger"),
    ("gunicorn", "where each worker stands", "py-spy dump --pid {pid}"),
    ("python3", "where each thread stands", "py-spy dump --pid {pid}"),
    ("ruby", "where each thread stands", "rbspy snapshot --pid {pid}"),
];

const MYSQL: &str =
    "mysql -e 'SHOW FULL PROCESSLIST; SELECT * FROM sys.innodb_lock_waits\\G; SHOW ENGINE INNODB STATUS\\G'";

/// The question for a program, where one is known. Versions in its name (`php-fpm8.2`) do not matter.
#[must_use]
pub fn ask(program: Option<&str>, pid: &str) -> Option<Next> {
    let program = program?;
    let (_, what, command) = ASKED.iter().find(|(name, ..)| program.starts_with(name))?;
    Some(to_measure(*what, command.replace("{pid}", pid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_asked_in_its_own_words() {
        let asked = |program: &str| ask(Some(program), "42").map(|next| next.command);
        assert!(asked("php-fpm8.2").unwrap().contains("pm.status_path"));
        assert!(asked("java").unwrap().starts_with("jcmd 42 Thread.print"));
        assert_eq!(asked("appd"), None);
        assert_eq!(ask(None, "42"), None);
    }
}
