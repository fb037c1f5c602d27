//! Makes the runs of an experiment, one after the other.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use mitra_collect::Clock;
use toml::Spanned;

use super::changes::{Change, State, Teardown};
use super::folder::{Folder, Ran, Slot};
use super::outputs::Output;
use super::plan::{Setting, Variant, filled, filled_content, filled_text, sysctl_path};
use super::process::{self, Failure, Program};
use crate::errors::Interrupted;
use crate::render::units;

/// So many failed runs in a row end the experiment.
const FAILED_MAX: u32 = 3;
/// Servers of real software need a few seconds.
const READY_WITHIN: Duration = Duration::from_secs(20);
const READY_EVERY: Duration = Duration::from_millis(50);
const CONNECT_WITHIN: Duration = Duration::from_millis(500);

pub struct Runner<'a> {
    pub folder: &'a mut Folder,
    pub state: &'a State,
    pub root: &'a Path,
}

/// What a run is made of, with all placeholders filled.
struct Prepared {
    changes: Vec<Change>,
    teardown: Option<Teardown>,
    setup: Option<Vec<String>>,
    service: Option<Vec<String>>,
    ready: Option<SocketAddr>,
    reset: Option<Vec<String>>,
    workload: Vec<String>,
    environment: BTreeMap<String, String>,
    work: PathBuf,
}

impl Runner<'_> {
    /// Makes all runs that are left.
    pub fn run(&mut self) -> Result<()> {
        let (began, left) = (Instant::now(), self.folder.left());
        let all = self.folder.about.order.len();
        let mut failed = 0;
        for (done, (number, slot)) in left.iter().enumerate() {
            let ran = self.one(*number, *slot)?;
            failed = if ran.failed.is_some() { failed + 1 } else { 0 };
            let each_s = began.elapsed().as_secs_f64() / (done + 1) as f64;
            let left_s = each_s * (left.len() - done - 1) as f64;
            self.say(&ran, *slot, all, left_s);
            let why = ran.failed.clone().unwrap_or_default();
            self.folder.add(ran)?;
            if failed == FAILED_MAX {
                bail!(
                    "{FAILED_MAX} runs in a row failed, the last one because of {why}; what they printed is in {}",
                    self.folder.path.join("runs").display()
                );
            }
        }
        self.folder.remove_work().map(|_| ())
    }

    /// A line for each run, whoever reads it.
    fn say(&self, ran: &Ran, slot: Slot, all: usize, left_s: f64) {
        let experiment = &self.folder.experiment;
        let variant = experiment.variant(slot.variant).map_or("", |variant| variant.name.get_ref().as_str());
        let step = experiment.steps.get(slot.step).and_then(Option::as_ref);
        let step = step.map(|step| format!(", {step}")).unwrap_or_default();
        let warm = if slot.round < self.folder.about.warm_up { " (warm-up)" } else { "" };
        let result = match (&ran.failed, experiment.metrics.first()) {
            (Some(why), _) => format!("failed: {why}"),
            (None, Some(metric)) => match ran.values.get(&metric.info.name) {
                Some(value) => format!("{} {}", metric.info.name, units::value(*value, &metric.info.unit)),
                None => format!("{} is missing", metric.info.name),
            },
            (None, None) => String::new(),
        };
        let left =
            if left_s > 0.0 { format!("; about {} left", units::length(left_s)) } else { String::new() };
        // A closed standard error does not stop the experiment.
        _ = writeln!(
            std::io::stderr(),
            "run {} of {all}: {variant}{step}{warm}: {result}{left}",
            ran.number + 1
        );
    }

    /// One run. What it changed is put back whatever becomes of it.
    fn one(&self, number: usize, slot: Slot) -> Result<Ran> {
        let prepared = self.prepare(number, slot)?;
        let title = format!("{}, run {}", self.folder.experiment.plan.title.get_ref(), number + 1);
        let applied = self.state.apply(&title, &prepared.changes, prepared.teardown.clone())?;
        let mut ran = Ran {
            number,
            since: 0,
            until: 0,
            failed: None,
            values: BTreeMap::new(),
            missing: BTreeMap::new(),
            also: BTreeMap::new(),
        };
        let made = self.make(number, &prepared, &mut ran);
        applied.undo()?;
        match made {
            Ok(()) => self.read(&mut ran),
            Err(Failure::Failed(why)) => ran.failed = Some(why),
            Err(Failure::Interrupted) => {
                let dir = self.folder.path.display();
                _ = writeln!(
                    std::io::stderr(),
                    "everything is put back; go on with: mitra experiment --resume {dir}"
                );
                return Err(anyhow!(Interrupted));
            }
        }
        Ok(ran)
    }

    /// Fills the placeholders.
    fn prepare(&self, number: usize, slot: Slot) -> Result<Prepared> {
        let (folder, experiment) = (&*self.folder, &self.folder.experiment);
        let variant = experiment.variant(slot.variant)?;
        let plan = &experiment.plan;
        let work = folder.fresh_work()?;
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).with_context(|| format!("{}: not UTF-8", path.display()))
        };
        let mut values = variant.set.clone();
        values.insert("dir".to_owned(), text(&work)?);
        values.insert("here".to_owned(), text(&folder.about.here)?);
        if let Some(Some(step)) = experiment.steps.get(slot.step) {
            values.insert("step".to_owned(), step.clone());
        }
        let argv = |argv: Option<&Spanned<Vec<String>>>| -> Result<Option<Vec<String>>> {
            argv.map(|argv| filled(argv.get_ref(), &values)).transpose()
        };
        let given = plan.workload.environment.iter().chain(&variant.environment);
        let environment: BTreeMap<String, String> = given
            .map(|(name, value)| Ok((name.clone(), filled_text(value, &values)?)))
            .collect::<Result<_>>()?;
        let teardown = argv(variant.teardown.as_ref())?.map(|argv| Teardown {
            argv,
            environment: environment.clone(),
            directory: work.clone(),
            output: folder.output(number, "teardown"),
            timeout: experiment.timeout,
        });
        let ready = variant.ready.as_ref().map(|ready| ready.get_ref().parse()).transpose()?;
        Ok(Prepared {
            changes: self.changes(variant, &values)?,
            teardown,
            setup: argv(variant.setup.as_ref())?,
            service: argv(variant.service.as_ref())?,
            ready,
            reset: argv(plan.reset.command.as_ref())?,
            workload: filled(plan.workload.command.get_ref(), &values)?,
            environment,
            work,
        })
    }

    fn changes(&self, variant: &Variant, values: &BTreeMap<String, String>) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for (key, value) in &variant.sysctl {
            let below = sysctl_path(key.get_ref()).context("not the name of a setting")?;
            let content = match value {
                Setting::Number(number) => number.to_string(),
                Setting::Text(text) => text.clone(),
            };
            let path = self.root.join(below);
            if !path.exists() {
                bail!("{}: this kernel has no such setting ({})", key.get_ref(), path.display());
            }
            changes.push(Change { path, content });
        }
        for file in variant.file.iter().map(Spanned::get_ref) {
            let path = PathBuf::from(filled_text(&file.path, values)?);
            let is_of_run = file.path.starts_with("{dir}/");
            let below = path.strip_prefix("/").unwrap_or(&path);
            let path = if is_of_run { path } else { self.root.join(below) };
            changes.push(Change { path, content: filled_content(&file.content, values) });
        }
        Ok(changes)
    }

    /// Set-up, service, reset and workload.
    fn make(&self, number: usize, prepared: &Prepared, ran: &mut Ran) -> Result<(), Failure> {
        let experiment = &self.folder.experiment;
        let program = |argv, stdout: &str| OwnedProgram {
            argv,
            environment: &prepared.environment,
            directory: &prepared.work,
            stdout: self.folder.output(number, stdout),
            stderr: self.folder.output(number, &format!("{stdout}.err")),
        };
        let others =
            ["setup", "setup.err", "service", "service.err"].map(|what| self.folder.output(number, what));
        if let Some(setup) = &prepared.setup {
            process::run(&program(setup, "setup").borrowed(), experiment.timeout, true, &[])?;
        }
        let mut service = match &prepared.service {
            Some(service) => Some(process::start(&program(service, "service").borrowed())?),
            None => None,
        };
        let made = (|| {
            if let (Some(service), Some(address)) = (&mut service, &prepared.ready) {
                wait_for(service, address)?;
            }
            if experiment.plan.reset.drop_caches {
                self.drop_caches()?;
            }
            if let Some(reset) = &prepared.reset {
                process::run(&program(reset, "reset").borrowed(), experiment.timeout, false, &others)?;
            }
            process::pause(experiment.settle)?;
            ran.since = Clock::Real.now().real;
            let workload = program(&prepared.workload, "out");
            let workload = process::run(&workload.borrowed(), experiment.timeout, false, &others);
            ran.until = Clock::Real.now().real;
            workload?;
            service.as_mut().map_or(Ok(()), process::Running::is_there)
        })();
        if let Some(service) = &mut service {
            service.end();
        }
        made
    }

    fn drop_caches(&self) -> Result<(), Failure> {
        rustix::fs::sync();
        let path = self.root.join("proc/sys/vm/drop_caches");
        std::fs::write(&path, "3").map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
    }

    /// What the output of the workload says.
    fn read(&self, ran: &mut Ran) {
        let output = match Output::read(&self.folder.output(ran.number, "out")) {
            Ok(output) => output,
            Err(why) => {
                ran.failed = Some(why);
                return;
            }
        };
        for metric in &self.folder.experiment.metrics {
            let name = metric.info.name.clone();
            match output.value(metric) {
                Ok(value) => _ = ran.values.insert(name, value),
                Err(why) => _ = ran.missing.insert(name, why),
            }
        }
        ran.also = output.all();
        // Without its main result a run says nothing.
        let primary = self.folder.experiment.metrics.first().map(|metric| &metric.info.name);
        ran.failed = primary.and_then(|name| Some(format!("{name}: {}", ran.missing.get(name)?)));
        // A server that refuses is fast. As of `mitra load`, one answer in two hundred may be bad.
        let requests = ran.also.get("run.requests").copied().unwrap_or(0.0);
        let refused = ran.also.get("run.non_2xx").copied().filter(|answers| *answers > 0.005 * requests);
        if let Some(answers) = refused.filter(|_| ran.failed.is_none()) {
            let answers = units::grouped(answers);
            ran.failed = Some(format!("{answers} answers had another status than 2xx or 3xx"));
        }
    }
}

/// A program whose outputs have names of their own.
struct OwnedProgram<'a> {
    argv: &'a [String],
    environment: &'a BTreeMap<String, String>,
    directory: &'a Path,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl OwnedProgram<'_> {
    fn borrowed(&self) -> Program<'_> {
        Program {
            argv: self.argv,
            environment: self.environment,
            directory: self.directory,
            stdout: &self.stdout,
            stderr: &self.stderr,
        }
    }
}

/// Waits until a service accepts connections.
fn wait_for(service: &mut process::Running, address: &SocketAddr) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        service.is_there()?;
        if TcpStream::connect_timeout(address, CONNECT_WITHIN).is_ok() {
            return Ok(());
        }
        if began.elapsed() > READY_WITHIN {
            return Err(Failure::Failed(format!("the service does not answer at {address}")));
        }
        process::pause(READY_EVERY)?;
    }
}
