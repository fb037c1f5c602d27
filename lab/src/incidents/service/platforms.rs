//! More software that services run on: Ruby's Puma, gRPC, HAProxy, RabbitMQ.

use std::fs;
use std::process::Command;

use super::limits::LONGEST_POLL;
use super::site::{App, Asks, Crowd, Size, family, free_address, wait_for_server};
use super::stacks::{Workers, all_workers_wait};
use super::waits::{asked_through, holds};
use crate::incident::{Stop, Truth, WithPath};
use crate::machine;
use crate::stage::{Isolation, Stage};

const PATIENCE_MS: u64 = 5_000;

/// The kernel's name of a process.
fn comm_of(pid: u32) -> Result<String, Stop> {
    let file = format!("/proc/{pid}/comm");
    Ok(fs::read_to_string(&file).at(&file)?.trim().to_owned())
}

/// All threads of a Puma wait with one kind of request.
pub fn puma(stage: &mut Stage) -> Result<Truth, Stop> {
    let (workers, takes_s) = (stage.draw().uniform(3, 8), stage.draw().real(0.8, 2.0));
    let app = "run lambda { |env|\n  sleep(env['PATH_INFO'] == '/report' ? SLOW : 0.001)\n  \
               [200, {'Content-Length' => '500'}, ['.' * 500]]\n}\n";
    let file = stage.dir().join("config.ru");
    fs::write(&file, app.replace("SLOW", &takes_s.to_string())).at(&file)?;
    let address = free_address()?;
    let mut command = Command::new("puma");
    command.args([
        "-e",
        "production",
        "-t",
        &format!("{workers}:{workers}"),
        "-b",
        &format!("tcp://{address}"),
    ]);
    let handle = stage.spawn(command.arg("--dir").arg(stage.dir()).arg(&file))?;
    wait_for_server(stage, handle, &address, &Isolation::default())?;
    let server = Workers { handle, address, workers, path: "/report", takes_s };
    let name = comm_of(handle.pid())?;
    all_workers_wait(stage, &name, &server)
}

const GRPC_SERVER: &str = "
import sys, time
from concurrent import futures
import grpc

def get(request, context):
    time.sleep(float(request))
    return b'.' * 500

handlers = {'Get': grpc.unary_unary_rpc_method_handler(get)}
server = grpc.server(futures.ThreadPoolExecutor(max_workers=int(sys.argv[2])))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler('lab.Shop', handlers),))
server.add_insecure_port(sys.argv[1])
server.start()
server.wait_for_termination()
";

/// All threads of a gRPC server wait with one kind of request. The front server has one connection
/// to it.
pub fn grpc(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let (workers, takes_s) = (stage.draw().uniform(3, 8), stage.draw().real(0.8, 2.0));
    let file = stage.dir().join("shop.py");
    fs::write(&file, GRPC_SERVER).at(&file)?;
    let behind = free_address()?;
    let mut command = Command::new("/usr/bin/python3");
    let handle = stage.spawn(command.arg(&file).args([&behind, &workers.to_string()]))?;
    wait_for_server(stage, handle, &behind, &here)?;
    let manners = format!("/report grpc {behind} {takes_s}\n/ grpc {behind} 0.001\n");
    let app = App::start(stage, &here, free_address()?, Size { processes: 1, threads: 64 }, &manners)?;
    let server = Workers { handle, address: app.address, workers, path: "/report", takes_s };
    let name = comm_of(handle.pid())?;
    all_workers_wait(stage, &name, &server)
}

/// Long polling clients use as many connections as HAProxy allows. Loud: many more of them come.
/// Faint: somewhat more.
pub fn haproxy(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let places = stage.draw().between(24, 80);
    let size = Size { processes: 1, threads: places + 8 };
    let app = App::start(stage, &here, free_address()?, size, "/poll wait 2500 3500\n/ compute 0.5\n")?;
    let (address, config) = (free_address()?, stage.dir().join("haproxy.cfg"));
    let text = format!(
        "global\n  maxconn {places}\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 2s\n  timeout client 30s\n  \
         timeout server 30s\nfrontend site\n  bind {address} backlog 511\n  default_backend shop\nbackend shop\n  \
         server one {}\n",
        app.address
    );
    fs::write(&config, text).at(&config)?;
    let handle = stage.spawn(Command::new("haproxy").args(["-db", "-f"]).arg(&config))?;
    wait_for_server(stage, handle, &address, &here)?;
    let asks = Asks { every_ms: 20, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &address)?;
    // Each client takes a connection for three seconds on average.
    let full_per_s = places as f64 / 3.0;
    let polls = Crowd::start(stage, &here, &address, full_per_s * 0.4, 10_000, "/poll")?;
    let times = stage.real((1.8, 2.5), (1.05, 1.15));
    stage.warm_up(LONGEST_POLL)?;
    stage.healthy()?;

    stage.trouble_starts();
    polls.come(full_per_s * times)?;
    stage.trouble()?;
    stage.hurt_or_failed(&victim, stage.loud(5.0, 2.0))?;
    Ok(Truth { process: Some("haproxy".into()), pids: family(handle.pid()), ..Truth::default() })
}

/// A RabbitMQ node with all its files in the directory of the stage.
struct Rabbit {
    home: String,
    port: String,
    ports: [String; 2],
    node: String,
}

impl Rabbit {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(format!("/usr/lib/rabbitmq/bin/{program}"));
        let at = |name: &str| format!("{}/{name}", self.home);
        let [epmd, distribution] = &self.ports;
        command.envs([
            ("HOME", self.home.as_str()),
            ("ERL_EPMD_PORT", epmd),
            ("ERL_EPMD_ADDRESS", "127.0.0.1"),
            ("RABBITMQ_DIST_PORT", distribution),
            ("RABBITMQ_NODENAME", &self.node),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1"),
            ("RABBITMQ_NODE_PORT", &self.port),
        ]);
        command.envs([
            ("RABBITMQ_MNESIA_BASE", at("mnesia")),
            ("RABBITMQ_LOG_BASE", at("log")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins")),
            ("RABBITMQ_CONF_ENV_FILE", at("none")),
            ("RABBITMQ_CONFIG_FILE", at("rabbitmq")),
        ]);
        command
    }
}

/// The broker has less memory than it wants, and stops reading from publishers. Loud: until the
/// end. Faint: for a part of the time.
pub fn rabbitmq(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let home = stage.dir().join("rabbit");
    fs::create_dir_all(&home).at(&home)?;
    let port_of = |address: String| address.rsplit(':').next().unwrap_or_default().to_owned();
    let address = free_address()?;
    let ports = [port_of(free_address()?), port_of(free_address()?)];
    let node = format!("{}@localhost", stage.draw().name());
    let home = home.display().to_string();
    let rabbit = Rabbit { home, port: port_of(address.clone()), ports, node };
    fs::write(format!("{}/plugins", rabbit.home), "[].\n").at(&rabbit.home)?;
    // In the foreground, so that it dies with the stage.
    let [epmd, _] = &rabbit.ports;
    stage.spawn(Command::new("epmd").args(["-address", "127.0.0.1", "-port", epmd]))?;
    let handle = stage.spawn(&mut rabbit.command("rabbitmq-server"))?;
    wait_for_server(stage, handle, &address, &here)?;
    let size = Size { processes: stage.draw().uniform(3, 6), threads: 2 };
    let app =
        App::start(stage, &here, free_address()?, size, &format!("* compute 1\n* publish {address}\n"))?;
    let victim = asked_through(stage, &here, &app.address)?;
    let (blocked_ms, every_ms) = holds(stage);
    // A command of the broker takes a second by itself.
    let (blocked_s, every_s) = (blocked_ms as f64 / 100.0, every_ms as f64 / 100.0);
    let mut is_blocked = false;
    stage.healthy()?;

    stage.trouble_starts();
    stage.trouble_on(|_, seconds| {
        let wanted = seconds % every_s < blocked_s;
        if wanted != is_blocked {
            is_blocked = wanted;
            let limit = if wanted { "0.00001" } else { "0.6" };
            machine::run(rabbit.command("rabbitmqctl").args(["set_vm_memory_high_watermark", limit]))
                .map_err(|error| Stop::Failed(error.to_string()))?;
        }
        Ok(())
    })?;
    stage.suffered(&victim, stage.loud(20.0, 3.0))?;
    Ok(Truth { process: Some("beam.smp".into()), pids: family(handle.pid()), ..Truth::default() })
}
