//! The command line as people and scripts use it: the real binary on a real recording of `/proc`.

#[path = "cli/answers.rs"]
mod answers;
#[path = "cli/archive.rs"]
mod archive;
#[path = "cli/asked.rs"]
mod asked;
#[path = "cli/browser.rs"]
mod browser;
#[path = "cli/dbus.rs"]
mod dbus;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/experiment.rs"]
mod experiment;
#[path = "cli/export.rs"]
mod export;
#[path = "cli/files.rs"]
mod files;
#[path = "cli/fleet.rs"]
mod fleet;
#[path = "cli/geometry.rs"]
mod geometry;
#[path = "cli/harness.rs"]
mod harness;
#[path = "cli/inspect.rs"]
mod inspect;
#[path = "cli/kubernetes.rs"]
mod kubernetes;
#[path = "cli/live.rs"]
mod live;
#[path = "cli/load.rs"]
mod load;
#[path = "cli/mcp.rs"]
mod mcp;
#[path = "cli/notify.rs"]
mod notify;
#[path = "cli/pager.rs"]
mod pager;
#[path = "cli/parquet.rs"]
mod parquet;
#[path = "cli/payloads.rs"]
mod payloads;
#[path = "cli/pcp.rs"]
mod pcp;
#[path = "cli/prometheus.rs"]
mod prometheus;
#[path = "cli/record.rs"]
mod record;
#[path = "cli/remote.rs"]
mod remote;
#[path = "cli/remote_s3.rs"]
mod remote_s3;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/reports.rs"]
mod reports;
#[path = "cli/rules.rs"]
mod rules;
#[path = "cli/send.rs"]
mod send;
#[path = "cli/send_clickhouse.rs"]
mod send_clickhouse;
#[path = "cli/send_logs.rs"]
mod send_logs;
#[path = "cli/send_tls.rs"]
mod send_tls;
#[path = "cli/serve.rs"]
mod serve;
#[path = "cli/serve_access.rs"]
mod serve_access;
#[path = "cli/serve_flood.rs"]
mod serve_flood;
#[path = "cli/serve_memory.rs"]
mod serve_memory;
#[path = "cli/services.rs"]
mod services;
#[path = "cli/tls.rs"]
mod tls;
#[path = "cli/usage.rs"]
mod usage;
#[path = "cli/wrong.rs"]
mod wrong;
