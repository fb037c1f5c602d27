//! Incidents inside services, on a machine that idles: what their threads wait for, and limits of
//! their own.
//!
//! The services are real ones (nginx, HAProxy, PostgreSQL, MariaDB, redis, memcached, RabbitMQ,
//! gunicorn, PHP-FPM, Puma, gRPC, Node.js, a JVM) and small ones in Python (`service/worker.py`).
//! Clients of the laboratory measure the response times.

mod database;
mod limits;
mod mariadb;
mod neighbours;
mod platforms;
mod runtimes;
pub mod site;
mod stacks;
mod waits;

use crate::incident::{Incident, Need};

const PYTHON: Need = Need::Tool("python3");
const NGINX: Need = Need::Tool("nginx");
const POSTGRES: &[Need] = &[
    Need::Tool("initdb"),
    Need::Tool("postgres"),
    Need::Tool("pgbench"),
    Need::Tool("pg_isready"),
    Need::Tool("psql"),
    Need::DiskBytes(1 << 30),
];

const MARIADB: &[Need] = &[
    Need::Tool("mariadbd"),
    Need::Tool("mariadb-install-db"),
    Need::Tool("mariadb"),
    Need::Cpus(2),
    Need::DiskBytes(1 << 30),
];

/// Times as long a faint incident makes its victim wait: of services that are well, at varying load or restarted one after the
/// other, the mean goes up to 1.4 times as high in ten seconds (fifteen controls).
pub const FAINT: f64 = 2.0;

/// The incidents of this file. All names begin alike: `mitra-lab run service-` makes them all.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("service-unreachable", "dependency-unreachable", "service", waits::unreachable)
        .what("the workers behind an nginx connect to an address that never answers")
        .needs(&[PYTHON, NGINX, Need::Tool("ip")]),
    Incident::new("service-slow-backend", "dependency-slow", "service", waits::slow_backend)
        .what("the workers behind an nginx wait for a server that has become slow")
        // From the view of the backend: it is slow without a visible wait.
        .also(&["service-slow", "worker-pool-exhausted"])
        .needs(&[PYTHON, NGINX, Need::Tool("ip")]),
    Incident::new("service-retries", "dependency-slow", "service", waits::retries)
        .what("a server gets slower than its callers are patient, and each of them tries again several times")
        // The backend has one thread that computes all the time, and gets several times as many
        // requests.
        .also(&["service-slow", "single-thread-bottleneck", "query-regression", "load-increase"])
        .needs(&[PYTHON, Need::Cpus(2)]),
    Incident::new("service-row-lock", "lock-queue", "service", database::row_lock)
        .what("a session of PostgreSQL idles in a transaction and holds a row that all others update")
        .needs(POSTGRES),
    Incident::new("service-no-index", "query-regression", "service", database::no_index)
        .what("the index of a table in PostgreSQL is gone, and each query costs hundreds of times as much")
        .needs(POSTGRES),
    Incident::new("service-mariadb-row-lock", "lock-queue", "service", mariadb::row_lock)
        .what("a session of MariaDB idles in a transaction and holds a row that all others update")
        .needs(MARIADB),
    Incident::new("service-mariadb-no-index", "query-regression", "service", mariadb::no_index)
        .what("the index of a table in MariaDB is gone, and each query reads all of it")
        .needs(MARIADB),
    Incident::new("service-sessions", "connection-limit", "service", database::too_many_clients)
        .what("a program keeps all the sessions that PostgreSQL has, and other clients are turned away")
        .needs(POSTGRES),
    Incident::new("service-file-lock", "lock-queue", "service", waits::file_lock)
        .what("all workers of a service wait for a file lock that another process holds")
        .needs(&[PYTHON]),
    Incident::new("service-fuse", "filesystem-hung", "service", waits::fuse_hung)
        .what("the daemon of a FUSE file system stands still, and the workers that read from it hang")
        .needs(&[PYTHON, Need::Path("/dev/fuse")]),
    Incident::new("service-deadlock", "deadlock", "service", waits::deadlock)
        .what("threads or processes of a service take two locks crosswise")
        .needs(&[PYTHON]),
    Incident::new("service-stopped", "service-silent", "service", waits::stopped)
        .what("the processes of a service are stopped by a signal")
        // True if the processes are stopped for only a part of each second.
        .also(&["service-slow"])
        .needs(&[PYTHON]),
    Incident::new("service-connections", "connection-limit", "service", limits::connections)
        .what("an nginx has fewer connections than its clients and servers need")
        .needs(&[PYTHON, NGINX]),
    Incident::new("service-pool", "worker-pool-exhausted", "service", limits::pool)
        .what("a service does not give the connections of its pool back, until none is left")
        .needs(&[PYTHON]),
    Incident::new("service-load", "load-increase", "service", limits::load)
        .what("a service with one worker is asked more than it can answer")
        // The worker computes all the time.
        .also(&["single-thread-bottleneck"])
        .needs(&[PYTHON, Need::Cpus(2)]),
    Incident::new("service-event-loop", "event-loop-blocked", "service", runtimes::event_loop)
        .what("one kind of request keeps the only thread of a Node.js server busy")
        .needs(&[Need::Tool("node"), Need::Cpus(2)]),
    Incident::new("service-redis-keys", "single-thread-bottleneck", "service", runtimes::redis_keys)
        .what("a client of redis asks for all keys, again and again, and all others wait meanwhile")
        // Redis serves from one event loop.
        .also(&["event-loop-blocked"])
        .needs(&[Need::Tool("redis-server"), Need::Tool("redis-cli"), Need::Cpus(2)]),
    Incident::new("service-gc", "gc-pressure", "service", runtimes::heap_full)
        .what("a JVM is at the end of its heap and collects garbage most of the time")
        .needs(&[Need::Tool("java"), Need::Tool("javac"), Need::Cpus(2)]),
    Incident::new("service-gunicorn", "worker-pool-exhausted", "service", stacks::gunicorn)
        .what("all workers of a gunicorn wait with one kind of request, and all others queue")
        .needs(&[Need::Tool("gunicorn")]),
    Incident::new("service-php", "worker-pool-exhausted", "service", stacks::php)
        .what("all children of a PHP-FPM behind an nginx wait with one kind of request")
        .needs(&[NGINX]),
    Incident::new("service-cache-stopped", "service-silent", "service", stacks::cache_stopped)
        .what("the memcached that the workers of a service ask does not answer")
        .also(&["service-slow"])
        .needs(&[PYTHON, Need::Tool("memcached")]),
    Incident::new("service-cache-lost", "load-increase", "service", stacks::cache_lost)
        .what("a cache has lost what it held, and the server behind it is asked for everything")
        // The server has one thread, and it computes all the time.
        .also(&["single-thread-bottleneck"])
        .needs(&[PYTHON, Need::Tool("memcached"), Need::Cpus(2)]),
    Incident::new("service-handshakes", "load-increase", "service", stacks::handshakes)
        .what("clients make a new TLS session for each request, and the only worker of an nginx signs all the time")
        .also(&["single-thread-bottleneck", "query-regression", "cpu-hog"])
        .needs(&[PYTHON, NGINX, Need::Tool("openssl"), Need::Cpus(2)]),
    Incident::new("service-descriptors", "fd-exhaustion", "service", limits::descriptors)
        .what("an nginx has used up its file descriptors")
        .also(&["connection-limit"])
        .needs(&[PYTHON, NGINX, Need::Tool("prlimit")]),
    Incident::new("service-quota", "cpu-quota-throttled", "service", neighbours::quota)
        .what("a service is given less CPU time than its requests need")
        .needs(&[PYTHON]),
    Incident::new("service-cpu-neighbour", "cpu-hog", "service", neighbours::cpu_neighbour)
        .what("a program beside a service computes with all its threads")
        .needs(&[PYTHON]),
    Incident::new("service-mutex", "lock-queue", "service", neighbours::mutex)
        .what("a thread of a service keeps the mutex that all its requests take")
        .needs(&[PYTHON]),
    Incident::new("service-newcomer", "swap-thrash", "service", neighbours::newcomer)
        .what("a job comes into the cgroup of a redis, whose memory is swapped out")
        .also(&["cgroup-memory-limit"])
        .needs(&[Need::Tool("redis-server"), Need::Tool("redis-cli")]),
    Incident::new("service-replica", "fork-stall", "service", neighbours::replica)
        .what("a replica of a redis synchronises again and again, and the server forks each time")
        .needs(&[Need::Tool("redis-server"), Need::Tool("redis-cli"), Need::Tool("redis-benchmark"), Need::Cpus(2)]),
    Incident::new("service-slow-disk", "slow-device", "service", neighbours::slow_disk)
        .what("the disk under a PostgreSQL takes long for each request")
        .needs(POSTGRES),
    Incident::new("service-table-lock", "lock-queue", "service", database::table_lock)
        .what("a session of PostgreSQL has locked a whole table and does nothing")
        .needs(POSTGRES),
    Incident::new("service-puma", "worker-pool-exhausted", "service", platforms::puma)
        .what("all threads of a Puma wait with one kind of request, and all others queue")
        .needs(&[Need::Tool("puma")]),
    Incident::new("service-grpc", "worker-pool-exhausted", "service", platforms::grpc)
        .what("all threads of a gRPC server wait with one kind of request, and who calls it waits")
        // On one connection with many requests, the turns between request and answer do not show
        // each request.
        .also(&["service-slow", "dependency-slow"])
        .needs(&[PYTHON, Need::Path("/usr/lib/python3/dist-packages/grpc")]),
    Incident::new("service-haproxy", "connection-limit", "service", platforms::haproxy)
        .what("an HAProxy has fewer connections than its clients need")
        .also(&["worker-pool-exhausted"])
        .needs(&[PYTHON, Need::Tool("haproxy")]),
    Incident::new("service-rabbitmq", "service-silent", "service", platforms::rabbitmq)
        .what("a RabbitMQ is above its limit of memory and reads nothing from those who publish")
        .also(&["connection-limit", "service-slow", "dependency-slow"])
        .needs(&[PYTHON, Need::Path("/usr/lib/rabbitmq/bin/rabbitmqctl"), Need::Path("/usr/lib/python3/dist-packages/pika")]),
];
